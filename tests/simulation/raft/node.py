"""One simulated node: a real driver and core over ports in memory, and a small state machine."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.errors import KafkaStorageError, NotController
from millstream.protocol.messages import ApiVersionsResponse, KRaftVersionRecord
from millstream.protocol.messages.api_versions import SupportedFeatureKey
from millstream.raft import batches
from millstream.raft.driver import RaftDriver
from millstream.raft.membership import KRAFT_VERSION_FEATURE
from millstream.raft.replica import LocalNode
from millstream.raft.states import Role
from millstream.raft.voters import Endpoint, ReplicaKey, VoterSet
from millstream.types import OffsetAndEpoch
from tests.simulation.raft.invariants import EMPTY_STATE, digest_of
from tests.simulation.raft.memory import MemoryLog, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message
    from millstream.raft.config import QuorumConfig
    from millstream.raft.effects import ElectionState, Peer
    from millstream.types import ReadableBuffer
    from tests.simulation.raft.cluster import Cluster

LISTENER = "CONTROLLER"
CLUSTER_ID = "simulated"


def endpoint_of(node_id: int) -> Endpoint:
    """Where a simulated node listens."""
    return Endpoint(f"node{node_id}", 9000 + node_id)


def api_versions() -> ApiVersionsResponse:
    """What every simulated node answers to the probe of a new voter."""
    feature = SupportedFeatureKey(name=KRAFT_VERSION_FEATURE, min_version=0, max_version=1)
    return ApiVersionsResponse(supported_features=[feature])


class _CheckedLog(MemoryLog):
    """A log that shows what is appended to the invariants."""

    def __init__(self, node: SimNode) -> None:
        super().__init__()
        self._node = node

    def append(self, data: ReadableBuffer) -> None:
        known = len(self.batches)
        super().append(data)
        for number in range(known, len(self.batches)):
            before = self.batches[number - 1].leader_epoch if number else self._epoch_at_start()
            self._node.cluster.history.check_append(self._node, self.batches[number], before)

    def _epoch_at_start(self) -> int:
        return max((each.epoch for each in self.complete), default=0)


class _CheckedStore(MemoryStore):
    """A store that shows what is written to the invariants."""

    def __init__(self, node: SimNode) -> None:
        super().__init__()
        self._node = node

    def write(
        self, election: ElectionState, kraft_version: int, voter_ids: tuple[int, ...]
    ) -> None:
        super().write(election, kraft_version, voter_ids)
        self._node.cluster.history.check_persisted(self._node, election)


class SimNode:
    """A node that can crash and come back with what its disk still has."""

    def __init__(
        self, cluster: Cluster, key: ReplicaKey, config: QuorumConfig, *, is_controller: bool = True
    ) -> None:
        self.cluster = cluster
        self.key = key
        self.config = config
        self.local = LocalNode(
            key,
            CLUSTER_ID,
            LISTENER,
            {LISTENER: endpoint_of(key.id)} if is_controller else {},
            is_controller=is_controller,
        )
        self.log: MemoryLog = _CheckedLog(self)
        self.store: MemoryStore = _CheckedStore(self)
        self.incarnation = 0
        self.is_up = False
        self.is_stopping = False
        self.deadline_ms: int | None = None
        self.driver: RaftDriver
        self.epoch_seen = 0
        self.high_watermark_seen = 0
        self.leads_epoch: int | None = None
        self.applied = 0
        self.state = EMPTY_STATE

    def __str__(self) -> str:
        return f"node {self.key.id}"

    # --- Life ---

    def format(self, voters: VoterSet) -> None:
        """Write what `storage format` writes for a dynamic quorum."""
        self.log.complete[OffsetAndEpoch(0, 0)] = snapshot_bytes(0, 0, 1, voters, b"")

    def start(self) -> None:
        """Boot from the disk."""
        self.incarnation += 1
        self.is_up = True
        self.is_stopping = False
        self.high_watermark_seen = 0
        self.leads_epoch = None
        self.applied, self.state = 0, EMPTY_STATE
        self.log.schedule_flush = self._schedule_flush
        self.set_full(is_full=False)
        self.driver = RaftDriver(
            self.local,
            self.config,
            random=self.cluster.random,
            clock=self.cluster.clock,
            log=self.log,
            store=self.store,
            network=self,
            alarm=self,
            listener=self,
        )
        self._load_snapshot()
        self.driver.start()

    def crash(self) -> None:
        """Lose power."""
        self.is_up = False
        self.deadline_ms = None
        self.log.crash(self.cluster.random)

    def set_full(self, *, is_full: bool) -> None:
        """Take the room of its disk away, or give it back."""
        self.log.is_full = self.store.is_full = is_full

    @property
    def is_stalled(self) -> bool:
        """Whether it waits for room."""
        return self.is_up and self.driver.obstacle is not None

    def _schedule_flush(self, sync: Callable[[], None]) -> None:
        incarnation = self.incarnation

        def complete() -> None:
            if self.is_up and incarnation == self.incarnation:
                sync()

        self.cluster.flush_later(self, complete)

    # --- The ports of the driver ---

    def send(self, request_id: int, peer: Peer, message: Message) -> None:
        self.cluster.history.check_request(self, message)
        self.cluster.send_request(self, request_id, peer, message)

    def set(self, deadline_ms: int | None) -> None:
        self.deadline_ms = deadline_ms

    def committed(self, high_watermark: int) -> None:
        for batch in list(self.log.batches):
            if self.applied <= batch.base_offset and batch.next_offset <= high_watermark:
                self.state = digest_of(self.state, batch)
                self.applied = batch.next_offset
                self.cluster.history.check_commit(self, batch, self.state)
        assert self.applied == high_watermark, f"{self} cannot apply up to {high_watermark}"

    def snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        self._load_snapshot()

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        self.leads_epoch = epoch if leader_id == self.key.id else None
        if self.leads_epoch is not None:
            assert self.applied > 0, f"{self} leads before it has caught up"
            # A controller writes as soon as it leads: the driver must bear it.
            with suppress(NotController, KafkaStorageError):
                self.driver.submit(epoch, [b"activation"])

    def stalled(self) -> None:
        """Nobody waits for records here."""

    def shutdown_completed(self) -> None:
        self.is_up = False
        self.deadline_ms = None

    # --- The state machine ---

    def _load_snapshot(self) -> None:
        latest = max(self.log.complete, default=None)
        if latest is not None and latest.offset > self.applied:
            data = self.log.complete[latest]
            last = list(batches.walk_batches(data))[-1]
            self.state = last.records()[0].value or b""
            self.applied = latest.offset
            self.cluster.history.check_snapshot(self, latest.offset, self.state)

    def take_snapshot(self) -> None:
        """Write down the state, as a snapshot generator does."""
        outline = self.driver.core.outline
        offset = self.applied
        snapshot_id = self.driver.snapshot_id(offset)
        if offset <= outline.start_offset or snapshot_id in outline.snapshots:
            return
        history = self.driver.core.history
        data = snapshot_bytes(
            offset,
            snapshot_id.epoch,
            history.kraft_version.at(offset - 1),
            history.voters.at(offset - 1),
            self.state,
        )
        self.log.complete[snapshot_id] = data
        self.driver.snapshot_created(snapshot_id, len(data))

    def prune(self) -> None:
        """Drop what the newest snapshot makes superfluous, as a log cleaner does."""
        latest = self.driver.core.outline.latest_snapshot
        if latest is not None:
            self.driver.prune_log(latest)

    @property
    def is_leader(self) -> bool:
        """Whether it leads, in its own eyes."""
        return self.is_up and self.driver.core.role is Role.LEADER

    def describe(self) -> str:
        """One line for a scenario or a failure."""
        core = self.driver.core
        outline = core.outline
        return (
            f"{self.key.id}: {core.role.value} epoch={core.epoch} leader={core.leader_id} "
            f"log={outline.start_offset}..{outline.end_offset} hw={outline.high_watermark}"
        )


def snapshot_bytes(
    offset: int, epoch: int, kraft_version: int, voters: VoterSet, state: bytes
) -> bytes:
    """A snapshot with what it must say about the quorum, and the state in one record."""
    records: list[batches.ControlMessage] = []
    if kraft_version:
        records = [
            KRaftVersionRecord(version=0, kraft_version=kraft_version),
            batches.voters_record(voters),
        ]
    head = batches.control_batch(0, epoch, 0, records) if records else b""
    return head + batches.data_batch(len(records), epoch, 0, [state])
