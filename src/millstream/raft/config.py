"""The settings of the quorum, under Kafka's names.

`RaftCore` takes `QuorumConfig`; `node` fills it from server.properties. The two lists that name
other nodes are kept as text here and read by `parse_voters` and `parse_servers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.config import Rule, any_value, at_least, each, key, validate
from millstream.errors import InvalidArgument
from millstream.raft.voters import (
    LOCAL_SUPPORTED_VERSIONS,
    Endpoint,
    ReplicaKey,
    Voter,
    VoterSet,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

_VOTER = re.compile(r"(?P<id>[0-9]+)@(?P<host>[^@\s]+):(?P<port>[0-9]+)", re.ASCII)
_INITIAL_VOTER = re.compile(
    r"(?P<id>[0-9]+)@(?P<host>[^@\s]+):(?P<port>[0-9]+):(?P<directory>[^:\s]+)", re.ASCII
)
_SERVER = re.compile(r"(?P<host>[^@\s]+):(?P<port>[0-9]+)", re.ASCII)
_PORT_MAX = 65_535

FETCH_BYTES_MAX = 1 << 20
"""How much of the log or of a snapshot one request asks for, unless told otherwise."""

FETCH_WAIT_MAX_MS = 500
"""How long a leader may hold a Fetch that has nothing to bring."""


def _is_voter(text: str) -> bool:
    match = _VOTER.fullmatch(text)
    return match is not None and int(match["port"]) <= _PORT_MAX


def _is_server(text: str) -> bool:
    match = _SERVER.fullmatch(text)
    return match is not None and int(match["port"]) <= _PORT_MAX


def _has_unique_ids(voters: Sequence[str]) -> bool:
    ids = [voter.partition("@")[0] for voter in voters]
    return len(ids) == len(set(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    """How the nodes of the metadata quorum find, wait for and give up on each other."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(("voters",), _has_unique_ids, "a list in which each id occurs once"),
    )

    voters: tuple[str, ...] = key(
        "controller.quorum.voters",
        (),
        each(_is_voter, "a list of id@host:port"),
        "The voters of a static quorum (kraft.version 0). Leave it empty for a dynamic quorum, "
        "whose voters are in the metadata log itself.",
    )
    bootstrap_servers: tuple[str, ...] = key(
        "controller.quorum.bootstrap.servers",
        (),
        each(_is_server, "a list of host:port"),
        "Where to ask for the leader as long as the voters are not known.",
    )
    election_timeout_ms: int = key(
        "controller.quorum.election.timeout.ms",
        1_000,
        at_least(1),
        "How long a voter waits for a leader to appear, or for votes to arrive, before it tries "
        "(again) to become one. Up to as much again is added at random.",
        unit="ms",
    )
    fetch_timeout_ms: int = key(
        "controller.quorum.fetch.timeout.ms",
        2_000,
        at_least(1),
        "How long a voter goes without a successful fetch before it asks for an election. A "
        "leader that hears from no majority for one and a half times as long resigns.",
        unit="ms",
    )
    election_backoff_max_ms: int = key(
        "controller.quorum.election.backoff.max.ms",
        1_000,
        at_least(1),
        "The longest pause after a lost election.",
        unit="ms",
    )
    request_timeout_ms: int = key(
        "controller.quorum.request.timeout.ms",
        2_000,
        at_least(1),
        "How long to wait for the answer to a request between voters.",
        unit="ms",
    )
    retry_backoff_ms: int = key(
        "controller.quorum.retry.backoff.ms",
        20,
        at_least(0),
        "How long to leave a node alone after a request to it failed.",
        unit="ms",
    )
    append_linger_ms: int = key(
        "controller.quorum.append.linger.ms",
        25,
        at_least(0),
        "At most one append to the log, with its flush, in this time: records that come sooner "
        "after the last one wait for company. The first after a pause never waits.",
        unit="ms",
    )
    auto_join_enable: bool = key(
        "controller.quorum.auto.join.enable",
        False,
        any_value(),
        "Whether a controller that is not a voter asks by itself to become one.",
    )

    fetch_max_bytes: int = key(
        "controller.quorum.fetch.max.bytes",
        FETCH_BYTES_MAX,
        at_least(1),
        "How much of the metadata log one fetch of another node asks for.",
        unit="bytes",
    )
    fetch_snapshot_max_bytes: int = key(
        "controller.quorum.fetch.snapshot.max.bytes",
        FETCH_BYTES_MAX,
        at_least(1),
        "How much of a snapshot of the metadata one fetch asks for.",
        unit="bytes",
    )

    def __post_init__(self) -> None:
        validate(self)

    @property
    def check_quorum_timeout_ms(self) -> int:
        """After how long without fetches from a majority a leader resigns."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_interval_ms(self) -> int:
        """How often a leader reminds voters that do not fetch."""
        return max(1, self.fetch_timeout_ms // 2)


def parse_voters(texts: Sequence[str], listener: str) -> VoterSet:
    """The voters of `controller.quorum.voters`, all reached on one listener."""
    voters = []
    for text in texts:
        match = _VOTER.fullmatch(text)
        assert match is not None, "QuorumConfig has checked it"
        endpoint = Endpoint(match["host"], int(match["port"]))
        voters.append(Voter(ReplicaKey(int(match["id"])), {listener: endpoint}))
    return VoterSet(voters)


def parse_initial_voters(text: str, listener: str) -> VoterSet:
    """The first voters of a dynamic quorum: `id@host:port:directory`, separated by commas."""
    voters = []
    for item in text.split(","):
        match = _INITIAL_VOTER.fullmatch(item.strip())
        if match is None or int(match["port"]) > _PORT_MAX:
            raise InvalidArgument(f"{item.strip()!r} must be ID@HOST:PORT:DIRECTORY_ID")
        try:
            directory_id = Uuid.parse(match["directory"])
        except ValueError as error:
            raise InvalidArgument(f"the directory id of {item.strip()!r} is {error}") from error
        endpoint = Endpoint(match["host"], int(match["port"]))
        key = ReplicaKey(int(match["id"]), directory_id)
        voters.append(Voter(key, {listener: endpoint}, LOCAL_SUPPORTED_VERSIONS))
    return VoterSet(voters)


def parse_servers(texts: Sequence[str]) -> tuple[Endpoint, ...]:
    """The addresses of `controller.quorum.bootstrap.servers`."""
    servers = []
    for text in texts:
        match = _SERVER.fullmatch(text)
        assert match is not None, "QuorumConfig has checked it"
        servers.append(Endpoint(match["host"], int(match["port"])))
    return tuple(servers)
