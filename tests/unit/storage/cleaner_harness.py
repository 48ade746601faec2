"""A log manager with its cleaner on one thread; all background work waits in one list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.records.builder import RecordBatchBuilder
from millstream.storage.cleaner.cleaner import LogCleaner
from millstream.storage.log.config import LogConfig
from millstream.storage.manager.broker_config import CleanerConfig
from millstream.types import TopicPartition
from tests.unit.storage.manager_harness import TOPIC_ID, Broker

if TYPE_CHECKING:
    from millstream.storage.cleaner.cleaning_ports import CleaningStats
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.unified_log import UnifiedLog

BACKOFF_MS = 15_000
TABLE = TopicPartition("table", 0)
OTHER = TopicPartition("other", 0)


def compacted(**settings: Any) -> LogConfig:
    """Small segments, compacted as soon as anything is dirty."""
    values: dict[str, Any] = {
        "cleanup_policy": ("compact",),
        "internal_segment_bytes": 1000,
        "index_interval_bytes": 200,
        "segment_index_bytes": 4000,
        "min_cleanable_dirty_ratio": 0.0,
        "file_delete_delay_ms": 1000,
    }
    return LogConfig(**{**values, **settings})


class CleaningBroker(Broker):
    """A broker whose logs are compacted."""

    def __init__(self, filesystem: FileSystem, path: str, **settings: Any) -> None:
        super().__init__(filesystem, (path,))
        self.defaults = compacted()
        self.cleaned: list[CleaningStats] = []
        self.format().start()
        self.cleaner = self.make_cleaner(CleanerConfig(**settings))

    def make_cleaner(self, config: CleanerConfig) -> LogCleaner:
        """Another cleaner in the place of the present one."""
        self.cleaner = LogCleaner(
            self.manager,
            config,
            filesystem=self.filesystem,
            clock=self.clock,
            run=self.events.append,
            post=self.events.append,
            on_cleaned=self.cleaned.append,
        )
        self.manager.cleaner = self.cleaner
        return self.cleaner

    def log(self, partition: TopicPartition = TABLE) -> UnifiedLog:
        """A partition's log."""
        return self.manager.get_or_create(partition, TOPIC_ID, is_new=True)

    def write(
        self,
        count: int,
        partition: TopicPartition = TABLE,
        *,
        key_count: int = 3,
        value_bytes: int = 60,
        timestamp: int | None = None,
    ) -> None:
        """Batches of one record each, over and over the same keys."""
        log = self.log(partition)
        now_ms = self.clock.wall_ms()
        for number in range(count):
            builder = RecordBatchBuilder()
            value = b"%d" % log.log_end_offset + b"." * value_bytes
            builder.append(timestamp or now_ms, b"k%d" % (number % key_count), value)
            log.append_as_leader(builder.build(), 0, now_ms)
        log.update_high_watermark(log.log_end_offset)

    def write_batch(self, keys: list[bytes]) -> None:
        """One batch with a record for each key."""
        builder = RecordBatchBuilder()
        for key in keys:
            builder.append(self.clock.wall_ms(), key, b"value")
        self.log().append_as_leader(builder.build(), 0, self.clock.wall_ms())

    def rows(self, partition: TopicPartition = TABLE) -> list[tuple[int, bytes | None]]:
        """Offset and key of every record that is left."""
        return [
            (record.offset, record.key)
            for segment in self.log(partition).segments
            for _, batch in segment.batches()
            for record in batch.records()
        ]

    def clean(self) -> None:
        """Until the cleaner rests."""
        for _ in range(1000):
            deadline_ms = self.cleaner.next_deadline_ms()
            assert deadline_ms is not None
            if deadline_ms - self.clock.monotonic_ms() >= BACKOFF_MS:
                return
            self.clock.advance(max(deadline_ms - self.clock.monotonic_ms(), 0))
            self.cleaner.tick()
            self.settle()
        raise AssertionError("the cleaner finds no end")
