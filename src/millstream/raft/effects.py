"""What a replica has decided. The driver performs these in the order in which they come.

The order is the contract: a vote is persisted before it is sent, records are in the log before
anybody is answered about them. A value here never changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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


class ElectionState(NamedTuple):
    """What a replica must never forget: its epoch, whom it voted for, who won."""

    epoch: int = 0
    leader_id: int | None = None
    voted_key: ReplicaKey | None = None


class Peer(NamedTuple):
    """A node to send to. Addresses of unknown nodes have negative ids, one each."""

    id: int
    endpoint: Endpoint


class PersistElection(NamedTuple):
    """Put the election state on disk, now: what follows relies on it."""

    election: ElectionState
    kraft_version: int
    voter_ids: tuple[int, ...]


class AppendToLog(NamedTuple):
    """Put these batches, with the offsets and epochs they have, at the end of the log."""

    batches: ReadableBuffer
    base_offset: int
    end_offset: int


class TruncateLog(NamedTuple):
    """Drop the records at this offset and above."""

    offset: int


class FlushLog(NamedTuple):
    """Make all that is appended durable and report `LogFlushed`, now or later."""

    flush_id: int


class AdvanceHighWatermark(NamedTuple):
    """Everything below is committed: let the state machine apply it."""

    offset: int


class ChangeLeadership(NamedTuple):
    """Tell the controller who leads. If it is this node, all older records are committed."""

    leader_id: int | None
    epoch: int


class SendRequest(NamedTuple):
    """Send to another node and report the answer, or that there will be none."""

    request_id: int
    peer: Peer
    message: Message


class Respond(NamedTuple):
    """Answer a request."""

    token: Token
    message: Message


class RespondWithRecords(NamedTuple):
    """Answer a fetch, with as much of the log as fits put into the answer's only partition."""

    token: Token
    message: FetchResponse
    offset: int
    bytes_max: int


class RespondWithSnapshot(NamedTuple):
    """Answer a snapshot fetch, with a piece of the snapshot put into the only partition."""

    token: Token
    message: FetchSnapshotResponse
    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int


class WriteSnapshotChunk(NamedTuple):
    """Add bytes from the leader to a snapshot that is not complete; position 0 begins anew."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: ReadableBuffer


class InstallSnapshot(NamedTuple):
    """Complete the snapshot, put it in the place of the whole log, report `SnapshotInstalled`."""

    snapshot_id: OffsetAndEpoch
    size: int


class DeleteBefore(NamedTuple):
    """Delete the records and snapshots that this snapshot makes superfluous."""

    snapshot_id: OffsetAndEpoch


class AcceptSubmission(NamedTuple):
    """The submitted records have these offsets. They are not committed yet."""

    token: Token
    base_offset: int
    end_offset: int


class RefuseSubmission(NamedTuple):
    """The submitted records are not in the log and will not be."""

    token: Token
    error: ApiError


class CompleteShutdown(NamedTuple):
    """There is nothing left to hand over: the node may stop."""


class Warn(NamedTuple):
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
