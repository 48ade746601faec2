"""A segment after faults: recovery, damaged indexes, truncation, a full disk."""

from __future__ import annotations

from random import Random
from struct import pack
from typing import TYPE_CHECKING

import pytest

from millstream.errors import CorruptMessage
from millstream.records.batch import RecordBatch
from millstream.storage.filesystem import FileSlice
from millstream.storage.log.config import LogConfig
from millstream.storage.log.segment import LogSegment
from millstream.storage.log.time_lookup import find_by_timestamp
from millstream.storage.log.transaction_index import AbortedTransaction
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.batches import NOW_MS, batch_bytes

if TYPE_CHECKING:
    from millstream.records.legacy import LegacyBatch
    from millstream.storage.filesystem import FileSystem

BASE = 1000
COUNT = 40
CONFIG = LogConfig(index_interval_bytes=300, segment_index_bytes=2400)
LOG = "00000000000000001000.log"
INDEX = "00000000000000001000.index"
TIME_INDEX = "00000000000000001000.timeindex"


@pytest.fixture
def batches() -> list[bytes]:
    return [batch_bytes(BASE + 2 * i, records=2) for i in range(COUNT)]


def written(filesystem: FileSystem, directory: str, batches: list[bytes]) -> LogSegment:
    segment = LogSegment.create(filesystem, directory, BASE, CONFIG, NOW_MS)
    for data in batches:
        batch = RecordBatch(data)
        segment.append(data, batch.last_offset, batch.max_timestamp)
    return segment


def opened(filesystem: FileSystem, directory: str) -> LogSegment:
    size = filesystem.open(f"{directory}/{LOG}").size()
    return LogSegment(filesystem, directory, BASE, CONFIG, size=size, created_ms=NOW_MS)


def indexes_on_disk(filesystem: FileSystem, directory: str) -> tuple[bytes, bytes]:
    return (
        filesystem.read_bytes(f"{directory}/{INDEX}"),
        filesystem.read_bytes(f"{directory}/{TIME_INDEX}"),
    )


def test_recovery_of_an_intact_log_rebuilds_equal_indexes(
    filesystem: FileSystem, directory: str, batches: list[bytes]
) -> None:
    written(filesystem, directory, batches).close()
    before = indexes_on_disk(filesystem, directory)
    seen: list[RecordBatch | LegacyBatch] = []

    segment = opened(filesystem, directory)
    cut = segment.recover(seen.append)
    segment.close()

    assert cut == 0
    assert [batch.last_offset for batch in seen] == [BASE + 2 * i + 1 for i in range(COUNT)]
    assert indexes_on_disk(filesystem, directory) == before


@pytest.mark.parametrize("lost", [1, 30, 60])
def test_a_torn_tail_is_cut(
    filesystem: FileSystem, directory: str, batches: list[bytes], lost: int
) -> None:
    segment = written(filesystem, directory, batches)
    filesystem.open(f"{directory}/{LOG}").truncate(segment.size - lost)

    segment = opened(filesystem, directory)
    cut = segment.recover()

    assert cut == len(batches[-1]) - lost
    assert segment.read_next_offset() == BASE + 2 * (COUNT - 1)
    assert filesystem.read_bytes(f"{directory}/{LOG}") == b"".join(batches[:-1])


@pytest.mark.parametrize("at", [0, 8, 16, 17, 21, 23, 60, 70])
def test_a_damaged_batch_in_the_middle_ends_the_log(
    filesystem: FileSystem,
    directory: str,
    batches: list[bytes],
    at: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    written(filesystem, directory, batches)
    position = sum(map(len, batches[:10])) + at
    file = filesystem.open(f"{directory}/{LOG}")
    file.pwrite(bytes([file.pread(1, position)[0] ^ 0x80]), position)

    segment = opened(filesystem, directory)
    segment.recover()

    assert segment.read_next_offset() == BASE + 20
    assert "is good up to here" in caplog.text
    assert segment.recover() == 0


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\xff" * 100, b"x" * 17, b"\0"])
def test_garbage_behind_the_last_batch_is_cut(
    filesystem: FileSystem, directory: str, batches: list[bytes], tail: bytes
) -> None:
    segment = written(filesystem, directory, batches)
    filesystem.open(f"{directory}/{LOG}").pwrite(tail, segment.size)

    segment = opened(filesystem, directory)

    assert segment.recover() == len(tail)
    assert segment.read_next_offset() == BASE + 2 * COUNT


def test_a_batch_with_an_offset_that_goes_back_ends_the_log(
    filesystem: FileSystem, directory: str, batches: list[bytes]
) -> None:
    written(filesystem, directory, [*batches[:5], *batches[3:5]])

    segment = opened(filesystem, directory)
    segment.recover()

    assert segment.read_next_offset() == BASE + 10


def test_recovery_forgets_aborted_transactions_and_lets_the_caller_add_them(
    filesystem: FileSystem, directory: str, batches: list[bytes]
) -> None:
    segment = written(filesystem, directory, batches)
    segment.indexes.transactions.append(AbortedTransaction(1, BASE, BASE + 1, BASE + 2))

    segment = opened(filesystem, directory)
    segment.recover()

    assert segment.indexes.transactions.entries() == []


def test_an_empty_log_recovers_to_an_empty_log(filesystem: FileSystem, directory: str) -> None:
    written(filesystem, directory, [])
    filesystem.open(f"{directory}/{INDEX}", create=True).pwrite(b"leftover", 0)

    segment = opened(filesystem, directory)

    assert segment.recover() == 0
    assert segment.read_next_offset() == BASE
    assert segment.find_batch(BASE) is None


def test_a_log_larger_than_one_read_recovers(filesystem: FileSystem, directory: str) -> None:
    big = [batch_bytes(BASE + i, value_bytes=700_000) for i in range(4)]
    small = [batch_bytes(BASE + 4 + i) for i in range(3)]
    huge = [batch_bytes(BASE + 7, value_bytes=3_000_000)]
    written(filesystem, directory, big + small + huge).close()

    segment = opened(filesystem, directory)

    assert segment.recover() == 0
    assert segment.read_next_offset() == BASE + 8


# Indexes are hints.


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"odd length",
        bytes(800),
        pack(">ii", 5, 10**6),
        pack(">ii", 41, 333),  # Points into the middle of a batch.
        b"".join(pack(">ii", 2 * i, 1000 + i) for i in range(1, 20)),
    ],
    ids=["missing", "empty", "odd", "zeros", "beyond", "mid-batch", "foreign"],
)
def test_a_damaged_offset_index_never_gives_a_wrong_answer(
    filesystem: FileSystem, directory: str, batches: list[bytes], content: bytes | None
) -> None:
    written(filesystem, directory, batches).close()
    filesystem.remove(f"{directory}/{INDEX}")
    if content is not None:
        filesystem.open(f"{directory}/{INDEX}", create=True).pwrite(content, 0)

    segment = opened(filesystem, directory)

    for offset in (BASE + 41, BASE, BASE + 79, BASE + 30):
        head = segment.find_batch(offset)
        assert head is not None
        assert head.base_offset <= offset <= head.last_offset
    assert segment.find_batch(BASE + 2 * COUNT) is None


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"odd length",
        pack(">qi", NOW_MS + 10, 70),  # A time that offset does not have.
        b"".join(pack(">qi", NOW_MS + BASE + i, 40 + i) for i in range(1, 20)),
    ],
    ids=["missing", "odd", "wrong", "foreign"],
)
def test_a_damaged_time_index_never_gives_a_wrong_answer(
    filesystem: FileSystem, directory: str, batches: list[bytes], content: bytes | None
) -> None:
    written(filesystem, directory, batches).close()
    filesystem.remove(f"{directory}/{TIME_INDEX}")
    if content is not None:
        filesystem.open(f"{directory}/{TIME_INDEX}", create=True).pwrite(content, 0)

    segment = opened(filesystem, directory)

    for i in (41, 5, 79, 11):
        found = find_by_timestamp(segment, NOW_MS + BASE + i, BASE)
        assert found is not None
        assert found.offset == BASE + i


def test_a_time_entry_that_the_log_does_not_bear_out_is_not_followed(
    filesystem: FileSystem, directory: str, batches: list[bytes]
) -> None:
    written(filesystem, directory, batches).close()
    path = f"{directory}/{TIME_INDEX}"
    entry = pack(">qi", NOW_MS + BASE + 1, 61)  # In order, but that offset has a later time.
    filesystem.open(path).pwrite(entry, 0)

    segment = opened(filesystem, directory)

    for i in (3, 41, 79):
        found = find_by_timestamp(segment, NOW_MS + BASE + i, BASE)
        assert found is not None
        assert found.offset == BASE + i


def test_rebuilt_indexes_are_those_of_the_appends(
    filesystem: FileSystem, directory: str, batches: list[bytes]
) -> None:
    written(filesystem, directory, batches).close()
    before = indexes_on_disk(filesystem, directory)
    filesystem.remove(f"{directory}/{INDEX}")

    segment = opened(filesystem, directory)
    segment.find_batch(BASE)
    segment.close()

    assert indexes_on_disk(filesystem, directory) == before


def test_a_damaged_log_raises_instead_of_answering(
    filesystem: FileSystem, directory: str, batches: list[bytes]
) -> None:
    written(filesystem, directory, batches).close()
    position = sum(map(len, batches[:2]))
    filesystem.open(f"{directory}/{LOG}").pwrite(b"\xff" * 61, position)

    segment = opened(filesystem, directory)

    assert segment.find_batch(BASE + 3) is not None
    with pytest.raises(CorruptMessage, match=LOG):
        segment.find_batch(BASE + 4)


def test_a_log_that_was_cut_from_outside_raises_instead_of_answering(
    filesystem: FileSystem, directory: str, batches: list[bytes]
) -> None:
    written(filesystem, directory, batches).close()
    segment = opened(filesystem, directory)
    filesystem.open(f"{directory}/{LOG}").truncate(len(batches[0]))

    assert segment.find_batch(BASE) is not None
    with pytest.raises(CorruptMessage, match="too few bytes"):
        segment.find_batch(BASE + 2)


def test_a_damaged_record_is_not_used_for_a_time(
    filesystem: FileSystem, directory: str, batches: list[bytes]
) -> None:
    written(filesystem, directory, batches).close()
    filesystem.open(f"{directory}/{LOG}").pwrite(b"\xff", 65)

    with pytest.raises(CorruptMessage, match="checksum"):
        find_by_timestamp(opened(filesystem, directory), NOW_MS, BASE)


# Truncation.


@pytest.mark.parametrize(("to", "kept"), [(0, 0), (1, 0), (2, 1), (41, 20), (79, 39), (80, 40)])
def test_truncation_cuts_the_batch_of_the_offset_and_all_after(
    filesystem: FileSystem, directory: str, batches: list[bytes], to: int, kept: int
) -> None:
    segment = written(filesystem, directory, batches)

    cut = segment.truncate_to(BASE + to, NOW_MS)

    assert cut == sum(map(len, batches[kept:]))
    assert filesystem.read_bytes(f"{directory}/{LOG}") == b"".join(batches[:kept])
    assert segment.read_next_offset() == BASE + 2 * kept
    last = NOW_MS + BASE + 2 * kept - 1 if kept else -1
    assert segment.largest.timestamp == last


def test_appends_go_on_after_truncation(
    filesystem: FileSystem, directory: str, batches: list[bytes]
) -> None:
    segment = written(filesystem, directory, batches)
    segment.close()
    segment = opened(filesystem, directory)

    segment.truncate_to(BASE + 20, NOW_MS)
    for data in batches[10:]:
        batch = RecordBatch(data)
        segment.append(data, batch.last_offset, batch.max_timestamp)
    segment.close()

    assert filesystem.read_bytes(f"{directory}/{LOG}") == b"".join(batches)
    segment = opened(filesystem, directory)
    for offset in range(BASE, BASE + 2 * COUNT):
        head = segment.find_batch(offset)
        assert head is not None
        assert head.base_offset <= offset <= head.last_offset


# A full disk.


def test_a_failed_append_leaves_the_log_as_it_was(batches: list[bytes]) -> None:
    filesystem = SimFileSystem(Random(1))
    segment = written(filesystem, "", batches[:5])
    size = segment.size
    filesystem.capacity_bytes = size + 30

    with pytest.raises(OSError, match="No space left"):
        segment.append(batches[5], BASE + 11, NOW_MS)

    assert segment.size == size
    assert filesystem.read_bytes(f"/{LOG}") == b"".join(batches[:5])
    assert segment.find_batch(BASE + 10) is None
    filesystem.capacity_bytes = None
    segment.append(batches[5], BASE + 11, NOW_MS)
    assert segment.read_next_offset() == BASE + 12


def test_what_a_failed_append_left_behind_is_never_read(batches: list[bytes]) -> None:
    filesystem = SimFileSystem(Random(1))
    segment = written(filesystem, "", batches[:5])
    size = segment.size
    filesystem.capacity_bytes = size + 30

    def fail_to_cut(operation: str, _path: str, _size: int) -> None:
        if operation == "truncate":
            raise OSError("cannot cut")

    filesystem.before_operation = fail_to_cut
    with pytest.raises(OSError, match="No space left"):
        segment.append(batches[5], BASE + 11, NOW_MS)
    filesystem.before_operation = None

    assert len(filesystem.read_bytes(f"/{LOG}")) == size + 30
    records = FileSlice(segment.open_file(), 0, segment.size)
    assert records.read() == b"".join(batches[:5])
    filesystem.capacity_bytes = None
    segment.close()
    assert filesystem.read_bytes(f"/{LOG}") == b"".join(batches[:5])


def test_synced_records_survive_a_power_loss_and_nothing_else_is_invented(
    batches: list[bytes],
) -> None:
    for seed in range(60):
        filesystem = SimFileSystem(Random(seed))
        synced = Random(seed).randrange(COUNT)
        segment = written(filesystem, "", batches[:synced])
        segment.sync_log()
        for data in batches[synced:]:
            batch = RecordBatch(data)
            segment.append(data, batch.last_offset, batch.max_timestamp)

        after = filesystem.after_power_loss()
        segment = opened(after, "")
        segment.recover()

        content = after.read_bytes(f"/{LOG}")
        whole = [b"".join(batches[:count]) for count in range(synced, COUNT + 1)]
        assert content in whole
