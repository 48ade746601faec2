"""Settings of topics, brokers, groups and metric subscriptions: AlterConfigs in both forms.

Each resource of a request succeeds or fails on its own; what succeeds is written in one batch.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from millstream.config import ConfigType
from millstream.controller.decision import Decision
from millstream.errors import (
    ApiError,
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from millstream.metadata.configs import CLUSTER_DEFAULT, ConfigResource, ResourceType
from millstream.protocol.messages import alter_configs, incremental_alter_configs
from millstream.protocol.messages.config_records import ConfigRecord
from millstream.protocol.messages.topic_records import ClearElrRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.controller.config_schema import ConfigSchema
    from millstream.controller.ports import AlterConfigPolicy
    from millstream.controller.replication_control import ControllerState
    from millstream.protocol.message import Message
    from millstream.protocol.messages.create_topics import CreatableTopicConfig

MIN_ISR: Final = "min.insync.replicas"
VALUE_BYTES_MAX: Final = 32_767
"""What a record can carry."""
_ALTERABLE: Final = frozenset(
    {ResourceType.TOPIC, ResourceType.BROKER, ResourceType.CLIENT_METRICS, ResourceType.GROUP}
)


class AlterOperation(IntEnum):
    """What IncrementalAlterConfigs does to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigurationControl:
    """Decides about settings."""

    def __init__(
        self,
        state: ControllerState,
        schema: ConfigSchema,
        node_ids: Callable[[], frozenset[int]],
        policy: AlterConfigPolicy | None = None,
    ) -> None:
        """`node_ids` are the controllers of the quorum, which may have broker settings too."""
        self._state = state
        self._schema = schema
        self._node_ids = node_ids
        self._policy = policy

    def incremental_alter(
        self, request: incremental_alter_configs.IncrementalAlterConfigsRequest
    ) -> Decision[incremental_alter_configs.IncrementalAlterConfigsResponse]:
        """Change single settings, leaving the others."""
        response = incremental_alter_configs.IncrementalAlterConfigsResponse()
        records: list[Message] = []
        counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
        for asked in request.resources:
            resource = ConfigResource(asked.resource_type, asked.resource_name)
            answer = incremental_alter_configs.AlterConfigsResourceResponse(
                resource_type=resource.type, resource_name=resource.name, error_message=None
            )
            response.responses.append(answer)
            try:
                _check_alterable(resource, counts[resource])
                records += self._alter(resource, self._operated(resource, asked.configs), {})
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, str(error)
        return Decision(response, [] if request.validate_only else records)

    def legacy_alter(
        self, request: alter_configs.AlterConfigsRequest
    ) -> Decision[alter_configs.AlterConfigsResponse]:
        """Replace all settings of a resource: what is not named is unset."""
        response = alter_configs.AlterConfigsResponse()
        records: list[Message] = []
        counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
        for asked in request.resources:
            resource = ConfigResource(asked.resource_type, asked.resource_name)
            answer = alter_configs.AlterConfigsResourceResponse(
                resource_type=resource.type, resource_name=resource.name, error_message=None
            )
            response.responses.append(answer)
            try:
                _check_alterable(resource, counts[resource])
                _check_unique([each.name for each in asked.configs])
                _check_no_nulls({each.name: each.value for each in asked.configs})
                wanted: dict[str, str | None] = {each.name: each.value for each in asked.configs}
                before = self._state.image.configs.of(*resource)
                dropped = dict.fromkeys(name for name in before if name not in wanted)
                records += self._alter(resource, wanted, dropped)
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, str(error)
        return Decision(response, [] if request.validate_only else records)

    def new_topic_configs(
        self, resource: ConfigResource, asked: Sequence[CreatableTopicConfig]
    ) -> tuple[dict[str, str], list[Message]]:
        """The settings of a topic about to be created, checked, and their records."""
        wanted = {each.name: each.value for each in asked}
        _check_no_nulls(wanted)
        _check_sizes(wanted)
        configs = {name: value for name, value in wanted.items() if value is not None}
        self._schema.check(resource, configs)
        if self._policy is not None and configs:
            self._policy.check(resource, configs)
        return configs, [_record(resource, name, value) for name, value in configs.items()]

    def elr_safety_records(self) -> list[Message]:
        """What must be set when eligible leader replicas are turned on.

        The minimum of in-sync replicas must be the same for all brokers, and stay known.
        """
        configs = self._state.image.configs
        records: list[Message] = []
        if MIN_ISR not in configs.of(*CLUSTER_DEFAULT):
            default = str(self._state.topic_defaults.min_insync_replicas)
            records.append(_record(CLUSTER_DEFAULT, MIN_ISR, default))
        for resource in sorted(configs.by_resource):
            is_one_broker = resource.type == ResourceType.BROKER and resource.name
            if is_one_broker and MIN_ISR in configs.by_resource[resource]:
                records.append(_record(resource, MIN_ISR, None))
        return records

    def _alter(
        self,
        resource: ConfigResource,
        wanted: Mapping[str, str | None],
        dropped: Mapping[str, None],
    ) -> list[Message]:
        """The records of a change; `dropped` are settings that the asker did not name."""
        before = self._state.image.configs.of(*resource)
        # A broker reloads files that a setting names even if the name did not change.
        is_broker = resource.type == ResourceType.BROKER
        changes = {
            name: value for name, value in wanted.items() if is_broker or before.get(name) != value
        }
        after = {
            name: value
            for name, value in {**before, **changes, **dropped}.items()
            if value is not None
        }
        _check_sizes(changes)
        self._schema.check(resource, after)
        self._check_exists(resource)
        all_changes = {**changes, **dropped}
        self._check_elr_rules(resource, before, after)
        if self._policy is not None:
            self._policy.check(resource, changes)
        records: list[Message] = [
            _record(resource, name, value) for name, value in all_changes.items()
        ]
        if before.get(MIN_ISR) != after.get(MIN_ISR):
            records += self._clear_elr(resource)
        return records

    def _operated(
        self,
        resource: ConfigResource,
        asked: Sequence[incremental_alter_configs.AlterableConfig],
    ) -> dict[str, str | None]:
        _check_unique([each.name for each in asked])
        before = self._state.image.configs.of(*resource)
        return {each.name: self._operate(resource, each, before.get(each.name)) for each in asked}

    def _operate(
        self,
        resource: ConfigResource,
        asked: incremental_alter_configs.AlterableConfig,
        before: str | None,
    ) -> str | None:
        """The value after an operation."""
        if asked.config_operation == AlterOperation.DELETE:
            return None
        if asked.config_operation not in tuple(AlterOperation):
            raise InvalidRequest(f"there is no operation {asked.config_operation} on settings")
        if asked.value is None:
            raise InvalidRequest(f"a value is missing for {asked.name}")
        if asked.config_operation == AlterOperation.SET:
            return asked.value
        declared = self._schema.known_key(resource.type, asked.name)
        if declared is None or declared.type is not ConfigType.LIST:
            raise InvalidConfig(f"{asked.name} is not a list: it can only be set or deleted")
        text = declared.format(declared.default) if before is None else before
        items = [item for item in text.split(",") if item]
        operands = [item.strip() for item in asked.value.split(",") if item.strip()]
        if asked.config_operation == AlterOperation.APPEND:
            return ",".join(dict.fromkeys([*items, *operands]))
        return ",".join(item for item in items if item not in operands)

    def _check_exists(self, resource: ConfigResource) -> None:
        image = self._state.image
        if resource.type == ResourceType.TOPIC and resource.name not in image.topics.by_name:
            raise UnknownTopicOrPartition(f"there is no topic {resource.name}")
        if resource.type == ResourceType.BROKER and resource.name:
            node_id = int(resource.name)
            if node_id not in image.cluster.brokers and node_id not in self._node_ids():
                raise BrokerIdNotRegistered(f"there is no node {node_id}")

    def _check_elr_rules(
        self, resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]
    ) -> None:
        has_elr = self._state.image.features.has_eligible_leader_replicas
        if not has_elr or resource.type != ResourceType.BROKER:
            return
        if resource != CLUSTER_DEFAULT and MIN_ISR in after:
            raise InvalidConfig(
                f"{MIN_ISR} cannot be set for one broker while eligible leader replicas are kept"
            )
        if resource == CLUSTER_DEFAULT and MIN_ISR in before and MIN_ISR not in after:
            raise InvalidConfig(
                f"the default of {MIN_ISR} cannot be unset while eligible leader replicas are kept"
            )

    def _clear_elr(self, resource: ConfigResource) -> list[Message]:
        """Replicas that were eligible were so by the old minimum."""
        if not self._state.image.features.has_eligible_leader_replicas:
            return []
        if resource.type == ResourceType.TOPIC:
            return [ClearElrRecord(topic_name=resource.name)]
        return [ClearElrRecord()] if resource == CLUSTER_DEFAULT else []


def _record(resource: ConfigResource, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=resource.type, resource_name=resource.name, name=name, value=value
    )


def _check_alterable(resource: ConfigResource, occurrences: int) -> None:
    if occurrences > 1:
        raise InvalidRequest("each resource may occur once in a request")
    if resource.type == ResourceType.BROKER_LOGGER:
        raise InvalidRequest("levels of loggers are changed at the broker itself")
    if resource.type not in _ALTERABLE:
        raise InvalidRequest(f"resource type {resource.type} is not known")


def _check_unique(names: Sequence[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidRequest(f"settings occur twice: {', '.join(twice)}")


def _check_sizes(configs: Mapping[str, str | None]) -> None:
    for name, value in configs.items():
        if value is not None and len(value.encode()) > VALUE_BYTES_MAX:
            raise InvalidConfig(f"the value of {name} has more than {VALUE_BYTES_MAX} bytes")


def _check_no_nulls(configs: Mapping[str, str | None]) -> None:
    missing = sorted(name for name, value in configs.items() if value is None)
    if missing:
        raise InvalidConfig(f"a value is missing for {', '.join(missing)}")
