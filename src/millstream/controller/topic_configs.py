"""All settings of a topic with where each comes from, as CreateTopics answers them."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from millstream.config import keys_of, to_properties
from millstream.metadata.configs import CLUSTER_DEFAULT
from millstream.protocol.messages.create_topics import CreatableTopicConfigs
from millstream.storage.log.config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.controller.replication_control import ControllerState


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those of the wire."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


def effective_topic_configs(
    state: ControllerState, own: Mapping[str, str]
) -> list[CreatableTopicConfigs]:
    """Every setting of a topic, sorted by name."""
    cluster = state.image.configs.of(*CLUSTER_DEFAULT)
    static = to_properties(state.topic_defaults)
    described = []
    for declared in keys_of(LogConfig).values():
        if declared.is_internal:
            continue
        value, source = static[declared.name], ConfigSource.STATIC_BROKER
        if value == declared.format(declared.default):
            source = ConfigSource.DEFAULT
        for synonym in declared.synonyms:
            if synonym.scale == 1 and synonym.name in cluster:
                value, source = cluster[synonym.name], ConfigSource.DYNAMIC_DEFAULT_BROKER
                break
        if declared.name in own:
            value, source = own[declared.name], ConfigSource.TOPIC
        described.append(
            CreatableTopicConfigs(name=declared.name, value=value, config_source=source)
        )
    return sorted(described, key=lambda each: each.name)
