"""Which settings each kind of resource may have, and whether their values are right.

`ConfigurationControl` asks before it writes anything. Topics are checked with the settings class
that logs are run with; brokers with the classes that the node hands in; groups and metric
subscriptions with the two classes here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from millstream.config import (
    ConfigType,
    Key,
    Rule,
    UpdateMode,
    Validator,
    any_value,
    at_least,
    between,
    each,
    key,
    keys_of,
    one_of,
    parse,
    parse_faults,
    validate,
)
from millstream.config.durations import duration_ms
from millstream.errors import InvalidConfig, InvalidRequest
from millstream.metadata.configs import ConfigResource, ResourceType
from millstream.metadata.topic_names import check_topic_name
from millstream.storage.log.config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_MATCH_KEYS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def _is_match(item: str) -> bool:
    name, equals, pattern = item.partition("=")
    if not equals or name.strip() not in _MATCH_KEYS:
        return False
    try:
        re.compile(pattern.strip())
    except re.error:
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsConfig:
    """The settings of a metrics subscription."""

    interval_ms: int = key(
        "interval.ms",
        300_000,
        between(100, 3_600_000),
        "How often clients push the metrics.",
        unit="ms",
    )
    metrics: tuple[str, ...] = key(
        "metrics", (), any_value(), "Prefixes of the names of the metrics that are wanted."
    )
    match: tuple[str, ...] = key(
        "match",
        (),
        each(_is_match, "a list of name=regular expression, names such as client_id"),
        "Which clients are meant: all of these must match.",
    )

    def __post_init__(self) -> None:
        validate(self)


def _is_offset_reset(text: str) -> bool:
    if text in ("earliest", "latest"):
        return True
    prefix, _, duration = text.partition(":")
    try:
        return prefix == "by_duration" and duration_ms(duration) >= 0
    except InvalidConfig:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The dynamic settings of a group."""

    RULES: ClassVar[tuple[Rule, ...]] = tuple(
        Rule(
            (f"{kind}_session_timeout_ms", f"{kind}_heartbeat_interval_ms"),
            lambda timeout, interval: timeout > interval,
            f"more than {kind}.heartbeat.interval.ms",
        )
        for kind in ("consumer", "share")
    )

    consumer_session_timeout_ms: int = key(
        "consumer.session.timeout.ms",
        45_000,
        at_least(1),
        "How long a consumer may be silent.",
        unit="ms",
        synonyms=("group.consumer.session.timeout.ms",),
    )
    consumer_heartbeat_interval_ms: int = key(
        "consumer.heartbeat.interval.ms",
        5000,
        at_least(1),
        "How often a consumer reports.",
        unit="ms",
        synonyms=("group.consumer.heartbeat.interval.ms",),
    )
    share_session_timeout_ms: int = key(
        "share.session.timeout.ms",
        45_000,
        at_least(1),
        "How long a share consumer may be silent.",
        unit="ms",
        synonyms=("group.share.session.timeout.ms",),
    )
    share_heartbeat_interval_ms: int = key(
        "share.heartbeat.interval.ms",
        5000,
        at_least(1),
        "How often a share consumer reports.",
        unit="ms",
        synonyms=("group.share.heartbeat.interval.ms",),
    )
    share_record_lock_duration_ms: int = key(
        "share.record.lock.duration.ms",
        30_000,
        at_least(1000),
        "How long a share consumer has a record to itself.",
        unit="ms",
        synonyms=("group.share.record.lock.duration.ms",),
    )
    share_delivery_count_limit: int = key(
        "share.delivery.count.limit",
        5,
        at_least(2),
        "How often a record is delivered before it is given up.",
        synonyms=("group.share.delivery.count.limit",),
    )
    share_partition_max_record_locks: int = key(
        "share.partition.max.record.locks",
        2000,
        at_least(100),
        "How many records of a partition may be in flight.",
        synonyms=("group.share.partition.max.record.locks",),
    )
    share_renew_acknowledge_enable: bool = key(
        "share.renew.acknowledge.enable",
        True,
        any_value(),
        "Whether share consumers may renew the locks of their records.",
    )
    share_auto_offset_reset: str = key(
        "share.auto.offset.reset",
        "latest",
        Validator("earliest, latest or by_duration:<ISO 8601 duration>", _is_offset_reset),
        "Where a share group begins: earliest, latest or by_duration:<ISO 8601 duration>.",
    )
    share_isolation_level: str = key(
        "share.isolation.level",
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        "Whether a share group sees records of open transactions.",
    )

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, slots=True)
class ConfigSchema:
    """The settings classes by resource."""

    topic_defaults: LogConfig = field(default_factory=LogConfig)
    broker_settings: Sequence[type] = ()
    """Classes whose keys brokers know; other keys are somebody's own and pass unchecked."""
    group_settings: type = GroupConfig
    listener_key: Callable[[str], Key | None] = lambda _: None
    """The declaration of a setting that a single listener of a broker has, under its whole name."""

    def known_key(self, resource_type: int, name: str) -> Key | None:
        """The declaration of a setting, if it is known."""
        return self._keys(resource_type).get(name)

    def check(self, resource: ConfigResource, configs: Mapping[str, str]) -> None:
        """Raise InvalidConfig or InvalidRequest if a resource cannot have these settings."""
        match resource.type:
            case ResourceType.TOPIC:
                check_topic_name(resource.name)
                wanted = parse(LogConfig, configs, defaults=self.topic_defaults)
                if wanted.remote_storage_enable:
                    raise InvalidConfig(
                        "remote.storage.enable=true: must be false: this cluster has no tiered "
                        "storage"
                    )
            case ResourceType.BROKER:
                self._check_broker(resource.name, configs)
            case ResourceType.CLIENT_METRICS:
                _check_client_metrics(resource.name, configs)
            case ResourceType.GROUP:
                if not resource.name:
                    raise InvalidRequest("there are no default settings of groups: name one")
                parse(self.group_settings, configs)
            case _:
                raise InvalidRequest(f"resource type {resource.type} has no settings here")

    def _keys(self, resource_type: int) -> dict[str, Key]:
        classes: Mapping[int, Sequence[type]] = {
            ResourceType.TOPIC: (LogConfig,),
            ResourceType.BROKER: self.broker_settings,
            ResourceType.CLIENT_METRICS: (ClientMetricsConfig,),
            ResourceType.GROUP: (self.group_settings,),
        }
        return {
            declared.name: declared
            for settings in classes.get(resource_type, ())
            for declared in keys_of(settings).values()
        }

    def _check_broker(self, name: str, configs: Mapping[str, str]) -> None:
        """Unknown keys pass; known ones must be changeable at this level and have a fit value."""
        if name and not name.isdecimal():
            raise InvalidRequest(f"a broker is named by its number, not {name!r}")
        keys = self._keys(ResourceType.BROKER)
        for config_name, text in configs.items():
            declared = keys.get(config_name) or self.listener_key(config_name)
            if declared is not None:
                _check_broker_key(declared, text, is_default=not name)
        _check_topic_synonyms(configs)
        self._check_broker_rules(configs)

    def _check_broker_rules(self, configs: Mapping[str, str]) -> None:
        """Settings that are fine one by one may be wrong together, or lock everybody out."""
        for settings in self.broker_settings:
            for fault in parse_faults(settings, configs, ignore_unknown=True):
                if fault.key in configs:
                    raise InvalidConfig(str(fault))


def _check_broker_key(declared: Key, text: str, *, is_default: bool) -> None:
    if declared.update_mode is UpdateMode.READ_ONLY:
        raise InvalidRequest(f"{declared.name} cannot be changed while brokers run")
    if declared.update_mode is UpdateMode.PER_BROKER and is_default:
        raise InvalidRequest(f"{declared.name} can only be set for one broker, not for all")
    try:
        fault = declared.fault_of(declared.parse(text))
    except ValueError:
        fault = declared.allowed
    if fault is not None:
        shown = "[hidden]" if declared.type is ConfigType.PASSWORD else text
        raise InvalidConfig(f"{declared.name}={shown}: must be {fault}")


def _check_topic_synonyms(configs: Mapping[str, str]) -> None:
    """The keys that give all topics their defaults; those in hours are for files only."""
    for declared in keys_of(LogConfig).values():
        for synonym in declared.synonyms:
            if synonym.name in configs:
                if synonym.scale != 1:
                    raise InvalidRequest(f"{synonym.name} cannot be changed while brokers run")
                try:
                    fault = declared.fault_of(declared.parse(configs[synonym.name]))
                except ValueError:
                    fault = declared.allowed
                if fault is not None:
                    text = configs[synonym.name]
                    raise InvalidConfig(f"{synonym.name}={text}: must be {fault}")


def _check_client_metrics(name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise InvalidRequest("a metrics subscription needs a name")
    faults = parse_faults(ClientMetricsConfig, configs)
    if faults:
        is_only_match = all(fault.key == "match" for fault in faults)
        problem = "; ".join(map(str, faults))
        raise InvalidConfig(problem) if is_only_match else InvalidRequest(problem)
