"""A segment against a list of batches, with random operations, kills and power losses."""

from __future__ import annotations

from random import Random

import pytest

from millstream.records.batch import RecordBatch
from millstream.storage.log.config import LogConfig
from millstream.storage.log.segment import LogSegment
from millstream.storage.log.time_lookup import find_by_timestamp
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.batches import NOW_MS, batch_bytes

BASE = 500
CONFIG = LogConfig(
    internal_segment_bytes=1 << 20, index_interval_bytes=200, segment_index_bytes=12 * 400
)


class Story:
    """One random life of a segment, and what must be in it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.filesystem = SimFileSystem(Random(seed + 1))
        self.segment = LogSegment.create(self.filesystem, "", BASE, CONFIG, NOW_MS)
        self.segment.sync_log()
        self.batches: list[bytes] = []
        self.synced_count = 0

    @property
    def next_offset(self) -> int:
        return RecordBatch(self.batches[-1]).next_offset if self.batches else BASE

    def step(self) -> None:
        names = ["append", "append", "append", "truncate", "sync", "release", "reopen"]
        getattr(self, self.random.choice([*names, "kill", "power_loss"]))()

    def append(self) -> None:
        for _ in range(self.random.randint(1, 10)):
            count = self.random.randint(1, 4)
            offset = self.next_offset + self.random.choice([0, 0, 0, 7])
            data = batch_bytes(
                offset,
                records=count,
                timestamps=[NOW_MS + self.random.randrange(1000) for _ in range(count)],
                value_bytes=self.random.choice([0, 10, 100, 1000]),
            )
            batch = RecordBatch(data)
            self.segment.append(data, batch.last_offset, batch.max_timestamp)
            self.batches.append(data)

    def truncate(self) -> None:
        offset = self.random.randint(BASE, self.next_offset)
        self.segment.truncate_to(offset, NOW_MS)
        self.batches = [each for each in self.batches if RecordBatch(each).last_offset < offset]
        # As a log does: a truncation is made certain before anything is written again.
        self.sync()

    def sync(self) -> None:
        self.segment.sync_log()
        self.synced_count = len(self.batches)

    def release(self) -> None:
        self.segment.release()

    def reopen(self) -> None:
        self.segment.close()
        self._open()

    def kill(self) -> None:
        self.filesystem = self.filesystem.after_kill()
        self._open()
        assert self.segment.recover() == 0
        assert self._content() == b"".join(self.batches)

    def power_loss(self) -> None:
        self.filesystem = self.filesystem.after_power_loss()
        self._open()
        self.segment.recover()
        content = self._content()
        for count in range(self.synced_count, len(self.batches) + 1):
            if content == b"".join(self.batches[:count]):
                break
        else:
            pytest.fail("the recovered log is not a prefix that has every synced batch")
        self.batches = self.batches[:count]
        self.sync()

    def check(self) -> None:
        assert self.segment.size == sum(map(len, self.batches))
        assert self.segment.read_next_offset() == self.next_offset
        heads = [RecordBatch(each) for each in self.batches]
        for _ in range(5):
            offset = self.random.randint(BASE, self.next_offset + 2)
            expected = next((each for each in heads if each.last_offset >= offset), None)
            found = self.segment.find_batch(offset)
            assert (found and found.base_offset) == (expected and expected.base_offset)
        self._check_times(heads)

    def _check_times(self, heads: list[RecordBatch]) -> None:
        for _ in range(3):
            timestamp = NOW_MS + self.random.randrange(1010)
            from_offset = self.random.randint(BASE, self.next_offset)
            expected = next(
                (
                    record.offset
                    for head in heads
                    for record in head.records(from_offset)
                    if record.timestamp >= timestamp
                ),
                None,
            )
            found = find_by_timestamp(self.segment, timestamp, from_offset)
            assert (found and found.offset) == expected

    def _open(self) -> None:
        size = len(self._content())
        self.segment = LogSegment(self.filesystem, "", BASE, CONFIG, size=size, created_ms=NOW_MS)

    def _content(self) -> bytes:
        return self.filesystem.read_bytes("/00000000000000000500.log")


@pytest.mark.parametrize("seed", range(60))
def test_a_segment_holds_what_was_appended_and_finds_it(seed: int) -> None:
    story = Story(seed)

    for _ in range(25):
        story.step()
        story.check()
