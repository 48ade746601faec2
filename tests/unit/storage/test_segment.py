"""One segment: appends, lookups, rolling, and what its files look like."""

from __future__ import annotations

from struct import pack, unpack
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidArgument
from millstream.records.batch import RecordBatch, split_batches
from millstream.storage.filesystem import FileSlice
from millstream.storage.log.config import LogConfig
from millstream.storage.log.segment import LogSegment
from millstream.storage.log.time_lookup import find_by_timestamp
from tests.unit.storage.batches import NOW_MS, batch_bytes

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

BASE = 1000
CONFIG = LogConfig(
    internal_segment_bytes=100_000, index_interval_bytes=300, segment_index_bytes=2400
)


@pytest.fixture
def segment(filesystem: FileSystem, directory: str) -> LogSegment:
    return LogSegment.create(filesystem, directory, BASE, CONFIG, NOW_MS)


def append(segment: LogSegment, data: bytes) -> None:
    batch = RecordBatch(data)
    segment.append(data, batch.last_offset, batch.max_timestamp)


def fill(segment: LogSegment, count: int = 40, records: int = 2) -> list[bytes]:
    """Batches of `records` records each, from the base offset on."""
    batches = [batch_bytes(BASE + records * i, records=records) for i in range(count)]
    for data in batches:
        append(segment, data)
    return batches


def reopened(filesystem: FileSystem, directory: str, segment: LogSegment) -> LogSegment:
    return LogSegment(filesystem, directory, BASE, CONFIG, size=segment.size, created_ms=NOW_MS)


def names(filesystem: FileSystem, directory: str) -> set[str]:
    return {status.name for status in filesystem.scan(directory)}


def test_appended_bytes_are_in_the_file_as_they_were(
    segment: LogSegment, filesystem: FileSystem, directory: str
) -> None:
    batches = fill(segment)

    assert filesystem.read_bytes(f"{directory}/00000000000000001000.log") == b"".join(batches)
    assert segment.size == sum(map(len, batches))
    assert segment.read_next_offset() == BASE + 80


@pytest.mark.parametrize("is_reopened", [False, True])
def test_every_offset_is_found_in_its_batch(
    segment: LogSegment, filesystem: FileSystem, directory: str, is_reopened: bool
) -> None:
    fill(segment, records=3)
    if is_reopened:
        segment.close()
        segment = reopened(filesystem, directory, segment)

    for offset in range(BASE, BASE + 120):
        head = segment.find_batch(offset)
        assert head is not None
        assert head.base_offset <= offset <= head.last_offset
    assert segment.find_batch(BASE + 120) is None


@pytest.mark.parametrize("is_damaged", [False, True])
def test_large_batches_are_found_with_or_without_the_entry_behind_the_offset(
    filesystem: FileSystem, directory: str, is_damaged: bool
) -> None:
    """Each batch has an entry; one that points elsewhere is not believed."""
    segment = LogSegment.create(filesystem, directory, BASE, LogConfig(), NOW_MS)
    for i in range(8):
        batch = batch_bytes(BASE + 3 * i, records=3, value_bytes=3000)
        segment.append(batch, BASE + 3 * i + 2, NOW_MS)
    entry = segment.indexes.offsets.entry
    assert [entry(slot).offset for slot in range(7)] == [BASE + 3 * i + 2 for i in range(1, 8)]
    if is_damaged:
        segment.indexes.release()
        path = f"{directory}/{BASE:020}.index"
        file = filesystem.open(path)
        file.pwrite(pack(">i", entry(3).position + 11), 3 * 8 + 4)
        segment.indexes.release()

    for offset in range(BASE, BASE + 24):
        head = segment.find_batch(offset)
        assert head is not None
        assert head.base_offset <= offset <= head.last_offset
        assert (offset - BASE) // 3 * head.size == head.position


def test_a_slice_outlives_its_segment(segment: LogSegment) -> None:
    batches = fill(segment)
    records = FileSlice(segment.open_file(), 0, segment.size)

    segment.change_suffix(".deleted")
    segment.delete_files()

    assert records.read() == b"".join(batches)


def test_index_entries_come_after_the_interval_as_kafka_adds_them(
    segment: LogSegment, filesystem: FileSystem, directory: str
) -> None:
    batches = fill(segment, count=12)
    size = len(batches[0])
    segment.close()

    index = filesystem.read_bytes(f"{directory}/00000000000000001000.index")
    times = filesystem.read_bytes(f"{directory}/00000000000000001000.timeindex")

    # An entry for a batch when more than 300 bytes have been written since the last entry.
    step = 300 // size + 1
    indexed = list(range(step, 12, step))
    assert unpack(f">{2 * len(indexed)}i", index) == tuple(
        number for i in indexed for number in (2 * i + 1, i * size)
    )
    # The same batches with the newest time so far, and one more entry at the end.
    expected = [NOW_MS + BASE + 2 * i + 1 for i in (*indexed, 11)]
    assert [unpack(">qi", times[i : i + 12])[0] for i in range(0, len(times), 12)] == expected


def test_several_batches_are_appended_with_one_write(
    segment: LogSegment, filesystem: FileSystem, directory: str
) -> None:
    data = b"".join(batch_bytes(BASE + i) for i in range(20))

    segment.append_batches(
        data, [(each.size, each.last_offset, each.max_timestamp) for each in split_batches(data)]
    )

    head = segment.find_batch(BASE + 13)
    assert head is not None
    assert head.base_offset == BASE + 13
    assert segment.size == len(data)
    assert segment.indexes.offsets.entry_count > 0
    with pytest.raises(InvalidArgument, match="do not fill"):
        segment.append_batches(data, [])


def test_an_offset_far_from_the_base_is_refused(segment: LogSegment) -> None:
    with pytest.raises(InvalidArgument, match="too far"):
        segment.append(batch_bytes(BASE + (1 << 31)), BASE + (1 << 31), NOW_MS)
    with pytest.raises(InvalidArgument, match="too far"):
        segment.append(batch_bytes(BASE - 1), BASE - 1, NOW_MS)
    assert segment.size == 0


# Rolling.


def should_roll(segment: LogSegment, **changes: int) -> bool:
    arguments = {
        "incoming_bytes": 100,
        "last_offset": BASE + 1,
        "max_timestamp": NOW_MS,
        "now_ms": NOW_MS,
    }
    return segment.should_roll(**(arguments | changes))


def test_a_segment_rolls_when_the_batch_does_not_fit(segment: LogSegment) -> None:
    fill(segment)

    assert not should_roll(segment, incoming_bytes=100_000 - segment.size)
    assert should_roll(segment, incoming_bytes=100_001 - segment.size)


def test_a_segment_rolls_by_the_time_of_its_records(segment: LogSegment) -> None:
    segment.update_config(LogConfig(segment_ms=1000))
    assert not should_roll(segment, max_timestamp=NOW_MS + 10**9, now_ms=NOW_MS + 10**9)
    append(segment, batch_bytes(BASE, timestamps=[NOW_MS]))

    assert not should_roll(segment, max_timestamp=NOW_MS + 1000, now_ms=NOW_MS + 10**9)
    assert should_roll(segment, max_timestamp=NOW_MS + 1001, now_ms=NOW_MS)


def test_a_segment_without_timestamps_rolls_by_its_age(
    filesystem: FileSystem, directory: str
) -> None:
    config = LogConfig(segment_ms=1000)
    segment = LogSegment.create(filesystem, directory, BASE, config, NOW_MS, roll_jitter_ms=100)
    append(segment, batch_bytes(BASE, timestamps=[-1]))

    assert not should_roll(segment, max_timestamp=-1, now_ms=NOW_MS + 900)
    assert should_roll(segment, max_timestamp=-1, now_ms=NOW_MS + 901)


def test_a_segment_rolls_when_an_index_is_full(filesystem: FileSystem, directory: str) -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=5 * 12)
    segment = LogSegment.create(filesystem, directory, BASE, config, NOW_MS)

    fill(segment, count=4, records=1)
    assert not should_roll(segment)
    append(segment, batch_bytes(BASE + 4))

    assert should_roll(segment)


def test_a_segment_whose_index_stayed_full_can_still_be_closed(
    filesystem: FileSystem, directory: str
) -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=3 * 12)
    segment = LogSegment.create(filesystem, directory, BASE, config, NOW_MS)
    fill(segment, count=10, records=1)
    segment.close()

    append(segment, batch_bytes(BASE + 10))
    segment.close()

    again = LogSegment(filesystem, directory, BASE, config, size=segment.size, created_ms=NOW_MS)
    assert again.read_next_offset() == BASE + 11
    assert should_roll(again)


def test_a_segment_rolls_when_the_offset_is_too_far(segment: LogSegment) -> None:
    assert not should_roll(segment, last_offset=BASE + 2**31 - 1)
    assert should_roll(segment, last_offset=BASE + 2**31)


def test_an_upper_bound_for_a_position_comes_from_the_index(segment: LogSegment) -> None:
    fill(segment)

    first_entry = segment.indexes.offsets.entry(0)

    assert segment.upper_bound_offset(1) == first_entry.offset
    assert segment.upper_bound_offset(segment.size) is None


# The end of use.


def test_closing_cuts_every_file_to_its_content(filesystem: FileSystem, directory: str) -> None:
    config = LogConfig(internal_segment_bytes=50_000, preallocate=True, index_interval_bytes=300)
    segment = LogSegment.create(filesystem, directory, BASE, config, NOW_MS)
    assert len(filesystem.read_bytes(f"{directory}/00000000000000001000.log")) == 50_000
    fill(segment)

    segment.close()
    segment.close()

    sizes = {status.name: status.size for status in filesystem.scan(directory)}
    assert sizes["00000000000000001000.log"] == segment.size
    assert sizes["00000000000000001000.index"] == 8 * segment.indexes.offsets.entry_count
    assert sizes["00000000000000001000.timeindex"] == 12 * segment.indexes.times.entry_count


def test_an_empty_segment_has_only_its_log_until_it_is_closed(
    segment: LogSegment, filesystem: FileSystem, directory: str
) -> None:
    assert names(filesystem, directory) == {"00000000000000001000.log"}

    segment.close()

    assert names(filesystem, directory) == {
        "00000000000000001000.log",
        "00000000000000001000.index",
        "00000000000000001000.timeindex",
    }


def test_use_goes_on_after_a_release(segment: LogSegment) -> None:
    fill(segment, count=20)

    segment.release()
    append(segment, batch_bytes(BASE + 40))
    segment.release()

    assert segment.read_next_offset() == BASE + 41
    assert find_by_timestamp(segment, NOW_MS + BASE + 40, BASE) is not None


def test_appends_go_on_in_a_reopened_segment(
    segment: LogSegment, filesystem: FileSystem, directory: str
) -> None:
    fill(segment, count=20)
    segment.close()

    segment = reopened(filesystem, directory, segment)
    append(segment, batch_bytes(BASE + 40, timestamps=[NOW_MS]))
    append(segment, batch_bytes(BASE + 41, timestamps=[NOW_MS + 10**6]))

    assert segment.largest == (NOW_MS + 10**6, BASE + 41)
    assert segment.read_next_offset() == BASE + 42
    segment.sync()


def test_leftover_files_of_the_same_name_are_not_believed(
    filesystem: FileSystem, directory: str
) -> None:
    for extension in ("log", "index", "timeindex", "txnindex"):
        path = f"{directory}/00000000000000001000.{extension}"
        filesystem.open(path, create=True).pwrite(b"garbage of another time", 0)

    segment = LogSegment.create(filesystem, directory, BASE, CONFIG, NOW_MS)

    assert names(filesystem, directory) == {"00000000000000001000.log"}
    assert segment.indexes.transactions.entries() == []


def test_all_files_are_renamed_and_removed_together(
    segment: LogSegment, filesystem: FileSystem, directory: str
) -> None:
    fill(segment)
    segment.seal()

    segment.change_suffix(".deleted")

    assert names(filesystem, directory) == {
        "00000000000000001000.log.deleted",
        "00000000000000001000.index.deleted",
        "00000000000000001000.timeindex.deleted",
    }
    assert segment.read_next_offset() == BASE + 80
    segment.delete_files()
    assert names(filesystem, directory) == set()


def test_a_segment_follows_its_renamed_directory(filesystem: FileSystem, directory: str) -> None:
    filesystem.make_directory(f"{directory}/t-0")
    segment = LogSegment.create(filesystem, f"{directory}/t-0", BASE, CONFIG, NOW_MS)
    fill(segment)
    segment.close()

    filesystem.rename(f"{directory}/t-0", f"{directory}/t-1")
    segment.move_to(f"{directory}/t-1")

    assert segment.read_next_offset() == BASE + 80


def test_whole_batches_can_be_walked(segment: LogSegment) -> None:
    fill(segment, count=3)

    assert [at.batch.last_offset - BASE for at in segment.batches()] == [1, 3, 5]
    assert [head.last_offset - BASE for head in segment.heads()] == [1, 3, 5]
