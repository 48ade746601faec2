"""Where the value of a setting comes from: the answer to DescribeConfigs.

A topic's setting is its own, else what this broker has as the default for topics. That in turn was
set for this broker or for all brokers while they ran, or given at the start, or is what the
setting declares. The same holds for groups, and without its first step for brokers.
Nothing here changes a setting.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.config import REQUIRED, Key, UpdateMode, keys_of
from millstream.controller.config_schema import GroupConfig
from millstream.metadata.configs import CLUSTER_DEFAULT, ResourceType
from millstream.network.server.listener_limits import limit_key
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)
from millstream.storage.log.config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.config import Synonym
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.server.ports import BrokerSettings


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those of the wire."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class _Found(NamedTuple):
    """A value of a setting on one level."""

    name: str
    value: str | None
    source: ConfigSource


_UNKNOWN_TYPE: Final = 0


class ConfigDescriptions:
    """Describes the settings of this broker, and of topics and groups on it."""

    def __init__(
        self,
        node_id: int,
        settings: BrokerSettings,
        metadata: KRaftMetadataCache,
        topic_defaults: Callable[[], LogConfig],
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._metadata = metadata
        self._topic_defaults = topic_defaults

    def topic(self, name: str) -> list[DescribeConfigsResourceResult]:
        """All settings of a topic."""
        own = self._metadata.topic_config(name)
        defaults = self._topic_defaults()
        described = []
        for field_name, declared in keys_of(LogConfig).items():
            if declared.is_internal and declared.name not in own:
                continue
            found = list(self._levels(declared, own, ConfigSource.TOPIC))
            value = declared.format(getattr(defaults, field_name))
            if declared.name in own:
                value = own[declared.name]
            source = found[0].source if found else ConfigSource.DEFAULT
            described.append(_result(declared, value, source, found, read_only=False))
        return described

    def group(self, name: str) -> list[DescribeConfigsResourceResult]:
        """All settings of a group, which need not exist."""
        own = self._metadata.config(ResourceType.GROUP, name)
        described = []
        for declared in keys_of(GroupConfig).values():
            found = list(self._levels(declared, own, ConfigSource.GROUP))
            if not declared.synonyms:
                found += _declared_default(declared)
            value, source = found[0].value, found[0].source
            described.append(_result(declared, value, source, found, read_only=False))
        return described

    def broker(self) -> list[DescribeConfigsResourceResult]:
        """All settings of this broker."""
        declared_keys = self._broker_keys()
        described = []
        for declared in declared_keys.values():
            if declared.is_internal:
                continue
            found = [*self._broker_levels(declared.name), *_declared_default(declared)]
            value = found[0].value if found else None
            source = found[0].source if found else ConfigSource.DEFAULT
            is_fixed = declared.update_mode is UpdateMode.READ_ONLY
            described.append(_result(declared, value, source, found, read_only=is_fixed))
        unknown = sorted(self._settings.given.keys() - declared_keys.keys())
        return described + [_unknown(name, ConfigSource.STATIC_BROKER) for name in unknown]

    def cluster_default(self) -> list[DescribeConfigsResourceResult]:
        """What was set for all brokers while they ran."""
        declared_keys = self._broker_keys()
        described = []
        for name, value in sorted(self._metadata.config(*CLUSTER_DEFAULT).items()):
            declared = declared_keys.get(name)
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER
            if declared is None:
                described.append(_unknown(name, source))
            else:
                found = [_Found(name, value, source)]
                described.append(_result(declared, value, source, found, read_only=False))
        return described

    def _broker_keys(self) -> dict[str, Key]:
        """The settings that a broker knows, those included that only give topics their defaults."""
        keys = {
            declared.name: declared
            for settings in self._settings.classes
            if settings is not LogConfig
            for declared in keys_of(settings).values()
        }
        for declared in keys_of(LogConfig).values():
            for synonym in declared.synonyms:
                keys.setdefault(synonym.name, _as_broker_key(declared, synonym))
        own = self._metadata.config(ResourceType.BROKER, str(self._node_id))
        limits = filter(None, map(limit_key, {*self._settings.given, *own}))
        keys.update((declared.name, declared) for declared in limits)
        return dict(sorted(keys.items()))

    def _levels(
        self, declared: Key, own: Mapping[str, str], source: ConfigSource
    ) -> Iterator[_Found]:
        """What the resource has of its own, then the broker's levels of its synonyms."""
        if declared.name in own:
            yield _Found(declared.name, own[declared.name], source)
        for synonym in declared.synonyms:
            yield from self._broker_levels(synonym.name)
        if declared.synonyms:
            last = declared.synonyms[-1]
            default = _as_broker_key(declared, last).default
            yield _Found(last.name, declared.format(default), ConfigSource.DEFAULT)

    def _broker_levels(self, name: str) -> Iterator[_Found]:
        levels = (
            (
                self._metadata.config(ResourceType.BROKER, str(self._node_id)),
                ConfigSource.DYNAMIC_BROKER,
            ),
            (self._metadata.config(*CLUSTER_DEFAULT), ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self._settings.given, ConfigSource.STATIC_BROKER),
        )
        for level, source in levels:
            if name in level:
                yield _Found(name, level[name], source)


def describe_declared(
    settings: type, given: Mapping[str, str], source: ConfigSource
) -> list[DescribeConfigsResourceResult]:
    """The settings of a resource that has two levels: what was set for it, and the defaults."""
    described = []
    for declared in keys_of(settings).values():
        found = _declared_default(declared)
        if declared.name in given:
            found.insert(0, _Found(declared.name, given[declared.name], source))
        described.append(_result(declared, found[0].value, found[0].source, found, read_only=False))
    return described


def _declared_default(declared: Key) -> list[_Found]:
    if declared.default is REQUIRED:
        return []
    default = None if declared.default is None else declared.format(declared.default)
    return [_Found(declared.name, default, ConfigSource.DEFAULT)]


def _as_broker_key(declared: Key, synonym: Synonym) -> Key:
    """A topic's setting as the broker spells it, in the broker's unit."""
    default = declared.default
    if synonym.scale > 1 and isinstance(default, int):
        default //= synonym.scale
    return Key(
        synonym.name,
        declared.type,
        default,
        declared.validator,
        declared.doc,
        declared.unit if synonym.scale == 1 else "",
        update_mode=UpdateMode.CLUSTER_WIDE if synonym.scale == 1 else UpdateMode.READ_ONLY,
    )


def _result(
    declared: Key, value: str | None, source: ConfigSource, found: list[_Found], *, read_only: bool
) -> DescribeConfigsResourceResult:
    is_hidden = declared.is_sensitive
    return DescribeConfigsResourceResult(
        name=declared.name,
        value=None if is_hidden else value,
        read_only=read_only,
        config_source=source,
        is_sensitive=is_hidden,
        synonyms=[
            DescribeConfigsSynonym(
                name=each.name, value=None if is_hidden else each.value, source=each.source
            )
            for each in found
        ],
        config_type=declared.type,
        documentation=declared.doc,
    )


def _unknown(name: str, source: ConfigSource) -> DescribeConfigsResourceResult:
    """A setting that nobody declares: it may be a secret."""
    return DescribeConfigsResourceResult(
        name=name,
        value=None,
        config_source=source,
        is_sensitive=True,
        synonyms=[DescribeConfigsSynonym(name=name, value=None, source=source)],
        config_type=_UNKNOWN_TYPE,
        documentation=None,
    )
