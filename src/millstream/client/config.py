"""The settings that all clients share, and how each client reads its own.

A client declares its settings once, as a dataclass of `key(...)` fields in Kafka's names and units
(`ProducerConfig`), and for type checkers as a TypedDict in Python's (`ProducerSettings`). The
Python name drops `_ms` and takes seconds: `linger.ms` is `linger=0.005`. A test holds the two
equal. Every fault of a configuration is in one error.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from millstream.client.addresses import Address, parse_bootstrap
from millstream.client.foreign_settings import translated
from millstream.client.metadata import MetadataConfig
from millstream.client.namespace import Namespace
from millstream.config import (
    REQUIRED,
    ConfigType,
    Key,
    any_value,
    at_least,
    key,
    keys_of,
    nearest_key,
    one_of,
)
from millstream.config.validation import find_faults
from millstream.errors import InvalidArgument
from millstream.network.client.network_client import NetworkClientConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

C = TypeVar("C")
T = TypeVar("T")

_OBJECT: Final = "millstream.client.object"
_LONG: Final = ConfigType.LONG


class ClientSettings(TypedDict, total=False):
    """Keyword arguments of every client."""

    client_id: str
    namespace: str | None
    request_timeout: float
    default_api_timeout: float
    metadata_max_age: float
    reconnect_backoff: float
    reconnect_backoff_max: float
    retry_backoff: float
    retry_backoff_max: float
    socket_connection_setup_timeout: float
    socket_connection_setup_timeout_max: float
    connections_max_idle: float
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger: float
    security_protocol: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of every client, in Kafka's names and units."""

    bootstrap_servers: tuple[str, ...] = key(
        "bootstrap.servers",
        REQUIRED,
        any_value(),
        "Where the first connections go: host:port, several of them in case one is down.",
        kind=ConfigType.LIST,
    )
    client_id: str = key(
        "client.id", "", any_value(), "Names this client in the brokers' logs and quotas."
    )
    namespace: str | None = key(
        "millstream.namespace",
        None,
        any_value(),
        "Prefix of topics, groups and transactional ids: nothing else is visible. Ours.",
        kind=ConfigType.STRING,
    )
    request_timeout_ms: int = key(
        "request.timeout.ms",
        30_000,
        at_least(1),
        "Wait this long for a broker's answer, then hang up.",
        unit="ms",
    )
    default_api_timeout_ms: int = key(
        "default.api.timeout.ms",
        60_000,
        at_least(0),
        "Try a call for this long, retries included, when no timeout is given.",
        unit="ms",
    )
    metadata_max_age_ms: int = key(
        "metadata.max.age.ms",
        300_000,
        at_least(0),
        "Ask for metadata again after this long even if nothing has changed.",
        kind=_LONG,
        unit="ms",
    )
    reconnect_backoff_ms: int = key(
        "reconnect.backoff.ms",
        50,
        at_least(0),
        "Wait this long before the second try to connect; twice as long before each more.",
        kind=_LONG,
        unit="ms",
    )
    reconnect_backoff_max_ms: int = key(
        "reconnect.backoff.max.ms",
        1_000,
        at_least(0),
        "Wait at most this long before a try to connect.",
        kind=_LONG,
        unit="ms",
    )
    retry_backoff_ms: int = key(
        "retry.backoff.ms",
        100,
        at_least(0),
        "Wait this long before a request is sent again; twice as long before each more.",
        kind=_LONG,
        unit="ms",
    )
    retry_backoff_max_ms: int = key(
        "retry.backoff.max.ms",
        1_000,
        at_least(0),
        "Wait at most this long before a request is sent again.",
        kind=_LONG,
        unit="ms",
    )
    socket_connection_setup_timeout_ms: int = key(
        "socket.connection.setup.timeout.ms",
        10_000,
        at_least(1),
        "Give up a connection that does not stand after this long; twice that at each more try.",
        kind=_LONG,
        unit="ms",
    )
    socket_connection_setup_timeout_max_ms: int = key(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        at_least(1),
        "Wait at most this long for a connection.",
        kind=_LONG,
        unit="ms",
    )
    connections_max_idle_ms: int = key(
        "connections.max.idle.ms",
        540_000,
        at_least(-1),
        "Close a connection that was not used for this long; -1: never.",
        kind=_LONG,
        unit="ms",
    )
    metadata_recovery_strategy: str = key(
        "metadata.recovery.strategy",
        "rebootstrap",
        one_of("rebootstrap", "none"),
        "What to do when no known broker can be reached: ask the bootstrap addresses again.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = key(
        "metadata.recovery.rebootstrap.trigger.ms",
        300_000,
        at_least(0),
        "Ask the bootstrap addresses again when metadata could not be had for this long.",
        kind=_LONG,
        unit="ms",
    )
    security_protocol: str = key(
        "security.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT"),
        "How the connections are protected.",
    )

    def __post_init__(self) -> None:
        faults = find_faults(
            type(self), {name: getattr(self, name) for name in keys_of(type(self))}
        )
        _raise_for(map(str, faults))

    @property
    def bootstrap(self) -> tuple[Address, ...]:
        """The bootstrap addresses; InvalidArgument if one cannot be."""
        return parse_bootstrap(self.bootstrap_servers)

    @property
    def names(self) -> Namespace:
        """The translation between names of the user and of the wire."""
        return Namespace(self.namespace)

    def network(self, max_in_flight: int = 5) -> NetworkClientConfig:
        """The part for `NetworkClient`."""
        return NetworkClientConfig(
            client_id=self.client_id,
            request_timeout_ms=self.request_timeout_ms,
            reconnect_backoff_ms=self.reconnect_backoff_ms,
            reconnect_backoff_max_ms=self.reconnect_backoff_max_ms,
            connection_setup_timeout_ms=self.socket_connection_setup_timeout_ms,
            connection_setup_timeout_max_ms=self.socket_connection_setup_timeout_max_ms,
            max_in_flight=max_in_flight,
            idle_ms=self.connections_max_idle_ms,
        )

    def metadata(
        self, *, topic_idle_ms: int | None = None, allow_auto_topic_creation: bool = False
    ) -> MetadataConfig:
        """The part for `Metadata`."""
        return MetadataConfig(
            max_age_ms=self.metadata_max_age_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            retry_backoff_max_ms=self.retry_backoff_max_ms,
            topic_idle_ms=topic_idle_ms,
            allow_auto_topic_creation=allow_auto_topic_creation,
            rebootstrap=self.metadata_recovery_strategy == "rebootstrap",
            rebootstrap_trigger_ms=self.metadata_recovery_rebootstrap_trigger_ms,
        )


def object_setting(name: str, default: T, doc: str) -> T:
    """Declare a setting whose value is an object (a serializer, a listener), not text."""
    field: Any = dataclasses.field(default=default, metadata={_OBJECT: (name, doc)})
    return field  # type: ignore[no-any-return]  # A Field stands where the value will be.


def keyword_names(settings_class: type) -> dict[str, str]:
    """The Python names of a client's settings, to the names of their fields."""
    return {
        keyword_of(field.name, keys_of(settings_class).get(field.name)): field.name
        for field in dataclasses.fields(settings_class)
    }


def keyword_of(field_name: str, declared: Key | None) -> str:
    """The Python name of a setting: without `_ms`."""
    if declared is not None and declared.unit == "ms":
        return field_name.removesuffix("_ms")
    return field_name


def settings_from_kwargs(settings_class: type[C], kwargs: Mapping[str, Any]) -> C:
    """A client's settings from keyword arguments: seconds, sizes, Python's names."""
    names = keyword_names(settings_class)
    keys = keys_of(settings_class)
    values: dict[str, Any] = {}
    faults: list[str] = []
    for keyword, given in kwargs.items():
        field_name = names.get(keyword)
        if field_name is None:
            faults.append(_unknown(keyword, names))
            continue
        declared = keys.get(field_name)
        value = given if declared is None else _native(declared, given, is_seconds=True)
        must_be = None if declared is None else declared.fault_of(value)
        if must_be is not None:
            assert declared is not None
            unit = " ms" if declared.unit == "ms" else ""
            faults.append(f"{keyword}={_shown(declared, given)}: must be {must_be}{unit}")
        values[field_name] = value
    return _build(settings_class, values, faults, names_given={v: k for k, v in names.items()})


def settings_from_dotted(settings_class: type[C], properties: Mapping[str, Any]) -> C:
    """A client's settings from Kafka's names, or from those that other clients have for them.

    Values are text or of the right type already.
    """
    keys = {declared.name: (name, declared) for name, declared in keys_of(settings_class).items()}
    objects = _object_names(settings_class)
    values: dict[str, Any] = {}
    faults: list[str] = []
    what = settings_class.__name__.removesuffix("Config")
    for name, given in translated(properties, {*keys, *objects}, what).items():
        if name in objects:
            values[objects[name]] = given
        elif name in keys:
            field_name, declared = keys[name]
            value = _from_text(declared, given)
            must_be = declared.fault_of(value)
            if must_be is not None:
                faults.append(f"{name}={_shown(declared, given)}: must be {must_be}")
            values[field_name] = value
        else:
            faults.append(_unknown(name, [*keys, *objects]))
    names_given = {field_name: declared.name for field_name, declared in keys.values()}
    return _build(settings_class, values, faults, names_given=names_given)


def object_settings(settings_class: type) -> dict[str, tuple[str, str]]:
    """The settings that are objects: the field's name to Kafka's name and the sentence."""
    return {
        field.name: field.metadata[_OBJECT]
        for field in dataclasses.fields(settings_class)
        if _OBJECT in field.metadata
    }


def _object_names(settings_class: type) -> dict[str, str]:
    return {name: field for field, (name, _) in object_settings(settings_class).items()}


def _build(
    settings_class: type[C],
    values: dict[str, Any],
    faults: list[str],
    names_given: Mapping[str, str],
) -> C:
    for name, declared in keys_of(settings_class).items():
        if declared.default is REQUIRED and name not in values:
            faults.append(f"{names_given.get(name, name)}: missing; {declared.doc}")
    _raise_for(faults)
    return settings_class(**values)


def _raise_for(faults: Any) -> None:
    listed = [str(each) for each in faults]
    if len(listed) == 1:
        raise InvalidArgument(f"invalid setting {listed[0]}")
    if listed:
        lines = "".join(f"\n  {each}" for each in listed)
        raise InvalidArgument(f"{len(listed)} invalid settings:{lines}")


def _unknown(name: str, known: Any) -> str:
    near = nearest_key(name, known)
    hint = f"; did you mean {near}?" if near else ""
    return f"{name}: there is no such setting{hint}"


def _shown(declared: Key, value: object) -> str:
    return "[hidden]" if declared.is_sensitive else repr(value)


def _native(declared: Key, value: object, *, is_seconds: bool) -> object:
    """The value in Kafka's unit and type; unusable ones as they are, for the check to name."""
    if declared.type is ConfigType.LIST:
        if isinstance(value, str):
            return declared.parse(value)
        return tuple(value) if isinstance(value, list | tuple | set | frozenset) else value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_seconds and declared.unit == "ms" and is_number):
        return value
    assert isinstance(value, int | float)
    if math.isnan(value):
        return value
    if math.isinf(value):
        return (1 << (63 if declared.type is ConfigType.LONG else 31)) - 1 if value > 0 else value
    milliseconds = round(value * 1000)
    return 1 if milliseconds == 0 and value > 0 else milliseconds


def _from_text(declared: Key, value: object) -> object:
    if not isinstance(value, str):
        return _native(declared, value, is_seconds=False)
    try:
        return declared.parse(value)
    except ValueError:
        return value


__all__ = [
    "ClientConfig",
    "ClientSettings",
    "keyword_names",
    "keyword_of",
    "object_setting",
    "object_settings",
    "settings_from_dotted",
    "settings_from_kwargs",
]


def shared_settings(declaring: type, given: Mapping[str, T]) -> dict[str, T]:
    """Of one client's settings, by Kafka's names, those that another kind of client has too."""
    known = {each.name for each in keys_of(declaring).values()}
    return {name: value for name, value in given.items() if name in known}


def shown(client: object, bootstrap: str | Iterable[str], **facts: object) -> str:
    """A client as its `repr`: its kind, its brokers, and what was given to tell it from others."""
    brokers = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
    given = "".join(f", {name}={value!r}" for name, value in facts.items() if value)
    return f"{type(client).__name__}({brokers!r}{given})"
