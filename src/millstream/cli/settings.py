"""Settings on the command line: reading `KEY=VALUE`, asking and changing them on a cluster.

`configs` and `topics` use it. A refused key is answered with the nearest one that is known.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.cli.faults import CommandFailed, UsageFault, nearest
from millstream.errors import InvalidConfig, error_for_code
from millstream.protocol.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.protocol.messages.describe_configs import DescribeConfigsResource
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.cli.message_session import BrokerConnection, Session
    from millstream.protocol.messages.describe_configs import DescribeConfigsResourceResult


class ResourceType(IntEnum):
    """What a setting is set on, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4


class Resource(NamedTuple):
    """A topic, a broker, or with an empty name the default of all brokers."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        if self.kind is ResourceType.BROKER and not self.name:
            return "the cluster's default for brokers"
        return f"{self.kind.name.lower()} {self.name}"


class Operation(IntEnum):
    """What becomes of a setting, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One setting to change."""

    key: str
    operation: Operation
    value: str | None


SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "server.properties",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
"""Where a value comes from, by Kafka's numbers."""
DEFAULT_SOURCE: Final = 5
STATIC_SOURCE: Final = 4

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


def describe(session: Session, resource: Resource) -> list[DescribeConfigsResourceResult]:
    """All settings of a resource, by key."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource.kind, resource_name=resource.name, configuration_keys=None
            )
        ],
        include_synonyms=True,
    )
    answer = _connection(session, resource)
    response = (
        session.call(request, DescribeConfigsResponse)
        if answer is None
        else answer.call(request, DescribeConfigsResponse, session.timeout_ms)
    )
    result = response.results[0]
    if result.error_code:
        raise error_for_code(result.error_code, result.error_message)
    return sorted(result.configs, key=lambda each: each.name)


def alter(session: Session, resource: Resource, changes: Sequence[Change]) -> None:
    """Change settings, all of them or none."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.kind,
                resource_name=resource.name,
                configs=[
                    AlterableConfig(
                        name=each.key, config_operation=each.operation, value=each.value
                    )
                    for each in changes
                ],
            )
        ]
    )
    answer = _connection(session, resource)
    response = (
        session.call(request, IncrementalAlterConfigsResponse)
        if answer is None
        else answer.call(request, IncrementalAlterConfigsResponse, session.timeout_ms)
    )
    result = response.responses[0]
    if result.error_code:
        error = error_for_code(result.error_code, result.error_message)
        if isinstance(error, InvalidConfig):
            explain_refusal(error, (each.key for each in changes), resource.kind)
        raise error


def explain_refusal(error: InvalidConfig, keys: Iterable[str], kind: ResourceType) -> None:
    """Raise with the nearest known key if a key is the reason; else return."""
    known = known_keys(kind)
    for key in keys:
        if key not in known and (hint := nearest(key, known)):
            raise CommandFailed(f"there is no setting {key!r}{hint}") from error


def unknown_key(key: str, resource: Resource) -> str | None:
    """What to say about a key that Millstream does not know; None if it does."""
    known = known_keys(resource.kind)
    if key in known:
        return None
    return f"{key} is set, but no setting of Millstream is called so{nearest(key, known)}"


def known_keys(kind: ResourceType) -> frozenset[str]:
    """The keys that Millstream knows for a kind of resource."""
    if kind is ResourceType.TOPIC:
        from millstream.config import keys_of
        from millstream.storage.config import LogConfig

        return frozenset(each.name for each in keys_of(LogConfig).values())
    from millstream.node.config import known_keys as node_keys

    return frozenset(node_keys())


def _connection(session: Session, resource: Resource) -> BrokerConnection | None:
    """A broker answers for itself only; everything else any broker knows."""
    if resource.kind is not ResourceType.BROKER or not resource.name:
        return None
    view = session.refresh()
    node_id = int(resource.name)
    if node_id not in view.brokers:
        listed = ", ".join(str(each) for each in sorted(view.brokers))
        raise CommandFailed(f"there is no broker {node_id}; the cluster has {listed}")
    return session.broker(node_id)
