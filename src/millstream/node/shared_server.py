"""What a broker and a controller of one process share: raft, the metadata log and its loader.

`Node` makes one; `ControllerServer` and `BrokerServer` rest on it. It reads what raft has committed
and hands it on, decoded once: first to the loader, whose publishers make it true on this node,
then to the controller, which answers those who asked for it. So whoever is told that a topic
exists can use it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from millstream.errors import CorruptMessage, KafkaStorageError, MillstreamError
from millstream.metadata.cache import KRaftMetadataCache
from millstream.metadata.checkpoints import decode_checkpoint
from millstream.metadata.image import MetadataProvenance
from millstream.metadata.loader import MetadataLoader
from millstream.metadata.metadata_log import METADATA_PARTITION, MetadataLog
from millstream.metadata.publisher import LeaderAndEpoch
from millstream.metadata.quorum_state_store import FileQuorumStateStore
from millstream.metadata.records import UnsupportedFeatureLevel, decode_batch
from millstream.metadata.snapshot_files import snapshot_file_name
from millstream.metadata.snapshots import SnapshotEmitter, SnapshotGenerator
from millstream.node.publishers import CachePublisher, ProgressPublisher
from millstream.raft.batches import voters_record, walk_batches
from millstream.raft.driver import RaftDriver
from millstream.storage.faults import storage_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from millstream.clock import Clock
    from millstream.metadata.image import MetadataImage
    from millstream.metadata.records import MetadataBatch
    from millstream.node.config import NodeConfig
    from millstream.node.timers import Timers
    from millstream.node.workers import Workers
    from millstream.raft.ports import NetworkChannel
    from millstream.raft.replica import LocalNode
    from millstream.storage.filesystem import DirectoryLock, FileSystem
    from millstream.types import OffsetAndEpoch

_logger = logging.getLogger(__name__)

_READ_BYTES = 1 << 20
_WORKER = "metadata"
_RECORDS_WORTH_A_SNAPSHOT = 1000
"""With so many records since the last snapshot, a stop takes one: the next start need not
replay them."""


class RaftFollower(Protocol):
    """The controller, as raft's news concern it."""

    def on_leader(self, epoch: int) -> None:
        """This node leads, and everything before is replayed."""
        ...

    def on_not_leader(self) -> None:
        """It does not."""
        ...

    def on_stalled(self) -> None:
        """Nothing can be committed for now."""
        ...

    def on_batch(self, batch: MetadataBatch) -> None:
        """Committed records."""
        ...

    def on_snapshot(self, batches: Iterable[MetadataBatch], provenance: MetadataProvenance) -> None:
        """The log begins with a snapshot."""
        ...


class SharedServer:
    """Raft at work, and the images that come of it."""

    def __init__(
        self,
        config: NodeConfig,
        local: LocalNode,
        *,
        filesystem: FileSystem,
        clock: Clock,
        random: Random,
        timers: Timers,
        workers: Workers,
        network: NetworkChannel,
        on_fatal: Callable[[str, Exception], None],
    ) -> None:
        """Opens the metadata log, which takes time only after a crash. `start` begins."""
        self._config = config
        self._local = local
        self._clock = clock
        self._workers = workers
        self._on_fatal = on_fatal
        self._applied_offset = 0
        self._is_snapshotting = False
        self._shutdown_done: Callable[[], None] = lambda: None
        self.on_leader_changed: list[Callable[[], None]] = []
        """Called when another node leads, or this one, or nobody."""
        self.controller: RaftFollower | None = None
        """To be set before the start, on a node that has one."""
        self._lock, self.log = self._open_log(filesystem)
        self.loader = MetadataLoader(self._note_fault)
        self._caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.metadata = KRaftMetadataCache(kraft_version=lambda: self.driver.core.kraft_version)
        """What everybody on this node asks about the cluster."""
        try:
            self.driver = RaftDriver(
                local,
                config.quorum,
                random=random,
                clock=clock,
                log=self.log,
                store=FileQuorumStateStore(filesystem, self.log.directory),
                network=network,
                alarm=timers.alarm(lambda: self.driver.tick()),
                listener=self,
                on_failure=self._log_failed,
            )
        except MillstreamError as error:
            self.abandon()
            raise self._damage(error) from error

    def _open_log(self, filesystem: FileSystem) -> tuple[DirectoryLock, MetadataLog]:
        # The log directory around it may be locked by the log manager later, on its own account.
        metadata_dir = self._config.metadata_dir
        partition = f"{metadata_dir}/{METADATA_PARTITION}"
        with storage_errors(partition, "taking the directory"):
            filesystem.make_directory(partition)
            lock = filesystem.lock_directory(partition)
        try:
            log = MetadataLog.open(
                filesystem,
                metadata_dir,
                self._config.metadata_log,
                clock=self._clock,
                sync=self._sync,
                on_failure=self._log_failed,
                is_voter=self._config.is_controller,
            )
        except BaseException:
            lock.release()
            raise
        return lock, log

    def _log_failed(self, error: Exception) -> None:
        self._on_fatal("the metadata log failed", error)

    def _sync(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self._workers.run(_WORKER, work, done)

    # Start and stop.

    def start(self) -> None:
        """Load the newest snapshot and begin to vote, lead or follow."""
        self._load_snapshot()
        generator = SnapshotGenerator(
            self._config.snapshots, self._begin_snapshot, self._clock.monotonic_ms
        )
        self.loader.install([CachePublisher(self.metadata), generator])
        self.driver.start()

    async def until_caught_up(self) -> None:
        """Wait until everything that was committed before is loaded."""
        caught_up = self._caught_up
        publisher = ProgressPublisher(
            lambda _: None if caught_up.done() else caught_up.set_result(None)
        )
        self.loader.install([publisher])
        await caught_up
        self.loader.remove_and_close(publisher)

    def _note_fault(self, problem: str, error: Exception) -> None:
        """A record could not be replayed; one of them says that this software is too old."""
        if not isinstance(error, UnsupportedFeatureLevel):
            _logger.error("%s: %s", problem, error, exc_info=error)
        elif self._caught_up.done():
            self._on_fatal("this node cannot be part of the cluster any more", error)
        else:
            self._caught_up.set_exception(error)

    def shut_down(self, timeout_ms: int, done: Callable[[], None]) -> None:
        """Hand leadership over; `done` is called when that is over."""
        self._shutdown_done = done
        self.driver.shut_down(timeout_ms)

    def close(self) -> None:
        """Bring everything to disk and let go."""
        self.loader.close()
        latest = self.log.latest_snapshot
        since = self._applied_offset - (0 if latest is None else latest.offset)
        if since >= _RECORDS_WORTH_A_SNAPSHOT and not self._is_snapshotting:
            self._write_snapshot_now()
        try:
            self.log.close()
        except KafkaStorageError as error:
            _logger.warning("the metadata log is left unclean, which is no loss: %s", error)
            self.log.abandon()
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """Let go without another word to the disk."""
        self._lock.release()

    # What raft tells.

    def committed(self, high_watermark: int) -> None:
        """Read and hand on what is committed."""
        batches: list[MetadataBatch] = []
        while self._applied_offset < high_watermark:
            for batch in walk_batches(self.log.read(self._applied_offset, _READ_BYTES)):
                if batch.base_offset >= high_watermark:
                    break
                if batch.is_control:
                    self._hand_on(batches, high_watermark)
                    batches = []
                    self.loader.skip_control_batch(batch.last_offset, high_watermark)
                else:
                    batches.append(decode_batch(batch))
                self._applied_offset = batch.next_offset
        self._hand_on(batches, high_watermark)

    def _hand_on(self, batches: list[MetadataBatch], high_watermark: int) -> None:
        if batches:
            self.loader.load_batches(batches, high_watermark)
            if self.controller is not None:
                for batch in batches:
                    self.controller.on_batch(batch)

    def snapshot_installed(self, snapshot_id: OffsetAndEpoch) -> None:
        """The log begins with a snapshot of another node now."""
        self._load_snapshot()

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        """Who leads now."""
        if self.controller is not None:
            if leader_id == self._local.id:
                self.controller.on_leader(epoch)
            else:
                self.controller.on_not_leader()
        self.loader.leader_changed(LeaderAndEpoch(leader_id, epoch))
        for call in self.on_leader_changed:
            call()

    def stalled(self) -> None:
        """The log cannot be written for now."""
        if self.controller is not None:
            self.controller.on_stalled()

    def shutdown_completed(self) -> None:
        """Leadership is handed over."""
        self._shutdown_done()

    def _damage(self, error: MillstreamError) -> MillstreamError:
        """The error that says which file is damaged, and what to do about it."""
        latest = self.log.latest_snapshot
        if not isinstance(error, CorruptMessage) or latest is None:
            return error
        try:
            decode_checkpoint(self.log.snapshot_bytes(latest))
        except CorruptMessage:
            start = self.log.start_offset
            ids = [each for each, _ in self.log.snapshots()]
            is_covered = start == 0 or any(start <= each.offset < latest.offset for each in ids)
            advice = (
                "move it away: the log and an older snapshot, if one is needed, have everything"
                if is_covered
                else "restore it from a copy: what it had is nowhere else"
            )
            path = f"{self.log.directory}/{snapshot_file_name(latest)}"
            return KafkaStorageError(f"{path} is damaged ({error}); {advice}")
        return error

    # Snapshots.

    def _load_snapshot(self) -> None:
        latest = self.log.latest_snapshot
        if latest is None or latest.offset == 0:
            return
        checkpoint = decode_checkpoint(self.log.snapshot_bytes(latest))
        timestamp_ms = checkpoint.last_timestamp_ms
        if self.controller is not None:
            provenance = MetadataProvenance(latest.offset - 1, latest.epoch, timestamp_ms)
            self.controller.on_snapshot(checkpoint.batches, provenance)
        self.loader.load_snapshot(checkpoint.batches, latest, timestamp_ms)
        self._applied_offset = latest.offset

    def _begin_snapshot(self, image: MetadataImage, reason: str) -> None:
        if self._is_snapshotting:
            return
        self._is_snapshotting = True
        snapshot_id, job = self._snapshot_job(image)
        _logger.info(
            "taking a snapshot of the metadata at offset %d: %s", snapshot_id.offset, reason
        )

        def done(size: int | Exception) -> None:
            self._is_snapshotting = False
            if isinstance(size, Exception):
                _logger.warning("the snapshot of the metadata could not be written: %s", size)
            else:
                self._snapshot_written(snapshot_id, size)

        self._workers.run(_WORKER, job, done)

    def _write_snapshot_now(self) -> None:
        snapshot_id, job = self._snapshot_job(self.loader.image)
        try:
            self._snapshot_written(snapshot_id, job())
        except OSError as error:
            _logger.warning("the snapshot of the metadata could not be written: %s", error)

    def _snapshot_job(self, image: MetadataImage) -> tuple[OffsetAndEpoch, Callable[[], int]]:
        snapshot_id = image.provenance.snapshot_id
        history = self.driver.core.history
        kraft_version = history.kraft_version.at(snapshot_id.offset - 1)
        voters = history.voters.at(snapshot_id.offset - 1)
        pieces = SnapshotEmitter().emit(
            image,
            kraft_version=kraft_version or None,
            voters=voters_record(voters) if kraft_version else None,
        )
        return snapshot_id, self.log.snapshot_job(snapshot_id, pieces)

    def _snapshot_written(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        self.log.note_snapshot(snapshot_id, size)
        self.driver.snapshot_created(snapshot_id, size)
        superfluous = self.log.superfluous_before()
        if superfluous is not None:
            self.driver.prune_log(superfluous)
