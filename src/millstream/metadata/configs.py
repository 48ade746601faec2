"""The dynamic settings of topics, brokers, groups and metric subscriptions, as the log has them.

Part of `MetadataImage`. Only what was set is here: defaults, synonyms and checks belong to the
controller and to those who read the settings. A broker resource with an empty name is the default
of all brokers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from millstream.metadata.shared_map import SharedMap
from millstream.protocol.messages.config_records import ConfigRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NOTHING: Mapping[str, str] = MappingProxyType({})


class ResourceType(IntEnum):
    """What can have settings; the numbers are those of the wire."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """Something that has settings."""

    type: int
    name: str


CLUSTER_DEFAULT = ConfigResource(ResourceType.BROKER, "")
"""The dynamic default of every broker."""


@dataclass(frozen=True, slots=True)
class ConfigurationsImage:
    """Settings by resource; a resource without settings is absent."""

    by_resource: SharedMap[ConfigResource, Mapping[str, str]] = field(default_factory=SharedMap)

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set for a resource."""
        return self.by_resource.get(ConfigResource(resource_type, name), _NOTHING)

    def to_records(self) -> Iterator[ConfigRecord]:
        """By resource, then by name."""
        for resource in sorted(self.by_resource):
            for name, value in sorted(self.by_resource[resource].items()):
                yield ConfigRecord(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    name=name,
                    value=value,
                )


class ConfigurationsDelta:
    """Changes of settings; None is unset."""

    def __init__(self, image: ConfigurationsImage) -> None:
        self.image = image
        self.changes: dict[ConfigResource, dict[str, str | None]] = {}

    def replay_config(self, record: ConfigRecord) -> None:
        """Set or unset one setting."""
        resource = ConfigResource(record.resource_type, record.resource_name)
        self.changes.setdefault(resource, {})[record.name] = record.value

    def forget(self, resource: ConfigResource) -> None:
        """Unset everything: the resource is gone."""
        before = self.image.by_resource.get(resource, _NOTHING)
        changes = self.changes.pop(resource, {})
        names = {*before, *changes}
        if names:
            self.changes[resource] = dict.fromkeys(names)

    def finish_snapshot(self) -> None:
        """What a snapshot does not mention is unset."""
        for resource, before in self.image.by_resource.items():
            changes = self.changes.setdefault(resource, {})
            changes.update(dict.fromkeys(before.keys() - changes.keys()))

    def apply(self) -> ConfigurationsImage:
        """The settings after the changes."""
        changed: dict[ConfigResource, Mapping[str, str]] = {}
        removed = []
        for resource, changes in self.changes.items():
            after = {
                name: value
                for name, value in {**self.image.of(*resource), **changes}.items()
                if value is not None
            }
            if after:
                changed[resource] = after
            else:
                removed.append(resource)
        return ConfigurationsImage(self.image.by_resource.evolve(changed, removed))
