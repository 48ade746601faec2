"""What raft needs from the rest of the house. `metadata` and `node` bring the answers.

A log, a file for the election state, a way to other nodes, an alarm clock, and somebody who cares
what was decided. Nothing here does anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from millstream.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.protocol.message import Message
    from millstream.raft.effects import ElectionState, Peer
    from millstream.types import OffsetAndEpoch, ReadableBuffer


class LogStalled(KafkaStorageError):
    """There is no room, or no descriptor: the same call may be made again, and may then work.

    `append`, `write_snapshot`, `flush` and `QuorumStateStore.write` may raise it. Whatever else
    comes out of a log or a store ends the replica.
    """


class ReplicatedLog(Protocol):
    """The metadata log: batches by offset, and snapshots that stand for a prefix of it.

    Offsets and epochs are set by the leader's core; a log stores batches as they are, on a leader
    and on a follower alike.
    """

    @property
    def start_offset(self) -> int:
        """The first offset that is still there."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        ...

    def epochs(self) -> Iterable[tuple[int, int]]:
        """(epoch, its first offset), ascending, none below `start_offset`."""
        ...

    def append(self, batches: ReadableBuffer) -> None:
        """Add whole batches whose first offset is `end_offset`. They need not be durable yet.

        Those that an attempt which stalled has added already are left out.
        """
        ...

    def read(self, offset: int, bytes_max: int) -> ReadableBuffer:
        """Whole batches from the one that holds `offset` on; one at least, if there is one.

        Uncommitted and unflushed records are read too: the asker is a replica.
        """
        ...

    def truncate_to(self, offset: int) -> None:
        """Drop the records at `offset` and above; durable before the next append is."""
        ...

    def flush(self, done: Callable[[], None], stalled: Callable[[LogStalled], None]) -> None:
        """Make everything appended so far durable, then call `done`; `stalled` if it has to wait.

        Now or later, but on the driver's thread; a later flush covers what an earlier one did.
        """
        ...

    def set_high_watermark(self, offset: int) -> None:
        """Records below are committed: consumers of the log may see them."""
        ...

    def snapshots(self) -> Iterable[tuple[OffsetAndEpoch, int]]:
        """The complete snapshots with their sizes in bytes."""
        ...

    def read_snapshot(
        self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int
    ) -> ReadableBuffer:
        """A piece of a complete snapshot; empty at its end."""
        ...

    def write_snapshot(
        self, snapshot_id: OffsetAndEpoch, position: int, data: ReadableBuffer
    ) -> None:
        """Add to a snapshot under way; at position 0 throw away what an earlier attempt left."""
        ...

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Make a snapshot under way complete and durable, and the log empty, starting at its end.

        The records and the older snapshots go.
        """
        ...

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Delete older snapshots and the records below this one; some may stay for a while."""
        ...


class QuorumStateStore(Protocol):
    """The `quorum-state` file."""

    def read(self) -> ElectionState | None:
        """What was written last; None before the first time."""
        ...

    def write(
        self, election: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]
    ) -> None:
        """Replace it; durable on return."""
        ...


class NetworkChannel(Protocol):
    """Requests to other nodes. An answer or a failure is reported to the driver, or nothing is."""

    def send(self, request_id: int, peer: Peer, message: Message) -> None:
        """Send in the newest version both sides know; never wait.

        Where the other side knows no version that can carry the message, answer in its name with
        UNSUPPORTED_VERSION.
        """
        ...


class Alarm(Protocol):
    """Wakes the driver."""

    def set(self, deadline_ms: int | None) -> None:
        """Call `RaftDriver.tick` at this time of the monotonic clock; the last call counts."""
        ...


class RaftListener(Protocol):
    """The state machine on top: the controller, or a broker's metadata loader.

    Before the driver starts it has loaded the newest snapshot of the log, if there is one. It is
    told between the driver's steps, in order, and may call the driver while it is told.
    """

    def committed(self, high_watermark: int) -> None:
        """The log may be read up to here."""
        ...

    def snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log starts at this snapshot now: load it before anything else."""
        ...

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        """Who leads now. This node is told of its own leadership when it may write."""
        ...

    def stalled(self) -> None:
        """Nothing is committed until the log can be written again: callers may be told."""
        ...

    def shutdown_completed(self) -> None:
        """Leadership is handed over, or was not ours, or the time is up."""
        ...
