"""The sparse indexes: Kafka's bytes, lookups, truncation, and files that cannot be indexes."""

from __future__ import annotations

from random import Random
from struct import pack
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidArgument
from millstream.storage.log.index import CorruptIndex, OffsetIndex, TimeIndex
from millstream.testing.sim_filesystem import SimFileSystem

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

BASE = 1_000_000_000_000
ROOM = 80_000


@pytest.fixture
def offsets(filesystem: FileSystem, directory: str) -> OffsetIndex:
    return OffsetIndex(filesystem, f"{directory}/i.index", BASE, ROOM)


@pytest.fixture
def times(filesystem: FileSystem, directory: str) -> TimeIndex:
    return TimeIndex(filesystem, f"{directory}/i.timeindex", BASE, ROOM)


def reopened(filesystem: FileSystem, index: OffsetIndex) -> OffsetIndex:
    return OffsetIndex(filesystem, index.path, index.base_offset, ROOM)


def test_offset_entries_have_kafkas_bytes_once_sealed(
    offsets: OffsetIndex, filesystem: FileSystem
) -> None:
    offsets.append(BASE + 9, 4200)
    offsets.append(BASE + 20, 8400)

    offsets.seal()

    assert filesystem.read_bytes(offsets.path) == pack(">iiii", 9, 4200, 20, 8400)


def test_time_entries_have_kafkas_bytes_once_sealed(
    times: TimeIndex, filesystem: FileSystem
) -> None:
    times.append_if_later(1_700_000_000_000, BASE + 9)
    times.append_if_later(1_700_000_000_000, BASE + 12)
    times.append_if_later(1_700_000_000_500, BASE + 20)

    times.seal()

    assert filesystem.read_bytes(times.path) == (
        pack(">qi", 1_700_000_000_000, 9) + pack(">qi", 1_700_000_000_500, 20)
    )


def test_an_index_in_use_has_its_full_size_on_disk(
    offsets: OffsetIndex, filesystem: FileSystem
) -> None:
    offsets.append(BASE + 1, 1)
    offsets.release()

    assert len(filesystem.read_bytes(offsets.path)) == ROOM


def test_an_index_without_entries_is_an_empty_file(
    offsets: OffsetIndex, filesystem: FileSystem
) -> None:
    assert not offsets.exists()

    offsets.seal()

    assert offsets.exists()
    assert filesystem.read_bytes(offsets.path) == b""


@pytest.mark.parametrize("count", [1, 2, 3, 511, 512, 513, 2000])
def test_lookup_finds_the_last_entry_at_or_before(
    offsets: OffsetIndex, filesystem: FileSystem, count: int
) -> None:
    for i in range(count):
        offsets.append(BASE + 10 * i + 5, 100 * i + 1)

    for index in (offsets, sealed_and_reopened(filesystem, offsets)):
        assert index.lookup(BASE + 4) == (BASE, 0)
        assert index.lookup(BASE + 10 * count * 5) == (BASE + 10 * count - 5, 100 * count - 99)
        for i in {0, 1, count // 2, count - 2, count - 1} & set(range(count)):
            exact, after = BASE + 10 * i + 5, BASE + 10 * i + 14
            assert index.lookup(exact) == (exact, 100 * i + 1)
            assert index.lookup(after) == (exact, 100 * i + 1)


def sealed_and_reopened(filesystem: FileSystem, index: OffsetIndex) -> OffsetIndex:
    index.seal()
    return reopened(filesystem, index)


def test_a_sealed_index_can_be_appended_to_again(
    offsets: OffsetIndex, filesystem: FileSystem
) -> None:
    offsets.append(BASE + 1, 1)
    again = sealed_and_reopened(filesystem, offsets)

    again.append(BASE + 2, 2)

    assert again.lookup(BASE + 1) == (BASE + 1, 1)
    again.seal()
    assert filesystem.read_bytes(offsets.path) == pack(">iiii", 1, 1, 2, 2)


def test_entries_survive_a_release(offsets: OffsetIndex) -> None:
    for i in range(1, 600):
        offsets.append(BASE + i, i)
        if i % 100 == 0:
            offsets.release()

    assert offsets.entry_count == 599
    assert offsets.lookup(BASE + 350) == (BASE + 350, 350)
    assert offsets.last_entry == (BASE + 599, 599)


def test_the_upper_bound_of_a_position(offsets: OffsetIndex) -> None:
    offsets.append(BASE + 10, 100)
    offsets.append(BASE + 20, 200)

    assert offsets.first_at_or_after(0) == (BASE + 10, 100)
    assert offsets.first_at_or_after(101) == (BASE + 20, 200)
    assert offsets.first_at_or_after(200) == (BASE + 20, 200)
    assert offsets.first_at_or_after(201) is None


@pytest.mark.parametrize("is_written", [True, False])
def test_truncation_forgets_the_entries_from_an_offset_on(
    offsets: OffsetIndex, times: TimeIndex, is_written: bool
) -> None:
    for i in range(1, 6):
        offsets.append(BASE + 10 * i, i)
        times.append_if_later(1000 * i, BASE + 10 * i)
    if is_written:
        offsets.release()
        times.release()

    offsets.truncate_to(BASE + 30)
    times.truncate_to(BASE + 31)

    assert offsets.last_entry == (BASE + 20, 2)
    assert times.last_entry == (3000, BASE + 30)
    offsets.append(BASE + 25, 7)
    assert offsets.lookup(BASE + 99) == (BASE + 25, 7)
    offsets.truncate_to(BASE)
    assert offsets.entry_count == 0
    assert offsets.last_entry == (BASE, 0)


def test_entries_must_follow_one_another(offsets: OffsetIndex, times: TimeIndex) -> None:
    offsets.append(BASE + 10, 100)
    times.append_if_later(1000, BASE + 10)

    with pytest.raises(InvalidArgument, match="does not follow"):
        offsets.append(BASE + 10, 200)
    with pytest.raises(InvalidArgument, match="does not follow"):
        times.append_if_later(2000, BASE + 9)
    with pytest.raises(InvalidArgument, match="too far"):
        offsets.append(BASE + (1 << 31), 200)


def test_a_full_index_says_so_and_time_keeps_a_slot_for_the_end(
    filesystem: FileSystem, directory: str
) -> None:
    offsets = OffsetIndex(filesystem, f"{directory}/f.index", BASE, 3 * 8 + 5)
    times = TimeIndex(filesystem, f"{directory}/f.timeindex", BASE, 3 * 12 + 5)

    for i in range(1, 4):
        assert not offsets.is_full
        offsets.append(BASE + i, i)
    for i in range(1, 3):
        assert not times.is_full
        times.append_if_later(i, BASE + i)

    assert offsets.is_full
    assert times.is_full
    with pytest.raises(InvalidArgument, match="full"):
        offsets.append(BASE + 9, 9)
    with pytest.raises(InvalidArgument, match="full"):
        times.append_if_later(9, BASE + 9)
    times.append_if_later(9, BASE + 9, is_last=True)
    assert times.last_entry == (9, BASE + 9)


def test_time_lookup_finds_the_last_entry_not_later(times: TimeIndex) -> None:
    times.append_if_later(100, BASE + 1)
    times.append_if_later(200, BASE + 5)

    assert times.lookup(99) == (-1, BASE)
    assert times.lookup(100) == (100, BASE + 1)
    assert times.lookup(199) == (100, BASE + 1)
    assert times.lookup(10_000) == (200, BASE + 5)


def test_clear_begins_again(offsets: OffsetIndex, filesystem: FileSystem) -> None:
    for i in range(1, 1000):
        offsets.append(BASE + i, i)
    assert offsets.lookup(BASE + 5).position == 5

    offsets.clear()

    assert offsets.lookup(BASE + 5) == (BASE, 0)
    offsets.append(BASE + 3, 30)
    offsets.seal()
    assert filesystem.read_bytes(offsets.path) == pack(">ii", 3, 30)


def test_a_renamed_index_keeps_its_entries(offsets: OffsetIndex, filesystem: FileSystem) -> None:
    offsets.append(BASE + 3, 30)
    offsets.release()
    filesystem.rename(offsets.path, offsets.path + ".deleted")

    offsets.move_to(offsets.path + ".deleted")

    assert offsets.lookup(BASE + 3) == (BASE + 3, 30)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"1234567", "not a multiple of 8"),
        (pack(">ii", -5, 100), "last entry"),
        (pack(">ii", 5, 1000), "has 1000 bytes"),
        (pack(">ii", 5, 0), "last entry"),
        (bytes(80), "last entry"),
        (pack(">iiii", 9, 10, 5, 20), "not in order"),
        (pack(">iiii", 1, 30, 5, 20), "not in order"),
    ],
)
def test_a_file_that_cannot_be_this_segments_offset_index_is_recognised(
    filesystem: FileSystem, offsets: OffsetIndex, content: bytes, complaint: str
) -> None:
    filesystem.open(offsets.path, create=True).pwrite(content, 0)

    with pytest.raises(CorruptIndex, match=complaint):
        offsets.check(log_bytes=1000)


@pytest.mark.parametrize(
    "content",
    [b"123", pack(">qi", 5, -1), pack(">qiqi", 9, 1, 5, 2), pack(">qiqi", 5, 9, 9, 2)],
)
def test_a_file_that_cannot_be_this_segments_time_index_is_recognised(
    filesystem: FileSystem, times: TimeIndex, content: bytes
) -> None:
    filesystem.open(times.path, create=True).pwrite(content, 0)

    with pytest.raises(CorruptIndex):
        times.check()


def test_good_files_pass_the_check(offsets: OffsetIndex, times: TimeIndex) -> None:
    offsets.check(0)
    times.check()
    offsets.append(BASE + 5, 500)
    times.append_if_later(5, BASE + 5)

    offsets.check(501)
    times.check()


def test_a_full_disk_does_not_lose_entries() -> None:
    filesystem = SimFileSystem(Random(1), capacity_bytes=0)
    offsets = OffsetIndex(filesystem, "/i.index", BASE, ROOM)

    for i in range(1, 700):
        offsets.append(BASE + i, i)

    assert offsets.lookup(BASE + 300) == (BASE + 300, 300)
    with pytest.raises(OSError, match="No space left"):
        offsets.sync()
    filesystem.capacity_bytes = None
    offsets.seal()
    assert len(filesystem.read_bytes(offsets.path)) == 699 * 8
