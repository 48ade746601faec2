"""What a follower does: fetch, append, cut what diverges, and look for a leader when it has none.

Rule 6 of KRaft, the follower's side; observers do the same and only never stand for election.
A fetch is an acknowledgement, so it is not sent before everything appended is on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import NO_ERROR, CorruptMessage, InconsistentClusterId, QuorumFault
from millstream.protocol.messages import FetchRequest, FetchResponse
from millstream.raft import batches, checks, wire_requests
from millstream.raft.effects import AdvanceHighWatermark, AppendToLog, TruncateLog, Warn
from millstream.raft.states import Follower, SnapshotDownload, Unattached
from millstream.types import OffsetAndEpoch

if TYPE_CHECKING:
    from millstream.protocol.message import Message
    from millstream.protocol.messages.fetch import PartitionData
    from millstream.raft.connections import InFlight
    from millstream.raft.membership import Membership
    from millstream.raft.replica import Replica
    from millstream.records.batch import RecordBatch
    from millstream.types import ReadableBuffer


class Following:
    """The rules of following, for one replica."""

    __slots__ = ("_membership", "_replica")

    def __init__(self, replica: Replica, membership: Membership) -> None:
        self._replica = replica
        self._membership = membership

    # --- What is due ---

    def act(self, state: Follower | Unattached) -> bool:
        """Do what the time demands; True if the role has changed."""
        replica = self._replica
        if isinstance(state, Unattached):
            self._discover()
            return False
        if replica.may_stand and replica.now_ms >= state.fetch_deadline_ms:
            replica.become_prospective()
            return True
        leader = replica.leader_peer(state)
        if replica.connections.is_paused(leader.id, replica.now_ms):
            self._discover()
        elif replica.connections.is_ready(leader.id, replica.now_ms):
            message = self._membership.request_when_due(state) or self._next_request(state)
            if message is not None:
                replica.send(leader, message)
        return False

    def _next_request(self, state: Follower) -> Message | None:
        replica = self._replica
        download = state.download
        if download is None:
            return self._fetch_request() if self._may_fetch() else None
        if download.is_complete:
            return None
        return wire_requests.fetch_snapshot_request(
            replica.local,
            state.epoch,
            download.snapshot_id,
            download.position,
            replica.config.fetch_snapshot_max_bytes,
        )

    def _may_fetch(self) -> bool:
        """A fetch says how far the log goes. Of a controller, which may vote, that must be true
        after a crash too; a broker that only looks on would fetch again what it lost."""
        replica = self._replica
        outline = replica.outline
        may_lose = not replica.local.is_controller and not replica.is_voter
        is_flushed = may_lose or outline.flushed_offset == outline.end_offset
        return is_flushed and not replica.connections.is_waiting_for(FetchRequest)

    def _fetch_request(self) -> FetchRequest:
        replica = self._replica
        return wire_requests.fetch_request(
            replica.local,
            replica.epoch,
            replica.outline.end,
            replica.outline.high_watermark,
            replica.config.fetch_max_bytes,
        )

    def _discover(self) -> None:
        """Fetch from anybody: a replica that does not lead says who does."""
        replica = self._replica
        if not self._may_fetch():
            return
        peers = replica.discovery_peers()
        peer = replica.connections.choose_ready(peers, replica.now_ms, replica.random)
        if peer is not None:
            replica.send(peer, self._fetch_request())

    def deadline_ms(self, state: Follower) -> int | None:
        """When the time will demand something."""
        deadlines = [state.fetch_deadline_ms] if self._replica.may_stand else []
        leader = self._replica.leader_peer(state)
        is_ready = self._replica.connections.is_ready(leader.id, self._replica.now_ms)
        if is_ready and self._membership.has_requests(state):
            deadlines.append(state.update_voter_due_ms)
        return min(deadlines, default=None)

    # --- Answers ---

    def handle_fetch_response(self, sent: InFlight, response: FetchResponse) -> None:
        """The leader has answered, or somebody who knows who leads."""
        replica = self._replica
        if response.error_code != NO_ERROR:
            if response.error_code == InconsistentClusterId.code:
                replica.emit(
                    Warn(
                        f"{sent.peer.endpoint} belongs to another cluster than this node, which is "
                        f"of {replica.local.cluster_id}: check the addresses of the quorum, or "
                        "whether the node was formatted with the right --cluster-id"
                    )
                )
            replica.connections.pause(sent.peer.id, replica.now_ms)
            return
        partition = checks.only(checks.only(response.responses).partitions)
        told = partition.current_leader
        leader_id, epoch = (-1, -1) if told is None else (told.leader_id, told.leader_epoch)
        leader = checks.told_leader(leader_id, epoch, response.node_endpoints)
        if not checks.absorb(replica, sent, partition.error_code, leader):
            return
        state = replica.state
        assert isinstance(sent.message, FetchRequest)
        asked = sent.message.topics[0].partitions[0]
        if (
            isinstance(state, Follower)
            and leader.leader_id == state.leader_id
            and asked.fetch_offset == replica.outline.end_offset
            and state.download is None
        ):
            self._take(state, partition)

    def _take(self, state: Follower, partition: PartitionData) -> None:
        diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
        if diverging is not None and diverging.epoch >= 0 and diverging.end_offset >= 0:
            self._truncate(OffsetAndEpoch(diverging.epoch, diverging.end_offset))
        elif snapshot is not None and snapshot.epoch >= 0 and snapshot.end_offset >= 0:
            state.download = SnapshotDownload(OffsetAndEpoch(snapshot.epoch, snapshot.end_offset))
        elif self._append(state, partition.records or b""):
            self._advance_high_watermark(partition.high_watermark)
        else:
            return
        state.has_fetched = True
        state.fetch_deadline_ms = self._replica.now_ms + self._replica.config.fetch_timeout_ms

    def _truncate(self, leader_end: OffsetAndEpoch) -> None:
        replica = self._replica
        outline = replica.outline
        offset = outline.truncation_offset(leader_end)
        if not outline.high_watermark <= offset < outline.end_offset:
            raise QuorumFault(
                f"the leader of epoch {replica.epoch} has {leader_end}; our log ends at "
                f"{outline.end} and is committed up to {outline.high_watermark}: records that "
                "were committed are missing on the leader, or it contradicts itself"
            )
        outline.truncate_to(offset)
        replica.history.truncate_to(offset)
        replica.forget_flush()
        replica.emit(TruncateLog(offset))
        replica.flush()

    def _append(self, state: Follower, records: ReadableBuffer) -> bool:
        """Append the batches up to the first that does not fit; False if there is such a one."""
        replica = self._replica
        outline = replica.outline
        base_offset, size, is_good = outline.end_offset, 0, True
        try:
            for batch in batches.walk_batches(records):
                self._check_follows(batch, state.epoch)
                found = batches.quorum_records(batch)
                outline.append(batch.base_offset, batch.next_offset, batch.leader_epoch)
                for offset, value in found:
                    replica.history.add(offset, value)
                size += batch.size
        except CorruptMessage as error:
            replica.emit(Warn(f"records from leader {state.leader_id} were refused: {error}"))
            replica.connections.pause(state.leader_id, replica.now_ms)
            is_good = False
        if size:
            data = memoryview(records)[:size]
            replica.emit(AppendToLog(data, base_offset, outline.end_offset))
            replica.flush()
        return is_good

    def _check_follows(self, batch: RecordBatch, epoch_max: int) -> None:
        outline = self._replica.outline
        is_next = batch.base_offset == outline.end_offset
        if not is_next or not outline.last_epoch <= batch.leader_epoch <= epoch_max:
            raise CorruptMessage(
                f"{batch!r} of epoch {batch.leader_epoch} cannot follow {outline.end}"
            )

    def _advance_high_watermark(self, told: int) -> None:
        outline = self._replica.outline
        offset = min(told, outline.end_offset)
        if offset > outline.high_watermark:
            outline.high_watermark = offset
            self._replica.emit(AdvanceHighWatermark(offset))
