"""What `EmbeddedBroker` asks its controller for on behalf of a test, as requests.

Topics that are made, and settings that are forgotten. Nothing here sends anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from millstream.controller.configuration_control import MIN_ISR, AlterOperation
from millstream.errors import NO_ERROR, error_for_code
from millstream.metadata.configs import CLUSTER_DEFAULT, ResourceType
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.metadata.configs import ConfigResource, ConfigurationsImage


class Answer(Protocol):
    """What answers of the controller have in common."""

    error_code: int
    error_message: str | None


def creation(name: str, partitions: int, config: Mapping[str, object]) -> CreateTopicsRequest:
    """One topic, with one replica of each partition."""
    configs = [CreatableTopicConfig(name=key, value=as_text(config[key])) for key in config]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=configs
    )
    return CreateTopicsRequest(topics=[topic])


def forgetting(
    configs: ConfigurationsImage, min_insync_replicas: int
) -> IncrementalAlterConfigsRequest:
    """Unset what was set for everything but topics, as if it were a new cluster.

    That has `min_insync_replicas` as the default of all brokers, and keeps it.
    """
    kept = (CLUSTER_DEFAULT, MIN_ISR, str(min_insync_replicas))
    resources = []
    for resource, settings in configs.by_resource.items():
        changes = [
            _reset(resource, name, min_insync_replicas)
            for name, value in settings.items()
            if (resource, name, value) != kept
        ]
        if changes and resource.type != ResourceType.TOPIC:
            resources.append(
                AlterConfigsResource(
                    resource_type=resource.type, resource_name=resource.name, configs=changes
                )
            )
    return IncrementalAlterConfigsRequest(resources=resources)


def raise_first(answers: Sequence[Answer]) -> None:
    """Raise the first error among answers."""
    for answer in answers:
        if answer.error_code != NO_ERROR:
            raise error_for_code(answer.error_code, answer.error_message)


def as_text(value: object) -> str:
    """A setting as it would be in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reset(resource: ConfigResource, name: str, min_insync_replicas: int) -> AlterableConfig:
    if resource == CLUSTER_DEFAULT and name == MIN_ISR:
        return AlterableConfig(
            name=name, config_operation=AlterOperation.SET, value=str(min_insync_replicas)
        )
    return AlterableConfig(name=name, config_operation=AlterOperation.DELETE, value=None)
