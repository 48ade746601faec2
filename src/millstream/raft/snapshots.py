"""Snapshots: made by the state machine, fetched by followers in pieces, and what they replace.

The rest of rule 6 of KRaft. A snapshot stands for all records below its end; it is only made of
committed records, so taking one never loses what was decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from millstream.errors import (
    NO_ERROR,
    ApiError,
    InvalidArgument,
    PositionOutOfRange,
    QuorumFault,
    SnapshotNotFound,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages import FetchSnapshotResponse
from millstream.raft import checks, wire_responses
from millstream.raft.effects import (
    DeleteBefore,
    InstallSnapshot,
    Respond,
    RespondWithSnapshot,
    Warn,
    WriteSnapshotChunk,
)
from millstream.raft.events import PruneLog, SnapshotCreated, SnapshotInstalled
from millstream.raft.log_outline import BOOTSTRAP_SNAPSHOT
from millstream.raft.states import Follower, SnapshotDownload
from millstream.raft.voters import ReplicaKey
from millstream.raft.wire_requests import METADATA_PARTITION, METADATA_TOPIC
from millstream.types import OffsetAndEpoch

if TYPE_CHECKING:
    from millstream.protocol.messages import FetchSnapshotRequest
    from millstream.protocol.messages.fetch_snapshot import (
        FetchSnapshotRequestPartitionSnapshot,
        FetchSnapshotResponsePartitionSnapshot,
    )
    from millstream.raft.connections import InFlight
    from millstream.raft.events import RequestReceived
    from millstream.raft.replica import Replica
    from millstream.raft.voters import VoterSet
    from millstream.raft.wire_responses import LeaderFacts


class Snapshots:
    """The rules of snapshots, for one replica."""

    __slots__ = ("_replica", "_static_voters")

    def __init__(self, replica: Replica, static_voters: VoterSet) -> None:
        self._replica = replica
        self._static_voters = static_voters

    def take(self, event: SnapshotCreated | PruneLog | SnapshotInstalled) -> None:
        """Something has happened to a snapshot of ours."""
        match event:
            case SnapshotCreated(snapshot_id, size):
                self._created(snapshot_id, size)
            case PruneLog(snapshot_id):
                self._prune(snapshot_id)
            case SnapshotInstalled():
                self._installed(event)
            case _:
                assert_never(event)

    # --- Our own ---

    def _created(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        """The state machine has written one."""
        outline = self._replica.outline
        if snapshot_id.offset < outline.start_offset:
            return  # A newer one from the leader has overtaken it.
        expected = outline.snapshot_id(snapshot_id.offset)
        if snapshot_id != expected:
            raise InvalidArgument(f"the log names this snapshot {expected}, not {snapshot_id}")
        outline.snapshots[snapshot_id] = size

    def _prune(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log's owner wants nothing older than this snapshot."""
        replica = self._replica
        if snapshot_id not in replica.outline.snapshots:
            raise InvalidArgument(f"there is no snapshot {snapshot_id} to keep instead of the log")
        if snapshot_id.offset <= replica.outline.start_offset:
            return
        replica.outline.trim_before(snapshot_id)
        replica.history.trim_before(snapshot_id.offset - 1)
        replica.emit(DeleteBefore(snapshot_id))

    # --- For others ---

    def handle_fetch_snapshot(self, event: RequestReceived, request: FetchSnapshotRequest) -> None:
        """A replica asks for a piece of a snapshot."""
        replica = self._replica
        try:
            checks.check_cluster(replica, request.cluster_id)
            topic = checks.only(request.topics)
            asked = checks.only(topic.partitions)
        except ApiError as error:
            replica.emit(Respond(event.token, FetchSnapshotResponse(error_code=error.code)))
            return
        try:
            if topic.name != METADATA_TOPIC or asked.partition != METADATA_PARTITION:
                raise UnknownTopicOrPartition
            self._serve(event, request, asked)
        except ApiError as error:
            facts = checks.leader_facts(replica, event.listener)
            response = wire_responses.fetch_snapshot_response(facts, event.version, error.code)
            replica.emit(Respond(event.token, response))

    def _serve(
        self,
        event: RequestReceived,
        request: FetchSnapshotRequest,
        asked: FetchSnapshotRequestPartitionSnapshot,
    ) -> None:
        replica = self._replica
        leader = checks.check_leadership(replica, asked.current_leader_epoch)
        snapshot_id = OffsetAndEpoch(asked.snapshot_id.epoch, asked.snapshot_id.end_offset)
        size = replica.outline.snapshots.get(snapshot_id)
        if size is None or snapshot_id == BOOTSTRAP_SNAPSHOT:
            raise SnapshotNotFound
        if not 0 <= asked.position < size:
            raise PositionOutOfRange
        leader.saw_fetch(
            ReplicaKey(request.replica_id, asked.replica_directory_id),
            replica.voters,
            replica.now_ms + replica.config.check_quorum_timeout_ms,
        )
        response = wire_responses.fetch_snapshot_response(
            checks.leader_facts(replica, event.listener),
            event.version,
            snapshot_id=snapshot_id,
            size=size,
            position=asked.position,
        )
        replica.emit(
            RespondWithSnapshot(
                event.token, response, snapshot_id, asked.position, max(1, request.max_bytes)
            )
        )

    # --- From the leader ---

    def handle_fetch_snapshot_response(
        self, sent: InFlight, response: FetchSnapshotResponse
    ) -> None:
        """A piece has come, or the news that there is no such piece."""
        replica = self._replica
        if response.error_code != NO_ERROR:
            replica.connections.pause(sent.peer.id, replica.now_ms)
            return
        partition = checks.only(checks.only(response.topics).partitions)
        leader = self._leader_of(response, partition)
        is_gone = partition.error_code in (SnapshotNotFound.code, PositionOutOfRange.code)
        error_code = NO_ERROR if is_gone else partition.error_code
        if not checks.absorb(replica, sent, error_code, leader):
            return
        state = replica.state
        if not isinstance(state, Follower) or state.download is None:
            return
        state.fetch_deadline_ms = replica.now_ms + replica.config.fetch_timeout_ms
        if is_gone:
            # The leader has a newer one by now: the next fetch will name it.
            state.download = None
        else:
            self._take(state, state.download, partition)

    def _leader_of(
        self,
        response: FetchSnapshotResponse,
        partition: FetchSnapshotResponsePartitionSnapshot,
    ) -> LeaderFacts:
        told = partition.current_leader
        leader_id, epoch = (-1, -1) if told is None else (told.leader_id, told.leader_epoch)
        return checks.told_leader(leader_id, epoch, response.node_endpoints)

    def _take(
        self,
        state: Follower,
        download: SnapshotDownload,
        partition: FetchSnapshotResponsePartitionSnapshot,
    ) -> None:
        replica = self._replica
        told_id = OffsetAndEpoch(partition.snapshot_id.epoch, partition.snapshot_id.end_offset)
        data = partition.unaligned_records or b""
        end = download.position + len(data)
        is_right_piece = told_id == download.snapshot_id and partition.position == download.position
        if not is_right_piece or not download.position < end <= partition.size:
            replica.emit(
                Warn(f"leader {state.leader_id} sent a wrong piece of {download.snapshot_id}")
            )
            replica.connections.pause(state.leader_id, replica.now_ms)
            state.download = None
            return
        replica.emit(WriteSnapshotChunk(download.snapshot_id, download.position, data))
        download.position = end
        if end == partition.size:
            self._install(download)

    def _install(self, download: SnapshotDownload) -> None:
        replica = self._replica
        outline, snapshot_id = replica.outline, download.snapshot_id
        if snapshot_id.offset < outline.high_watermark:
            raise QuorumFault(
                f"the leader's snapshot {snapshot_id} ends below our high watermark "
                f"{outline.high_watermark}: records that were committed are missing on the leader"
            )
        download.is_complete = True
        outline.restart_at(snapshot_id, download.position)
        replica.forget_flush()
        replica.emit(InstallSnapshot(snapshot_id, download.position))

    def _installed(self, event: SnapshotInstalled) -> None:
        """The log starts at the snapshot now; its voters are the voters."""
        replica = self._replica
        last_offset = event.snapshot_id.offset - 1
        voters = self._static_voters if event.voters is None else event.voters
        replica.history.voters.reset(last_offset, voters)
        replica.history.kraft_version.reset(last_offset, event.kraft_version)
        if isinstance(replica.state, Follower):
            replica.state.download = None
