"""The requests: every API that both sides serve, in every version, with values of several kinds.

They are made from the schema, so a new field or version is asked about without anybody thinking of
it. They say the same in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from millstream.protocol.api import ApiKey
from millstream.protocol.layout import fields_of, struct_class
from millstream.types import Uuid
from tests.differential.cluster import BATCH, DOOMED, GROUP, TOPIC, TRANSACTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.protocol.message import Message, Struct
    from millstream.protocol.notation import Field

UNKNOWN_ID: Final = Uuid(bytes(range(16)))
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 17, "uint32": 33}

NOT_ASKED: Final[Mapping[ApiKey, str]] = {
    ApiKey.API_VERSIONS: "the lists differ by what is built; docs/reference/apis.md has ours",
    ApiKey.PRODUCE: "its records and their offsets have tests/interop/test_produce_errors.py",
    ApiKey.WRITE_TXN_MARKERS: "only brokers send it",
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "only brokers send it",
    ApiKey.READ_SHARE_GROUP_STATE: "only brokers send it",
    ApiKey.WRITE_SHARE_GROUP_STATE: "only brokers send it",
    ApiKey.DELETE_SHARE_GROUP_STATE: "only brokers send it",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "only brokers send it",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "names directories of the machine",
    ApiKey.DESCRIBE_LOG_DIRS: "lists directories of the machine",
    ApiKey.UPDATE_FEATURES: "changes the cluster for good",
    ApiKey.UNREGISTER_BROKER: "Apache Kafka unregisters the broker that is asked; we refuse",
    ApiKey.DESCRIBE_QUORUM: "offsets and times of the metadata log",
    ApiKey.ALTER_CLIENT_QUOTAS: "not served by us yet",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "not served by us yet",
    ApiKey.ADD_RAFT_VOTER: "not served by us yet",
    ApiKey.REMOVE_RAFT_VOTER: "not served by us yet",
    ApiKey.STREAMS_GROUP_HEARTBEAT: "not served by us yet",
    ApiKey.STREAMS_GROUP_DESCRIBE: "not served by us yet",
}
"""APIs that are left out, and why."""

UNANSWERED: Final = frozenset(
    {
        "AddPartitionsToTxn v4 defaults",
        "AddPartitionsToTxn v5 defaults",
        "AlterConfigs v0 twice",
        "AlterConfigs v1 twice",
        "AlterConfigs v2 twice",
        "DescribeShareGroupOffsets v0 twice",
        "DescribeShareGroupOffsets v1 known",
        "DescribeShareGroupOffsets v1 twice",
    }
)
"""Requests that Apache Kafka 4.3.1 never answers."""

_OWN_GROUP: Final = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    }
)
"""Requests that change a group: each has one of its own, lest the next waits for its members."""

_CALM: Final[Mapping[str, Any]] = {
    "max_wait_ms": 0,
    "timeout_ms": 1000,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "transaction_timeout_ms": 60_000,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "replica_id": -1,
    "current_leader_epoch": -1,
    "protocol_type": "consumer",
    "validate_only": True,
}
"""Fields by which a request would wait, or become one of a follower; the same in every kind."""


class Case(NamedTuple):
    """One request in one version."""

    api: ApiKey
    version: int
    kind: str
    request: Message

    @property
    def name(self) -> str:
        """What it is called in the records."""
        return f"{self.api.api_name} v{self.version} {self.kind}"


class Kind(NamedTuple):
    """How the fields of a request are filled."""

    name: str
    items: int
    """How many items each list has, all alike."""
    fill: Callable[[Field, int], Any] | None
    """The value of a field in a version; without it, all fields keep their defaults."""


def all_cases(served: Mapping[ApiKey, tuple[int, int]]) -> Iterator[Case]:
    """Every request, in a fixed order, for APIs with their lowest and highest versions."""
    for api in sorted(served):
        if api in NOT_ASKED:
            continue
        for version in range(served[api][0], served[api][1] + 1):
            for kind in KINDS:
                case = Case(api, version, kind.name, _request(api, version, kind))
                if case.name not in UNANSWERED:
                    yield case


def _request(api: ApiKey, version: int, kind: Kind) -> Message:
    request = api.request()
    if kind.fill is not None:
        _fill(request, version, kind)
    _calm(request, version)
    if api in _OWN_GROUP and getattr(request, "group_id", None) == GROUP:
        request.group_id = f"{api.api_name}-{version}-{kind.name}"  # type: ignore[attr-defined]
    if api is ApiKey.DELETE_TOPICS:
        _rename_topics(request)
    return request


def _fill(struct: Struct, version: int, kind: Kind) -> None:
    cls = type(struct)
    for field in fields_of(cls):
        if not field.versions.covers(version):
            continue
        if field.is_struct:
            items = []
            for _ in range(kind.items):
                item = struct_class(cls, field.type)()
                _fill(item, version, kind)
                items.append(item)
            setattr(struct, field.name, items if field.is_array else items[0])
        else:
            assert kind.fill is not None
            value = kind.fill(field, version)
            many = [value] * kind.items
            setattr(struct, field.name, many if field.is_array and value is not None else value)


def _calm(struct: Struct, version: int) -> None:
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        if field.name in _CALM and field.versions.covers(version):
            setattr(struct, field.name, _CALM[field.name])
        for each in value if isinstance(value, list) else [value]:
            if field.is_struct and each is not None:
                _calm(each, version)


def _rename_topics(request: Any) -> None:
    """Deletions meet a topic that nothing else is asked about."""
    request.topic_names = [DOOMED if name == TOPIC else name for name in request.topic_names]
    for each in request.topics:
        each.name = DOOMED if each.name == TOPIC else each.name


# The kinds.


def _known(field: Field, version: int) -> Any:
    """Names that exist, zeros."""
    by_entity = {
        "topic_name": TOPIC,
        "group_id": GROUP,
        "transactional_id": TRANSACTION,
        "broker_id": 1,
        "producer_id": 0,
    }
    if field.entity in by_entity:
        return by_entity[field.entity]
    return _plain(field, "name", 0, is_set=False)


def _asking(field: Field, version: int) -> Any:
    """Names that exist, and all that can be told about them."""
    return True if field.type == "bool" else _known(field, version)


def _unknown(field: Field, version: int) -> Any:
    """Names that do not exist, ones."""
    if field.type == "uuid":
        return UNKNOWN_ID
    return _plain(field, "nobody", 1, is_set=True)


def _low(field: Field, version: int) -> Any:
    """Nothing where that can be, else what is least."""
    if field.nullable.covers(version):
        return None
    return _plain(field, "", _limit(field, -1), is_set=False)


def _high(field: Field, version: int) -> Any:
    """What is most, and names that nothing can have."""
    return _plain(field, "no/name" * 40, _limit(field, 1) - 1, is_set=True)


def _limit(field: Field, sign: int) -> int:
    if sign < 0 and field.type.startswith("u"):
        return 0
    return sign * (1 << (_BITS.get(field.type, 8) - 1))


def _plain(field: Field, text: str, number: int, *, is_set: bool) -> Any:
    match field.type:
        case "string":
            return text
        case "bool":
            return is_set
        case "bytes":
            return text.encode()
        case "records":
            return BATCH
        case "uuid":
            return Uuid.ZERO
        case "float64":
            return float(number)
        case _:
            return number


KINDS: Final = (
    Kind("defaults", 0, None),
    Kind("known", 1, _known),
    Kind("asking", 1, _asking),
    Kind("twice", 2, _known),
    Kind("unknown", 1, _unknown),
    Kind("low", 1, _low),
    Kind("high", 1, _high),
)
