"""Settings on the command line: reading `KEY=VALUE`, asking and changing them on a cluster.

`configs` and `topics` use it. A refused key is answered with the nearest one that is known.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.cli.faults import CommandFailed, UsageFault, nearest
from millstream.client.admin.configs import Append, ConfigResource, Subtract
from millstream.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.cli.session import Session
    from millstream.client.admin.configs import ConfigChange, ConfigEntry


class ResourceType(Enum):
    """What a setting is set on."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    CLIENT_METRICS = "client_metrics"
    BROKER_LOGGER = "broker_logger"


class Resource(NamedTuple):
    """What has settings; a broker with an empty name is the default of all brokers."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        if self.kind is ResourceType.BROKER and not self.name:
            return "the cluster's default for brokers"
        if self.kind is ResourceType.BROKER_LOGGER:
            return f"the loggers of broker {self.name}"
        return f"{self.kind.value.replace('_', ' ')} {self.name}"

    def of_library(self) -> ConfigResource:
        """As the client library has it."""
        return ConfigResource(self.kind.value, self.name)


class Operation(Enum):
    """What becomes of a setting."""

    SET = "set"
    DELETE = "delete"
    APPEND = "append"
    SUBTRACT = "subtract"


class Change(NamedTuple):
    """One setting to change."""

    key: str
    operation: Operation
    value: str | None

    def of_library(self) -> ConfigChange:
        """As the client library has it."""
        match self.operation:
            case Operation.APPEND:
                return Append((self.value or "",))
            case Operation.SUBTRACT:
                return Subtract((self.value or "",))
            case _:
                return self.value


SOURCES: Final = {
    "static": "server.properties",
    "broker_logger": "logger",
    "client_metrics": "client metrics",
}
"""Where a value comes from, where we have another word for it than the library."""
DEFAULT_SOURCE: Final = "default"
STATIC_SOURCE: Final = "static"

_OPERATIONS: Final = {"+": Operation.APPEND, "-": Operation.SUBTRACT}


def parse_change(text: str) -> Change:
    """Read `key=value`, `key+=value` (add to a list) or `key-=value` (take from a list)."""
    key, equals, value = text.partition("=")
    operation = _OPERATIONS.get(key[-1:], Operation.SET)
    if operation is not Operation.SET:
        key = key[:-1]
    if not equals or not key.strip():
        raise UsageFault(f"{text!r}: write a setting as key=value")
    return Change(key.strip(), operation, value)


def parse_pairs(texts: Iterable[str] | None) -> dict[str, str]:
    """Read `key=value` for something new, where there is nothing to add to."""
    changes = [parse_change(text) for text in texts or ()]
    for each in changes:
        if each.operation is not Operation.SET:
            raise UsageFault(f"{each.key}: there is nothing to add to yet; write key=value")
    return {each.key: each.value or "" for each in changes}


def describe(session: Session, resource: Resource) -> list[ConfigEntry]:
    """All settings of a resource, by key."""
    _require_broker(session, resource)
    wanted = resource.of_library()
    found = session.admin.describe_configs([wanted])[wanted]
    return [found[name] for name in sorted(found)]


def alter(session: Session, resource: Resource, changes: Sequence[Change]) -> None:
    """Change settings, all of them or none."""
    _require_broker(session, resource)
    wanted = {resource.of_library(): {each.key: each.of_library() for each in changes}}
    try:
        session.admin.incremental_alter_configs(wanted).raise_first()
    except InvalidConfig as error:
        explain_refusal(error, (each.key for each in changes), resource.kind)
        raise


def explain_refusal(error: InvalidConfig, keys: Iterable[str], kind: ResourceType) -> None:
    """Raise with the nearest known key if a key is the reason; else return."""
    known = known_keys(kind)
    for key in keys:
        if key not in known and (hint := nearest(key, known)):
            raise CommandFailed(f"there is no setting {key!r}{hint}") from error


def unknown_key(key: str, resource: Resource) -> str | None:
    """What to say about a key that Millstream does not know; None if it does."""
    from millstream.network.server.listener_limits import limited_listener

    known = known_keys(resource.kind)
    if key in known or resource.kind is ResourceType.BROKER_LOGGER:
        return None
    if resource.kind is ResourceType.BROKER and limited_listener(key):
        return None
    return f"{key} is set, but no setting of Millstream is called so{nearest(key, known)}"


def known_keys(kind: ResourceType) -> frozenset[str]:
    """The keys that Millstream knows for a kind of resource."""
    from millstream.config import keys_of

    match kind:
        case ResourceType.TOPIC:
            from millstream.storage.log.config import LogConfig

            return frozenset(each.name for each in keys_of(LogConfig).values())
        case ResourceType.GROUP:
            from millstream.controller.config_schema import GroupConfig

            return frozenset(each.name for each in keys_of(GroupConfig).values())
        case ResourceType.CLIENT_METRICS:
            from millstream.controller.config_schema import ClientMetricsConfig

            return frozenset(each.name for each in keys_of(ClientMetricsConfig).values())
        case ResourceType.BROKER_LOGGER:
            return frozenset()
    from millstream.node.config import known_keys as node_keys

    return frozenset(node_keys())


def _require_broker(session: Session, resource: Resource) -> None:
    """A broker answers for itself only: it has to be there."""
    if resource.kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name:
        brokers = session.brokers()
        if int(resource.name) not in brokers:
            listed = ", ".join(str(each) for each in sorted(brokers))
            raise CommandFailed(f"there is no broker {resource.name}; the cluster has {listed}")
