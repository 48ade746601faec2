"""What a replica has decided. The driver performs these in the order in which they come.

The order is the contract: a vote is persisted before it is sent, records are in the log before
anybody is answered about them. A value here never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import TypeAlias

    from millstream.errors import ApiError
    from millstream.protocol.message import Message
    from millstream.protocol.messages import FetchResponse, FetchSnapshotResponse
    from millstream.raft.voters import Endpoint, ReplicaKey
    from millstream.types import OffsetAndEpoch, ReadableBuffer

    Token: TypeAlias = Hashable
    """Whatever the driver needs to find the asker again."""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What a replica must never forget: its epoch, whom it voted for, who won."""

    epoch: int = 0
    leader_id: int | None = None
    voted_key: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """A node to send to. Addresses of unknown nodes have negative ids, one each."""

    id: int
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class PersistElection:
    """Put the election state on disk, now: what follows relies on it."""

    election: ElectionState
    kraft_version: int
    voter_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """Put these batches, with the offsets and epochs they have, at the end of the log."""

    batches: ReadableBuffer
    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Drop the records at this offset and above."""

    offset: int


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Make all that is appended durable and report `LogFlushed`, now or later."""

    flush_id: int


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything below is committed: let the state machine apply it."""

    offset: int


@dataclass(frozen=True, slots=True)
class ChangeLeadership:
    """Tell the controller who leads. If it is this node, all older records are committed."""

    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send to another node and report the answer, or that there will be none."""

    request_id: int
    peer: Peer
    message: Message


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer a request."""

    token: Token
    message: Message


@dataclass(frozen=True, slots=True)
class RespondWithRecords:
    """Answer a fetch, with as much of the log as fits put into the answer's only partition."""

    token: Token
    message: FetchResponse
    offset: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class RespondWithSnapshot:
    """Answer a snapshot fetch, with a piece of the snapshot put into the only partition."""

    token: Token
    message: FetchSnapshotResponse
    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Add bytes from the leader to a snapshot that is not complete; position 0 begins anew."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: ReadableBuffer


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Complete the snapshot, put it in the place of the whole log, report `SnapshotInstalled`."""

    snapshot_id: OffsetAndEpoch
    size: int


@dataclass(frozen=True, slots=True)
class DeleteBefore:
    """Delete the records and snapshots that this snapshot makes superfluous."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class AcceptSubmission:
    """The submitted records have these offsets. They are not committed yet."""

    token: Token
    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class RefuseSubmission:
    """The submitted records are not in the log and will not be."""

    token: Token
    error: ApiError


@dataclass(frozen=True, slots=True)
class CompleteShutdown:
    """There is nothing left to hand over: the node may stop."""


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell the operator of something that should not happen."""

    text: str


Effect = (
    PersistElection
    | AppendToLog
    | TruncateLog
    | FlushLog
    | AdvanceHighWatermark
    | ChangeLeadership
    | SendRequest
    | Respond
    | RespondWithRecords
    | RespondWithSnapshot
    | WriteSnapshotChunk
    | InstallSnapshot
    | DeleteBefore
    | AcceptSubmission
    | RefuseSubmission
    | CompleteShutdown
    | Warn
)
