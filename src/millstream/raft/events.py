"""What can happen to a replica. `RaftCore.step` takes one of these and the time.

The driver makes them; a value here never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.message import Message
    from millstream.raft.effects import Token
    from millstream.raft.voters import VoterSet
    from millstream.types import OffsetAndEpoch, ReadableBuffer


class Tick(NamedTuple):
    """The deadline of `RaftCore.next_deadline_ms` has come."""


class RequestReceived(NamedTuple):
    """Another node asks. `token` comes back with the answer."""

    token: Token
    message: Message
    version: int
    listener: str
    """On which listener it came: the answer names endpoints of that listener."""


class ResponseReceived(NamedTuple):
    """The answer to a `SendRequest`."""

    request_id: int
    message: Message


class RequestFailed(NamedTuple):
    """A `SendRequest` will have no answer: no connection, or it broke."""

    request_id: int


class LogFlushed(NamedTuple):
    """A `FlushLog` is done."""

    flush_id: int


class Submit(NamedTuple):
    """The local controller wants these records, in one batch, in this epoch or not at all."""

    token: Token
    epoch: int
    records: Sequence[ReadableBuffer]


class SnapshotCreated(NamedTuple):
    """The local state machine has written a snapshot; it is complete and on disk."""

    snapshot_id: OffsetAndEpoch
    size: int


class PruneLog(NamedTuple):
    """The log's owner wants no more than this snapshot and what follows it."""

    snapshot_id: OffsetAndEpoch


class SnapshotInstalled(NamedTuple):
    """An `InstallSnapshot` is done. What the snapshot says about the quorum comes along."""

    snapshot_id: OffsetAndEpoch
    size: int
    kraft_version: int
    voters: VoterSet | None
    """None where the snapshot has no voters: they are static."""


class UpgradeKRaftVersion(NamedTuple):
    """The controller wants another kraft.version; answered like a submission."""

    token: Token
    epoch: int
    version: int
    validates_only: bool = False
    """Whether to say what would happen, and change nothing."""


class Resign(NamedTuple):
    """The local controller cannot lead on; an old epoch makes it void."""

    epoch: int


class ShutDown(NamedTuple):
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
