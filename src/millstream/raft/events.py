"""What can happen to a replica. `RaftCore.step` takes one of these and the time.

The driver makes them; a value here never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.message import Message
    from millstream.raft.effects import Token
    from millstream.raft.voters import VoterSet
    from millstream.types import OffsetAndEpoch, ReadableBuffer


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline of `RaftCore.next_deadline_ms` has come."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """Another node asks. `token` comes back with the answer."""

    token: Token
    message: Message
    version: int
    listener: str
    """On which listener it came: the answer names endpoints of that listener."""


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The answer to a `SendRequest`."""

    request_id: int
    message: Message


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A `SendRequest` will have no answer: no connection, or it broke."""

    request_id: int


@dataclass(frozen=True, slots=True)
class LogFlushed:
    """A `FlushLog` is done."""

    flush_id: int


@dataclass(frozen=True, slots=True)
class Submit:
    """The local controller wants these records, in one batch, in this epoch or not at all."""

    token: Token
    epoch: int
    records: Sequence[ReadableBuffer]


@dataclass(frozen=True, slots=True)
class SnapshotCreated:
    """The local state machine has written a snapshot; it is complete and on disk."""

    snapshot_id: OffsetAndEpoch
    size: int


@dataclass(frozen=True, slots=True)
class PruneLog:
    """The log's owner wants no more than this snapshot and what follows it."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """An `InstallSnapshot` is done. What the snapshot says about the quorum comes along."""

    snapshot_id: OffsetAndEpoch
    size: int
    kraft_version: int
    voters: VoterSet | None
    """None where the snapshot has no voters: they are static."""


@dataclass(frozen=True, slots=True)
class UpgradeKRaftVersion:
    """The controller wants another kraft.version; answered like a submission."""

    token: Token
    epoch: int
    version: int
    validates_only: bool = False
    """Whether to say what would happen, and change nothing."""


@dataclass(frozen=True, slots=True)
class Resign:
    """The local controller cannot lead on; an old epoch makes it void."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The node stops: hand over leadership first, but not for longer than this."""

    timeout_ms: int


Event = (
    Tick
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | LogFlushed
    | Submit
    | SnapshotCreated
    | PruneLog
    | SnapshotInstalled
    | UpgradeKRaftVersion
    | Resign
    | ShutDown
)
