"""The cleaner: which log it takes, what comes of it, and what keeps it away."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from millstream.storage.checkpoint import CLEANER_FILE, read_offsets
from millstream.storage.cleaner.cleaner import LogCleaner
from millstream.storage.manager.broker_config import CleanerConfig
from millstream.types import TopicPartition
from tests.unit.storage.cleaner_harness import (
    BACKOFF_MS,
    OTHER,
    TABLE,
    CleaningBroker,
    compacted,
)
from tests.unit.storage.manager_harness import names_in, restarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.storage.filesystem import FileSystem


@pytest.fixture
def broker(filesystem: FileSystem, directory: str) -> CleaningBroker:
    return CleaningBroker(filesystem, directory)


class TestAPass:
    def test_leaves_the_last_record_of_each_key_where_it_was(self, broker: CleaningBroker) -> None:
        broker.write(60)
        active = broker.log().segments.active.base_offset
        broker.clean()
        cleaned = [row for row in broker.rows() if row[0] < active]
        assert cleaned == [(active - 3 + i, b"k%d" % ((active - 3 + i) % 3)) for i in range(3)]
        assert [row[0] for row in broker.rows() if row[0] >= active] == list(range(active, 60))

    def test_makes_few_segments_of_many(self, broker: CleaningBroker) -> None:
        broker.write(60)
        assert len(broker.log().segments) > 6
        broker.clean()
        broker.write(20)
        broker.clock.advance(BACKOFF_MS)
        broker.clean()
        assert len(broker.log().segments) < 6

    def test_says_up_to_where_the_log_is_clean(
        self, broker: CleaningBroker, directory: str
    ) -> None:
        broker.write(60)
        broker.clean()
        active = broker.log().segments.active.base_offset
        assert broker.manager.cleaner_offset(TABLE) == active
        path = f"{directory}/{CLEANER_FILE}"
        assert read_offsets(broker.filesystem, path) == {TABLE: active}

    def test_reports_what_it_did(self, broker: CleaningBroker) -> None:
        broker.write(60)
        size_before = broker.log().size - broker.log().segments.active.size
        broker.clean()
        (stats,) = broker.cleaned
        assert (stats.partition, stats.first_dirty_offset) == (TABLE, 0)
        assert stats.map_bytes_read == stats.bytes_read == size_before
        assert stats.bytes_written == broker.log().size - broker.log().segments.active.size
        assert stats.key_count == 3
        assert stats.dirty_ratio == 1.0
        assert 0 < stats.size_ratio < 0.2

    def test_removes_the_old_files_after_their_delay(
        self, broker: CleaningBroker, directory: str
    ) -> None:
        broker.write(60)
        broker.clean()
        path = f"{directory}/table-0"
        assert any(name.endswith(".deleted") for name in names_in(broker.filesystem, path))
        broker.pass_time(2000)
        names = names_in(broker.filesystem, path)
        assert not any(name.endswith((".deleted", ".cleaned", ".swap")) for name in names)

    def test_keeps_readers_going(self, broker: CleaningBroker) -> None:
        broker.write(60)
        before = broker.log().read(0, 1 << 20).records
        assert before is not None
        broker.clean()
        assert len(before.read()) == before.length
        found = broker.log().read(0, 1 << 20)
        assert found.records is not None

    def test_survives_a_restart(self, broker: CleaningBroker) -> None:
        broker.write(60)
        broker.clean()
        rows = broker.rows()
        broker.cleaner.close()
        assert broker.manager.stop() == {}
        manager = restarted(broker).start()
        log = manager.get(TABLE)
        assert log is not None
        found = [
            (record.offset, record.key)
            for segment in log.segments
            for _, batch in segment.batches()
            for record in batch.records()
        ]
        assert found == rows
        assert manager.cleaner_offset(TABLE) == log.segments.active.base_offset

    def test_takes_several_rounds_if_the_keys_do_not_fit(self, broker: CleaningBroker) -> None:
        config = CleanerConfig()
        object.__setattr__(config, "dedupe_buffer_size", 20 * 24)
        broker.make_cleaner(config)
        broker.write(60, key_count=40)
        broker.clean()
        assert len(broker.cleaned) >= 3
        keys = [key for offset, key in broker.rows() if offset < broker.cleaned[-1].end_offset]
        assert len(keys) == len(set(keys))

    def test_runs_on_a_thread_of_its_own(self, broker: CleaningBroker) -> None:
        broker.write(60)
        posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        with ThreadPoolExecutor(1) as pool:
            cleaner = LogCleaner(
                broker.manager,
                CleanerConfig(),
                filesystem=broker.filesystem,
                clock=broker.clock,
                run=pool.submit,
                post=posted.put,
                on_cleaned=broker.cleaned.append,
            )
            cleaner.tick()
            while not broker.cleaned:
                posted.get(timeout=30)()
        assert len(broker.rows()) < 60


class TestChoosing:
    def test_the_dirtiest_log_comes_first(self, broker: CleaningBroker) -> None:
        broker.write(60, TABLE)
        broker.clean()
        broker.write(10, TABLE)
        broker.write(60, OTHER)
        broker.cleaned.clear()
        broker.clock.advance(BACKOFF_MS)
        broker.clean()
        assert [stats.partition for stats in broker.cleaned] == [OTHER, TABLE]

    def test_a_log_that_is_clean_enough_is_left_alone(self, broker: CleaningBroker) -> None:
        broker.defaults = compacted(min_cleanable_dirty_ratio=0.6)
        broker.write(60, key_count=60)
        broker.clean()
        broker.write(40, key_count=40)
        broker.clock.advance(BACKOFF_MS)
        broker.clean()
        assert len(broker.cleaned) == 1

    def test_unless_a_record_has_waited_too_long(self, broker: CleaningBroker) -> None:
        broker.defaults = compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=50_000)
        broker.write(60)
        broker.clean()
        assert not broker.cleaned
        broker.clock.advance(60_000)
        broker.clean()
        assert len(broker.cleaned) == 1

    def test_a_segment_ends_in_time_for_that(self, broker: CleaningBroker) -> None:
        broker.defaults = compacted(max_compaction_lag_ms=50_000)
        broker.write(1)
        broker.clock.advance(50_001)
        broker.write(1)
        assert broker.log().segments.base_offsets == (0, 1)

    def test_what_is_young_is_left_alone(self, broker: CleaningBroker) -> None:
        broker.defaults = compacted(min_compaction_lag_ms=100_000)
        old = broker.clock.wall_ms() - 200_000
        broker.write(20, timestamp=old)
        broker.log().roll(broker.clock.wall_ms())
        broker.write(40)
        broker.clean()
        assert [stats.end_offset for stats in broker.cleaned] == [20]

    def test_what_is_not_committed_is_left_alone(self, broker: CleaningBroker) -> None:
        broker.write(60)
        broker.log().update_high_watermark(25)
        broker.clean()
        (stats,) = broker.cleaned
        assert 10 < stats.end_offset <= 25

    def test_a_log_that_is_not_compacted_is_left_alone(self, broker: CleaningBroker) -> None:
        broker.configs["table"] = compacted(cleanup_policy=("delete",))
        broker.write(60)
        broker.clean()
        assert not broker.cleaned

    def test_many_logs_are_looked_at_in_slices(self, broker: CleaningBroker) -> None:
        partitions = [TopicPartition("table", number) for number in range(40)]
        for partition in partitions:
            broker.log(partition)
        broker.write(60, partitions[0])
        broker.cleaner.tick()
        assert not broker.cleaner.is_busy(partitions[0])
        broker.clean()
        assert [stats.partition for stats in broker.cleaned] == [partitions[0]]

    def test_it_rests_when_there_is_nothing_to_do(self, broker: CleaningBroker) -> None:
        broker.cleaner.tick()
        assert broker.cleaner.next_deadline_ms() == broker.clock.monotonic_ms() + BACKOFF_MS

    def test_it_does_nothing_where_it_is_switched_off(self, broker: CleaningBroker) -> None:
        cleaner = broker.make_cleaner(CleanerConfig(enable=False))
        broker.write(60)
        assert cleaner.next_deadline_ms() is None
        cleaner.tick()
        assert not broker.events


class TestKeepingItAway:
    def begin(self, broker: CleaningBroker) -> None:
        broker.write(60)
        broker.cleaner.tick()
        assert broker.cleaner.is_busy(TABLE)

    def test_a_pause_lets_the_pass_come_to_nothing(
        self, broker: CleaningBroker, directory: str
    ) -> None:
        self.begin(broker)
        broker.events.popleft()()  # The worker has made a segment; the owner does not know yet.
        broker.cleaner.pause(TABLE)
        broker.settle()
        assert not broker.cleaner.is_busy(TABLE)
        assert len(broker.rows()) == 60
        names = names_in(broker.filesystem, f"{directory}/table-0")
        assert not any(name.endswith(".cleaned") for name in names)

    def test_as_many_resumes_are_needed_as_there_were_pauses(self, broker: CleaningBroker) -> None:
        broker.write(60)
        broker.cleaner.pause(TABLE)
        broker.cleaner.pause(TABLE)
        broker.cleaner.resume(TABLE)
        broker.clean()
        assert not broker.cleaned
        broker.cleaner.resume(TABLE)
        broker.clock.advance(BACKOFF_MS)
        broker.clean()
        assert len(broker.cleaned) == 1

    def test_a_pause_between_two_swaps_keeps_the_first(self, broker: CleaningBroker) -> None:
        broker.make_cleaner(CleanerConfig(io_max_bytes_per_second=20_000.0))
        broker.write(60, key_count=60)
        first = broker.log().segments.first
        while broker.log().segments.first is first:
            broker.clock.advance(50)
            broker.cleaner.tick()
            broker.settle()
        assert broker.cleaner.is_busy(TABLE)
        broker.cleaner.pause(TABLE)
        broker.settle()
        assert not broker.cleaner.is_busy(TABLE)
        assert not broker.cleaned
        assert [offset for offset, _ in broker.rows()] == list(range(60))

    def test_truncation_through_the_manager_wins(self, broker: CleaningBroker) -> None:
        self.begin(broker)
        broker.events.popleft()()
        broker.manager.truncate_to(TABLE, 30)
        broker.settle()
        assert broker.log().log_end_offset == 30
        assert len(broker.rows()) == 30
        assert not broker.cleaned

    def test_deletion_through_the_manager_wins(self, broker: CleaningBroker) -> None:
        self.begin(broker)
        broker.events.popleft()()
        broker.manager.delete(TABLE)
        broker.settle()
        assert not broker.cleaner.is_busy(TABLE)
        assert not broker.cleaner.uncleanable
        assert not broker.failures

    def test_close_ends_everything(self, broker: CleaningBroker) -> None:
        self.begin(broker)
        broker.cleaner.close()
        broker.settle()
        assert broker.cleaner.next_deadline_ms() is None
        assert len(broker.rows()) == 60


def test_the_throttle_spreads_the_work_over_time(broker: CleaningBroker) -> None:
    broker.make_cleaner(CleanerConfig(io_max_bytes_per_second=1000.0))
    broker.write(60)
    size = broker.log().size - broker.log().segments.active.size
    broker.clean()
    (stats,) = broker.cleaned
    total = stats.map_bytes_read + stats.bytes_read + stats.bytes_written
    assert total >= 2 * size
    assert stats.duration_ms >= (total - 500) * 1000 // 1000


def test_new_settings_count_from_the_next_slice_on(broker: CleaningBroker) -> None:
    broker.make_cleaner(CleanerConfig(io_max_bytes_per_second=10.0))
    broker.write(60)
    broker.cleaner.tick()
    broker.settle()
    broker.cleaner.update_config(CleanerConfig())
    broker.clean()
    (stats,) = broker.cleaned
    assert stats.duration_ms < 60_000
