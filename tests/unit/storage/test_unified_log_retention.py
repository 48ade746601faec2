"""Retention: which old segments go, and what becomes of their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.config import replace
from tests.unit.storage.batches import NOW_MS
from tests.unit.storage.logs import SMALL, append, offsets, open_log

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.unified_log import UnifiedLog


class TestRetention:
    def expire(self, log: UnifiedLog, now_ms: int = NOW_MS) -> list[int]:
        return [segment.base_offset for segment in log.delete_old_segments(now_ms)]

    def filled(self, filesystem: FileSystem, directory: str, **config: str) -> UnifiedLog:
        keys = {name.replace("_", "."): value for name, value in config.items()}
        log = open_log(filesystem, directory, replace(SMALL, keys))
        for number in range(9):
            append(log, value_bytes=300, timestamps=[NOW_MS + number * 1000])
        log.update_high_watermark(9)
        assert log.segments.base_offsets == (0, 2, 4, 6, 8)
        return log

    def test_old_segments_go_by_their_newest_record(
        self, filesystem: FileSystem, directory: str
    ) -> None:
        log = self.filled(filesystem, directory, retention_ms="2000")

        assert self.expire(log, NOW_MS + 3000) == []
        assert self.expire(log, NOW_MS + 5001) == [0, 2]
        assert log.log_start_offset == 4
        assert offsets(log) == [4, 5, 6, 7, 8]

    def test_a_log_all_of_which_is_old_goes_on_empty(
        self, filesystem: FileSystem, directory: str
    ) -> None:
        log = self.filled(filesystem, directory, retention_ms="1000")

        assert self.expire(log, NOW_MS + 100_000) == [0, 2, 4, 6, 8]

        assert (log.log_start_offset, log.log_end_offset, log.size) == (9, 9, 0)
        assert append(log).first_offset == 9
        assert self.expire(log, NOW_MS) == []

    def test_the_size_of_the_log_is_limited(self, filesystem: FileSystem, directory: str) -> None:
        log = self.filled(filesystem, directory, retention_bytes="1600")

        assert self.expire(log) == [0, 2]
        assert log.size >= 1600

    def test_what_is_not_committed_stays(self, filesystem: FileSystem, directory: str) -> None:
        log = self.filled(filesystem, directory, retention_ms="0")
        log.update_high_watermark(5)

        assert self.expire(log, NOW_MS + 100_000) == [0, 2]

    def test_segments_before_the_log_start_go_whatever_the_policy(
        self, filesystem: FileSystem, directory: str
    ) -> None:
        log = self.filled(filesystem, directory, cleanup_policy="compact")
        log.raise_log_start_offset(5)

        assert self.expire(log, NOW_MS + 10**12) == [0, 2]
        assert log.log_start_offset == 5

    def test_unlimited_is_unlimited(self, filesystem: FileSystem, directory: str) -> None:
        log = self.filled(filesystem, directory, retention_ms="-1")

        assert self.expire(log, NOW_MS + 10**13) == []

    def test_records_without_time_go_by_the_segments_age(
        self, filesystem: FileSystem, directory: str
    ) -> None:
        log = open_log(filesystem, directory, replace(SMALL, {"retention.ms": "1000"}))
        append(log, timestamps=[-1])
        log.update_high_watermark(1)

        assert self.expire(log, NOW_MS + 1000) == []
        assert self.expire(log, NOW_MS + 1001) == [0]

    def test_deleted_files_wait_under_another_name(
        self, filesystem: FileSystem, directory: str
    ) -> None:
        log = self.filled(filesystem, directory, retention_bytes="1600")

        gone = log.delete_old_segments(NOW_MS)

        names = {entry.name for entry in filesystem.scan(directory)}
        assert f"{0:020d}.log.deleted" in names
        for segment in gone:
            segment.delete_files()
        assert not [each.name for each in filesystem.scan(directory) if "deleted" in each.name]
