"""Walking batches in a file: current and old formats, and bytes that are neither."""

from __future__ import annotations

import zlib
from struct import pack
from typing import TYPE_CHECKING

import pytest

from millstream.errors import CorruptMessage
from millstream.storage.log.batch_scan import (
    HEAD_WINDOW_BYTES,
    find_head,
    read_batch,
    scan_batches,
    scan_good_batches,
    scan_heads,
)
from tests.unit.storage.batches import NOW_MS, batch_bytes

if TYPE_CHECKING:
    from millstream.storage.filesystem import File, FileSystem
    from millstream.types import ReadableBuffer


def message_v0(offset: int, value: bytes = b"") -> bytes:
    body = pack(">bb", 0, 0) + pack(">i", -1) + pack(">i", len(value)) + value
    return pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def message_v1(offset: int, timestamp: int, value: bytes = b"") -> bytes:
    body = pack(">bbq", 1, 0, timestamp) + pack(">i", -1) + pack(">i", len(value)) + value
    return pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def file_of(filesystem: FileSystem, directory: str, data: ReadableBuffer) -> File:
    file = filesystem.open(f"{directory}/f", create=True)
    file.pwrite(data, 0)
    return file


@pytest.fixture
def mixed() -> list[bytes]:
    """What a log has that has seen three formats; the shortest message comes last."""
    return [
        message_v0(0, b"old"),
        message_v1(1, NOW_MS + 1, b"x" * 5000),
        batch_bytes(2, records=3, value_bytes=HEAD_WINDOW_BYTES),
        *(batch_bytes(5 + i) for i in range(100)),
        message_v1(105, NOW_MS + 105),
        message_v0(106),
    ]


def test_heads_of_all_formats_are_read(
    filesystem: FileSystem, directory: str, mixed: list[bytes]
) -> None:
    data = b"".join(mixed)
    file = file_of(filesystem, directory, data)

    heads = list(scan_heads(file, 0, len(data)))

    assert [head.size for head in heads] == [len(each) for each in mixed]
    assert [head.last_offset for head in heads] == [0, 1, *range(4, 107)]
    assert [head.magic for head in heads[:3]] == [0, 1, 2]
    assert [head.max_timestamp for head in heads[:3]] == [-1, NOW_MS + 1, NOW_MS + 4]
    assert heads[-1].max_timestamp == -1


def test_a_search_by_offset_agrees_with_the_walk(
    filesystem: FileSystem, directory: str, mixed: list[bytes]
) -> None:
    data = b"".join(mixed)
    file = file_of(filesystem, directory, data)
    heads = list(scan_heads(file, 0, len(data)))

    for offset in range(108):
        expected = next((head for head in heads if head.last_offset >= offset), None)
        assert find_head(file, 0, len(data), offset) == expected
        later = heads[len(heads) // 2]
        expected = next(
            (head for head in heads[len(heads) // 2 :] if head.last_offset >= offset), None
        )
        assert find_head(file, later.position, len(data), offset) == expected


def test_whole_batches_of_all_formats_are_read(
    filesystem: FileSystem, directory: str, mixed: list[bytes]
) -> None:
    data = b"".join(mixed)
    file = file_of(filesystem, directory, data)

    found = list(scan_batches(file, 0, len(data)))

    assert [bytes(at.batch.view) for at in found] == mixed
    assert len(list(scan_good_batches(file, len(data), 0, is_verifying=True))) == len(mixed)
    for head, at in zip(scan_heads(file, 0, len(data)), found, strict=True):
        assert bytes(read_batch(file, head).view) == bytes(at.batch.view)


@pytest.mark.parametrize("cut", [1, 16, 17, 20, 30, 60])
def test_batches_end_quietly_in_a_torn_file_and_heads_complain(
    filesystem: FileSystem, directory: str, cut: int
) -> None:
    batches = [batch_bytes(0), batch_bytes(1)]
    data = b"".join(batches)[: len(batches[0]) + cut]
    file = file_of(filesystem, directory, data)

    assert len(list(scan_batches(file, 0, len(data)))) == 1
    with pytest.raises(CorruptMessage, match=f"byte {len(batches[0])}"):
        list(scan_heads(file, 0, len(data)))
    with pytest.raises(CorruptMessage, match=f"byte {len(batches[0])}"):
        find_head(file, 0, len(data), 1)


@pytest.mark.parametrize(
    ("position", "garbage", "complaint"),
    [
        (16, b"\x03", "magic 3 is not known"),
        (8, pack(">i", 48), "cannot have length 48"),
        (8, pack(">i", -1), "cannot have length -1"),
        (23, pack(">i", -1), "the last offset is before the first"),
    ],
)
def test_bytes_that_cannot_be_a_batch_are_an_error_with_their_place(
    filesystem: FileSystem, directory: str, position: int, garbage: bytes, complaint: str
) -> None:
    first, second = batch_bytes(0), bytearray(batch_bytes(1))
    second[position : position + len(garbage)] = garbage
    data = first + second
    file = file_of(filesystem, directory, data)

    with pytest.raises(CorruptMessage) as caught:
        find_head(file, 0, len(data), 5)

    assert f"f, byte {len(first)}: " in str(caught.value)
    assert complaint in str(caught.value)


def test_a_claimed_size_beyond_the_file_allocates_nothing(
    filesystem: FileSystem, directory: str
) -> None:
    data = bytearray(batch_bytes(0))
    data[8:12] = pack(">i", 2**31 - 1)
    file = file_of(filesystem, directory, data)

    assert list(scan_batches(file, 0, len(data))) == []


def test_a_damaged_batch_is_not_given_out_as_read(filesystem: FileSystem, directory: str) -> None:
    data = bytearray(batch_bytes(0))
    file = file_of(filesystem, directory, data)
    head = next(scan_heads(file, 0, len(data)))
    file.pwrite(b"\xff", 62)

    with pytest.raises(CorruptMessage, match="checksum"):
        read_batch(file, head)
    file.truncate(70)
    with pytest.raises(CorruptMessage, match="no whole batch"):
        read_batch(file, head)
