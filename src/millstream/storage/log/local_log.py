"""The segments of one partition as one file of records: append, roll, read, cut, sync.

`UnifiedLog` owns one and adds what records mean: producers, epochs, watermarks. This part only
knows bytes and offsets. Errors are the operating system's; the owner translates them. One thread
owns it; a `SyncJob` is what another thread may do for it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.storage.file_names import DELETED, SEGMENT_EXTENSIONS, segment_file_name
from millstream.storage.filesystem import directory_of
from millstream.storage.log.log_results import OffsetMetadata
from millstream.storage.log.log_tail import LogTail, fast_limits
from millstream.storage.log.segment import LogSegment
from millstream.storage.log.validator import is_sound_compressed
from millstream.storage.log.watermark_wakeup import WatermarkWakeup
from millstream.types import INT64_MAX

if TYPE_CHECKING:
    from random import Random

    from millstream.storage.filesystem import File, FileSystem
    from millstream.storage.log.config import LogConfig
    from millstream.storage.log.loader import LoadedLog, LoadRequest
    from millstream.storage.log.segments import LogSegments


class SyncJob:
    """What one log had that was not on disk, at one moment. `sync` may run on any thread."""

    __slots__ = (
        "_active_file",
        "_directories",
        "_filesystem",
        "closed_paths",
        "end_offset",
        "names_version",
        "truncation_count",
    )

    def __init__(self, log: LocalLog, active_file: File, closed_paths: dict[str, int]) -> None:
        self.end_offset = log.log_end_offset
        self.truncation_count = log.truncation_count
        self.names_version = log.names_version
        self._filesystem = log.filesystem
        self._directories = log.unsynced_directories
        self._active_file = active_file
        self.closed_paths = closed_paths
        """Files of closed segments, each with the number of its last change."""

    def sync(self) -> None:
        """Bring it all to disk, names last."""
        for path in self.closed_paths:
            try:
                file = self._filesystem.open(path)
            except FileNotFoundError:
                # Only the owner removes files: the segment was deleted meanwhile, or it
                # never had this index.
                continue
            file.sync()
        self._active_file.sync()
        for directory in self._directories:
            # One that was renamed meanwhile: `move_to` sees to it that this job counts for nothing.
            with suppress(FileNotFoundError):
                self._filesystem.sync_directory(directory)


class LocalLog:
    """The segments, where the log ends, and how much of it is on disk."""

    __slots__ = (
        "_change_count",
        "_is_own_name_synced",
        "_loaded_state",
        "_random",
        "_removal_version",
        "_synced_names_version",
        "_unsynced_paths",
        "config",
        "directory",
        "filesystem",
        "names_version",
        "segments",
        "tail",
        "truncation_count",
    )

    def __init__(self, request: LoadRequest, loaded: LoadedLog, random: Random) -> None:
        self.filesystem: FileSystem = request.filesystem
        self.directory = request.directory
        self.config: LogConfig = request.config
        self.segments: LogSegments = loaded.segments
        self.tail = LogTail(
            loaded.segments,
            loaded.producers,
            loaded.epochs,
            WatermarkWakeup(),
            log_start_offset=loaded.log_start_offset,
            log_end_offset=loaded.log_end_offset,
        )
        self._open_fast_path()
        self.truncation_count = 0
        """Changes whenever records are cut off the end."""
        self.names_version = 0
        """Changes whenever files come, go or are renamed."""
        self._synced_names_version = 0
        # A new log's own name is in the directory above, and on disk with the first flush.
        self._is_own_name_synced = not request.is_new
        if request.is_new:
            self.names_version += 1
        self._removal_version = 0
        # Each with a number that grows, so that a job that took one earlier cannot clear it.
        self._unsynced_paths: dict[str, int] = {}
        self._change_count = 0
        self._random = random
        self._loaded_state = self._state()

    def _state(self) -> tuple[int, int, int]:
        """Changes whenever records or files do."""
        return self.log_end_offset, self.names_version, self.truncation_count

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.tail.log_end_offset

    @property
    def recovery_point(self) -> int:
        """Everything before it is on disk."""
        return self.tail.recovery_point

    def roll(self, base_offset: int, now_ms: int) -> LogSegment:
        """Close the active segment and begin another at an offset."""
        active = self.segments.active
        if active.base_offset == base_offset:
            # It is empty, and as good as the one that would take its name.
            return active
        active.seal()
        # Its records may all be on disk, its indexes and its final size are not.
        self._note_closed(active)
        created = self._create_segment(base_offset, now_ms)
        self.segments.add(created)
        return created

    # Reading.

    @property
    def end(self) -> OffsetMetadata:
        """Where the next record will be."""
        active = self.segments.active
        return OffsetMetadata(self.log_end_offset, active.base_offset, active.size)

    # Cutting.

    def truncate_to(self, offset: int, now_ms: int) -> list[LogSegment]:
        """Cut everything from an offset on, durably; the segments that went.

        Records before the offset that share a batch with it go too: batches are never split.
        """
        self.lower_recovery_point(offset)
        self.truncation_count += 1
        gone = [each for each in self.segments if each.base_offset >= offset]
        self._remove_from_end(gone)
        if len(self.segments):
            active = self.segments.active
            active.truncate_to(offset, now_ms)
            active.open_file().sync()
        else:
            self.segments.add(self._create_segment(offset, now_ms))
        self.tail.log_end_offset = offset
        self.sync_names()
        return gone

    def begin_at(self, offset: int, now_ms: int) -> list[LogSegment]:
        """Drop everything and go on at an offset, durably; the segments that went."""
        self.lower_recovery_point(offset)
        self.truncation_count += 1
        gone = list(self.segments)
        self._remove_from_end(gone)
        self.segments.add(self._create_segment(offset, now_ms))
        self.tail.log_end_offset = offset
        self.sync_names()
        return gone

    def remove_first(self, count: int) -> list[LogSegment]:
        """Drop the oldest segments; their files wait as `.deleted` until `delete_files`.

        No more than one removal is ever uncertain: a power loss may bring back the oldest
        segment, never an older one than a segment that stays deleted.
        """
        gone = list(self.segments)[:count]
        for segment in gone:
            if self._synced_names_version < self._removal_version:
                self.sync_names()
            self._remove([segment])
            self._removal_version = self.names_version
        return gone

    def lower_recovery_point(self, offset: int) -> None:
        """No longer claim that what is at or after an offset is on disk."""
        self.tail.recovery_point = min(self.tail.recovery_point, offset)

    # The disk.

    @property
    def unsynced_directories(self) -> list[str]:
        """The directories whose entries are not on disk as they are, the log's own first."""
        if self._synced_names_version == self.names_version:
            return []
        return [self.directory] if self._is_own_name_synced else [self.directory, self._parent]

    @property
    def _parent(self) -> str:
        return directory_of(self.directory)

    def wants_flush(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` ask for a sync."""
        return (
            self.log_end_offset - self.recovery_point >= self.config.flush_messages
            or now_ms - self.tail.dirty_since_ms >= self.config.flush_ms
        )

    def sync_with_next_flush(self, path: str) -> None:
        """Another file that goes with the segments; one that is gone by then is fine."""
        self._change_count += 1
        self._unsynced_paths[path] = self._change_count

    def begin_flush(self) -> SyncJob:
        """What must be synced for everything before the log's end to be on disk.

        Of the active segment only the records: its indexes are rebuilt after a crash.
        """
        *closed, active = self.segments.from_offset(self.recovery_point)
        paths = {path: 0 for segment in closed for path in self._paths(segment)}
        self.tail.dirty_since_ms = INT64_MAX
        return SyncJob(self, active.open_file(), paths | self._unsynced_paths)

    def finish_flush(self, job: SyncJob) -> None:
        """A job is done: move the recovery point, unless what it synced was cut meanwhile."""
        if job.truncation_count == self.truncation_count:
            self.tail.recovery_point = max(self.tail.recovery_point, job.end_offset)
        for path, change in job.closed_paths.items():
            if self._unsynced_paths.get(path) == change:
                del self._unsynced_paths[path]
        self._note_names_synced(job.names_version)

    def sync_names(self) -> None:
        """Bring the directory's entries to disk now."""
        for directory in self.unsynced_directories:
            self.filesystem.sync_directory(directory)
        self._note_names_synced(self.names_version)

    def _note_names_synced(self, version: int) -> None:
        self._synced_names_version = max(self._synced_names_version, version)
        self._is_own_name_synced = True

    @property
    def is_as_loaded(self) -> bool:
        """Whether nothing has happened to the log: closing it need not touch the disk.

        A new log without records counts: if a power loss takes it, the next start makes it again.
        """
        active = self.segments.active
        is_whole = active.size == 0 or not active.is_changed
        return is_whole and self._state() == self._loaded_state

    def close(self) -> None:
        """Finish and sync all files and let go of them. The whole log is on disk afterwards."""
        for segment in self.segments:
            segment.seal()
        self._note_closed(self.segments.active)
        self.names_version += 1
        job = self.begin_flush()
        job.sync()
        self.finish_flush(job)
        self.release()

    def release(self) -> None:
        """Give back all descriptors and maps; the next use takes new ones."""
        for segment in self.segments:
            segment.release()

    def update_config(self, config: LogConfig) -> None:
        """Take new settings."""
        self.config = config
        self._open_fast_path()
        for segment in self.segments:
            segment.update_config(config)

    def _open_fast_path(self) -> None:
        self.tail.fast_size_max, self.tail.fast_future_max_ms = fast_limits(self.config)
        self.tail.is_sound = is_sound_compressed

    def move_to(self, directory: str) -> None:
        """Give the directory another name."""
        self.release()
        self.filesystem.rename(self.directory, directory)
        # A flush under way looks for files where they no longer are: it proves nothing now.
        self.truncation_count += 1
        self._unsynced_paths = {
            directory + path.removeprefix(self.directory): change
            for path, change in self._unsynced_paths.items()
        }
        self.directory = directory
        for segment in self.segments:
            segment.move_to(directory)

    def _note_closed(self, segment: LogSegment) -> None:
        for path in self._paths(segment):
            self.sync_with_next_flush(path)

    def _paths(self, segment: LogSegment) -> list[str]:
        return [
            f"{self.directory}/{segment_file_name(segment.base_offset, extension)}"
            for extension in SEGMENT_EXTENSIONS
        ]

    def _create_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        jitter_ms = self.config.segment_jitter_ms
        self.names_version += 1
        return LogSegment.create(
            self.filesystem,
            self.directory,
            base_offset,
            self.config,
            now_ms,
            roll_jitter_ms=self._random.randint(0, jitter_ms) if jitter_ms else 0,
        )

    def _remove_from_end(self, segments: list[LogSegment]) -> None:
        """Newest first and each for good: whatever a crash leaves of the log has no hole."""
        for segment in reversed(segments):
            self._remove([segment])
            self.sync_names()

    def _remove(self, segments: list[LogSegment]) -> None:
        self.names_version += 1
        for segment in segments:
            segment.change_suffix(DELETED)
        self.segments.remove(segments)
