"""The metadata log on disk: raft's `ReplicatedLog` over a `UnifiedLog` and snapshot files.

`node` opens one in `<metadata.log.dir>/__cluster_metadata-0`; raft's driver owns it and one thread
calls everything. Syncing is done by the function it is given, on a worker thread in a broker, so
that a decision of the controller does not hold up those who produce. What the records mean is
the business of others.

A crash may tear what was not synced: opening cuts it off. Damage in what had been synced is rot:
opening refuses it (`log_damage`). A snapshot begins a new segment, so that opening has to verify
only what came after the newest one.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING, Final

from millstream.errors import KafkaStorageError
from millstream.metadata.log_damage import TRUNCATE, DamageJudge
from millstream.metadata.metadata_log_config import BATCH_BYTES_MAX
from millstream.metadata.snapshot_files import (
    BOOTSTRAP_SNAPSHOT,
    SnapshotFiles,
    write_snapshot_file,
)
from millstream.metadata.stalls import stalls
from millstream.metadata.synced_offset import SyncedOffset
from millstream.raft.ports import LogStalled
from millstream.storage.faults import is_disk_failure, is_out_of_descriptors, storage_errors
from millstream.storage.file_names import LOG, parse_segment_file_name
from millstream.storage.log.config import LogConfig
from millstream.storage.log.loader import LoadRequest
from millstream.storage.log.unified_log import UnifiedLog
from millstream.storage.manager.meta_properties import (
    read_partition_metadata,
    write_partition_metadata,
)
from millstream.types import INT64_MAX, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from millstream.clock import Clock
    from millstream.metadata.metadata_log_config import MetadataLogConfig
    from millstream.storage.filesystem import FileSystem
    from millstream.types import OffsetAndEpoch, ReadableBuffer

    Sync: TypeAlias = Callable[[Callable[[], None], Callable[[Exception | None], None]], None]
    """Runs the first, perhaps on another thread, then the second on the owner's, with the error."""

_logger = logging.getLogger(__name__)

METADATA_PARTITION: Final = "__cluster_metadata-0"
_EPOCH_MAX: Final = (1 << 31) - 1
_BATCH_HEAD: Final = Struct(">qi")  # Base offset, and how many bytes follow.
_SYNC_INTERVAL_MS: Final = 1000
"""How often the note about what is on disk is itself brought there."""


class MetadataLog:
    """The replicated log of the cluster's metadata, and its snapshots."""

    def __init__(
        self,
        log: UnifiedLog,
        snapshots: SnapshotFiles,
        synced: SyncedOffset,
        *,
        filesystem: FileSystem,
        config: MetadataLogConfig,
        clock: Clock,
        sync: Sync,
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Use `open`."""
        self._log = log
        self._snapshots = snapshots
        self._synced = synced
        self._synced_note_due_ms = 0
        self._filesystem = filesystem
        self._config = config
        self._clock = clock
        self._sync = sync
        self._on_failure = on_failure

    @classmethod
    def open(
        cls,
        filesystem: FileSystem,
        metadata_dir: str,
        config: MetadataLogConfig,
        *,
        clock: Clock,
        sync: Sync,
        on_failure: Callable[[Exception], None],
        is_voter: bool = True,
    ) -> MetadataLog:
        """Open the log of a formatted directory, and repair it if the last process crashed.

        `on_failure` hears of a sync that failed: the replica must not go on. One that only follows
        (not `is_voter`) may cut off rot, too: it fetches what is missing.
        """
        directory = f"{metadata_dir}/{METADATA_PARTITION}"
        with storage_errors(directory, "opening the metadata log"):
            if not filesystem.exists(directory):
                filesystem.make_directory(directory)
                filesystem.sync_directory(metadata_dir)
            if read_partition_metadata(filesystem, directory) is None:
                write_partition_metadata(filesystem, directory, Uuid.METADATA_TOPIC)
            snapshots = SnapshotFiles(filesystem, directory)
            synced = SyncedOffset(filesystem, directory)
            judge = DamageJudge(
                filesystem,
                directory,
                _needed_to(synced.read(), snapshots),
                may_cut=config.recovery == TRUNCATE or not is_voter,
            )
            request = _load_request(filesystem, directory, config, snapshots, clock)
            log = UnifiedLog.open(replace(request, before_loss=judge.before_loss))
            judge.check_end(log.log_end_offset)
            _settle_on_snapshot(log, snapshots, clock.wall_ms())
            # Opening has brought to disk whatever it found good.
            synced.write(log.recovery_point, is_durable=True)
        return cls(
            log,
            snapshots,
            synced,
            filesystem=filesystem,
            config=config,
            clock=clock,
            sync=sync,
            on_failure=on_failure,
        )

    # What raft asks: records.

    @property
    def directory(self) -> str:
        """Where it is."""
        return self._log.directory

    @property
    def start_offset(self) -> int:
        """The first offset that is still there."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.log_end_offset

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, its first offset), ascending, none below `start_offset`."""
        return [(each.epoch, each.start_offset) for each in self._log.epochs.entries]

    def append(self, batches: ReadableBuffer) -> None:
        """Add whole batches whose first offset is `end_offset`.

        Those that an attempt which stalled has added already are left out.
        """
        missing = _batches_from(self.end_offset, batches)
        if missing:
            with stalls(self.directory, "appending"):
                appended = self._log.append_as_follower(missing, _EPOCH_MAX, self._clock.wall_ms())
            assert appended is not None
            assert appended.byte_count == len(missing)

    def read(self, offset: int, bytes_max: int) -> ReadableBuffer:
        """Batches from the one that holds `offset` on; the last may be cut off by the limit."""
        found = self._log.read(offset, bytes_max).records
        return b"" if found is None else found.read()

    def truncate_to(self, offset: int) -> None:
        """Drop the records at `offset` and above."""
        with storage_errors(self.directory, "truncating"):
            self._synced.lower(offset)
        self._log.truncate_to(offset, self._clock.wall_ms())

    def flush(
        self, done: Callable[[], None], stalled: Callable[[LogStalled], None] = lambda _: None
    ) -> None:
        """Make everything appended so far durable, then call `done`; `stalled` if it has to wait.

        Only for want of descriptors: a disk that had no room when it was synced may have lost what
        it was given before.
        """
        with stalls(self.directory, "syncing"):
            job = self._log.begin_flush()

        def finish(error: Exception | None) -> None:
            if error is not None and is_out_of_descriptors(error):
                stalled(LogStalled(f"{self.directory}: syncing failed ({error})"))
            elif error is not None:
                self._on_failure(error)
            elif not self._log.is_closed:
                self._log.finish_flush(job)
                try:
                    self._note_synced()
                except OSError as failure:
                    self._on_failure(failure)
                else:
                    done()

        self._sync(job.sync, finish)

    def _note_synced(self) -> None:
        """Write down what is on disk; the note itself gets there with one of the next syncs."""
        try:
            self._synced.write(self._log.recovery_point)
        except OSError as error:
            if is_disk_failure(error):
                raise
            return  # It may lag behind: the next sync writes another one.
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._synced_note_due_ms:
            self._synced_note_due_ms = now_ms + _SYNC_INTERVAL_MS
            self._log.sync_with_next_flush(self._synced.path)

    def set_high_watermark(self, offset: int) -> None:
        """Records below are committed."""
        self._log.update_high_watermark(offset)

    # What raft asks: snapshots.

    def snapshots(self) -> Iterable[tuple[OffsetAndEpoch, int]]:
        """The complete snapshots with their sizes in bytes."""
        return self._snapshots.sizes.items()

    def read_snapshot(
        self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int
    ) -> ReadableBuffer:
        """A piece of a complete snapshot; empty at its end."""
        return self._snapshots.read(snapshot_id, position, bytes_max)

    def write_snapshot(
        self, snapshot_id: OffsetAndEpoch, position: int, data: ReadableBuffer
    ) -> None:
        """Add to a snapshot under way."""
        with stalls(self.directory, "receiving a snapshot"):
            self._snapshots.receive(snapshot_id, position, data)

    def install_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        """Make a received snapshot count, and the log empty, starting at its end.

        A crash between the two is noticed at the next opening.
        """
        now_ms = self._clock.wall_ms()
        self._snapshots.complete(snapshot_id, now_ms)
        with storage_errors(self.directory, "truncating"):
            self._synced.lower(snapshot_id.offset)
        self._log.truncate_fully_and_start_at(snapshot_id.offset, now_ms)
        self._snapshots.delete_before(snapshot_id)

    def delete_before(self, snapshot_id: OffsetAndEpoch) -> None:
        """Delete older snapshots and the segments below this one."""
        self._log.raise_log_start_offset(snapshot_id.offset)
        try:
            for segment in self._log.delete_old_segments(self._clock.wall_ms()):
                segment.delete_files()
            self._snapshots.delete_before(snapshot_id)
        except (OSError, KafkaStorageError) as error:
            if is_disk_failure(error):
                raise
            # They are superfluous and no more than that: the next snapshot's turn takes them, too.
            _logger.warning("old parts of the metadata log stay for now: %s", error)

    # What the node asks.

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        """The newest snapshot; the one that formatting left is one too."""
        return self._snapshots.latest

    def snapshot_bytes(self, snapshot_id: OffsetAndEpoch) -> bytes:
        """The whole of a snapshot."""
        return self._snapshots.read(snapshot_id, 0, self._snapshots.sizes[snapshot_id])

    def snapshot_job(
        self, snapshot_id: OffsetAndEpoch, pieces: Iterable[ReadableBuffer]
    ) -> Callable[[], int]:
        """What writes a snapshot of the state, on any thread; it gives the size."""
        filesystem, directory = self._filesystem, self._log.directory
        return lambda: write_snapshot_file(filesystem, directory, snapshot_id, pieces)

    def note_snapshot(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        """Such a job is done. Records go on in a new segment, if there is room for one."""
        now_ms = self._clock.wall_ms()
        self._snapshots.note(snapshot_id, size, now_ms)
        try:
            self._log.roll(now_ms)
        except KafkaStorageError as error:
            if is_disk_failure(error):
                self._on_failure(error)
            else:
                _logger.warning("the metadata log goes on in its old segment: %s", error)

    def superfluous_before(self) -> OffsetAndEpoch | None:
        """The snapshot that the log should begin with by the rules of retention, if not yet."""
        ascending = sorted(each for each in self._snapshots.sizes if each != BOOTSTRAP_SNAPSHOT)
        total = self._log.size + sum(self._snapshots.sizes.values())
        is_too_large = 0 <= self._config.retention_bytes < total
        if not ascending:
            return None
        chosen = ascending[-1] if is_too_large else self._oldest_to_keep(ascending)
        return chosen if chosen.offset > self.start_offset else None

    def abandon(self) -> None:
        """Let go without touching the disk again; the next opening looks at the log's end."""
        self._snapshots.close()
        self._log.abandon()
        self._synced.close()

    def close(self) -> None:
        """Bring everything to disk."""
        self._snapshots.close()
        self._log.close()
        with storage_errors(self.directory, "closing"):
            self._synced.write(self._log.recovery_point, is_durable=True)
            self._synced.close()

    def _oldest_to_keep(self, ascending: list[OffsetAndEpoch]) -> OffsetAndEpoch:
        retention_ms = self._config.retention_ms
        oldest_ms = self._clock.wall_ms() - retention_ms if retention_ms >= 0 else 0
        young = [each for each in ascending if self._snapshots.modified_ms[each] >= oldest_ms]
        return young[0] if young else ascending[-1]


def _load_request(
    filesystem: FileSystem,
    directory: str,
    config: MetadataLogConfig,
    snapshots: SnapshotFiles,
    clock: Clock,
) -> LoadRequest:
    first_base = _first_base_offset(filesystem, directory)
    oldest = min((each.offset for each in snapshots.sizes), default=0)
    if first_base is not None and first_base > 0 and not _covers(snapshots, first_base):
        raise KafkaStorageError(
            f"{directory} begins at offset {first_base} and has no snapshot of what was before: "
            "files are missing"
        )
    return LoadRequest(
        filesystem=filesystem,
        directory=directory,
        config=LogConfig(
            cleanup_policy=("delete",),
            segment_bytes=config.segment_bytes,
            segment_ms=INT64_MAX,
            retention_ms=-1,
            retention_bytes=-1,
            max_message_bytes=BATCH_BYTES_MAX,
            segment_index_bytes=_INDEX_BYTES,
        ),
        now_ms=clock.wall_ms(),
        # A log with its first segment has everything; else it begins where a snapshot ends.
        log_start_offset=oldest if first_base else 0,
        # What a snapshot stands for was committed, and so on disk, before it was taken.
        recovery_point=max((each.offset for each in snapshots.sizes), default=0),
    )


_INDEX_BYTES: Final = 1 << 20
"""How large an index file is until its segment is closed."""


def _batches_from(offset: int, batches: ReadableBuffer) -> ReadableBuffer:
    """The batches that begin at an offset or after it."""
    at = 0
    while at < len(batches) and (head := _BATCH_HEAD.unpack_from(batches, at))[0] < offset:
        at += _BATCH_HEAD.size + head[1]
    return memoryview(batches)[at:] if at else batches


def _needed_to(synced_to: int | None, snapshots: SnapshotFiles) -> int | None:
    """Up to where the log must be whole: what a snapshot stands for is not lost with the log."""
    latest = snapshots.latest
    if synced_to is None or latest is None or latest.offset < synced_to:
        return synced_to
    return 0


def _first_base_offset(filesystem: FileSystem, directory: str) -> int | None:
    names = (parse_segment_file_name(status.name) for status in filesystem.scan(directory))
    bases = [name.base_offset for name in names if name and name.extension == LOG]
    return min(bases, default=None)


def _covers(snapshots: SnapshotFiles, first_base: int) -> bool:
    return any(each.offset >= first_base for each in snapshots.sizes)


def _settle_on_snapshot(log: UnifiedLog, snapshots: SnapshotFiles, now_ms: int) -> None:
    """A snapshot beyond the log's end was received just before a crash: the log begins there."""
    latest = snapshots.latest
    if latest is not None and latest.offset > log.log_end_offset:
        _logger.info("the metadata log begins anew at the snapshot %s", latest)
        log.truncate_fully_and_start_at(latest.offset, now_ms)
        snapshots.delete_before(latest)
