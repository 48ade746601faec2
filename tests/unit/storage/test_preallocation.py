"""Large logs take blocks of the disk in advance, and give back what they did not need."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.storage import disk
from millstream.storage.disk import PREALLOCATION_SINCE_BYTES, SPARE_BYTES_MAX, DiskFileSystem
from millstream.storage.log.config import LogConfig
from tests.unit.storage.batches import NOW_MS, batch_bytes
from tests.unit.storage.logs import append, fill, offsets, open_log

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.unified_log import UnifiedLog

LARGE = LogConfig(internal_segment_bytes=3 * PREALLOCATION_SINCE_BYTES, max_message_bytes=2 << 20)
PART = bytes(1 << 20)


def spare_bytes(path: Path) -> int:
    """What a file has of the disk beyond its content."""
    status = path.stat()
    return status.st_blocks * 512 - status.st_size


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    """The first log file, in a directory whose file system gives blocks in advance."""
    probe = os.open(tmp_path / "probe", os.O_RDWR | os.O_CREAT)
    try:
        if disk._preallocate is None or not disk._preallocate(probe, 0, 4096):
            pytest.skip("the file system, or a build without kernel, gives no blocks in advance")
    finally:
        os.close(probe)
    return tmp_path / "00000000000000000000.log"


def fill_large(log: UnifiedLog, size: int) -> None:
    while log.size < size:
        data = bytearray(batch_bytes(records=1, value_bytes=1 << 20))
        tail: Any = log.tail
        if not _accel.COMPILED or tail.append_fast(data, 0, NOW_MS) is None:
            log.append_as_leader(data, 0, NOW_MS)


def test_appends_are_writes(filesystem: FileSystem, directory: str) -> None:
    file = filesystem.open(f"{directory}/a", create=True)
    size = PREALLOCATION_SINCE_BYTES + 2 * len(PART)

    for position in range(0, size, len(PART)):
        file.append(PART, position)
    file.append(b"end", size)

    assert file.size() == size + 3
    assert file.pread(10, size - 2) == b"\0\0end"


def test_trimming_leaves_a_size(filesystem: FileSystem, directory: str) -> None:
    file = filesystem.open(f"{directory}/a", create=True)
    file.append(b"content", 0)

    file.trim(7)
    assert file.pread(10, 0) == b"content"

    file.trim(4)
    assert file.pread(10, 0) == b"cont"


@pytest.mark.parametrize("path", ["fast", "full"])
def test_a_large_log_is_ahead_of_its_appends_and_not_once_it_is_closed(
    log_path: Path, path: str
) -> None:
    log = open_log(DiskFileSystem(), str(log_path.parent), LARGE)
    if path == "fast":
        fill_large(log, PREALLOCATION_SINCE_BYTES + (1 << 20))
    else:
        for _ in range(5):
            append(log, records=1, value_bytes=1 << 20)

    assert PREALLOCATION_SINCE_BYTES // 8 <= spare_bytes(log_path) < PREALLOCATION_SINCE_BYTES
    assert log_path.stat().st_size == log.size

    log.close()

    assert spare_bytes(log_path) <= SPARE_BYTES_MAX
    assert offsets(open_log(DiskFileSystem(), str(log_path.parent), LARGE)) == [*range(5)]


def test_a_small_log_takes_nothing_in_advance(log_path: Path) -> None:
    log = open_log(DiskFileSystem(), str(log_path.parent), LARGE)

    fill(log, 50)

    assert spare_bytes(log_path) <= SPARE_BYTES_MAX


def test_a_segment_that_is_left_gives_its_blocks_back(log_path: Path) -> None:
    log = open_log(DiskFileSystem(), str(log_path.parent), LARGE)

    fill_large(log, LARGE.segment_size_max + (2 << 20))

    assert len([*log_path.parent.glob("*.log")]) == 2
    assert spare_bytes(log_path) <= SPARE_BYTES_MAX


def test_what_a_killed_process_took_is_given_back(log_path: Path) -> None:
    fill_large(
        open_log(DiskFileSystem(), str(log_path.parent), LARGE), PREALLOCATION_SINCE_BYTES + 1
    )
    assert spare_bytes(log_path) >= PREALLOCATION_SINCE_BYTES // 8

    open_log(DiskFileSystem(), str(log_path.parent), LARGE).close()

    assert spare_bytes(log_path) <= SPARE_BYTES_MAX


def test_after_a_cut_blocks_are_taken_again(log_path: Path) -> None:
    log = open_log(DiskFileSystem(), str(log_path.parent), LARGE)
    fill_large(log, PREALLOCATION_SINCE_BYTES + (1 << 20))

    log.truncate_to(4, NOW_MS)
    assert spare_bytes(log_path) <= SPARE_BYTES_MAX
    fill_large(log, PREALLOCATION_SINCE_BYTES + (1 << 20))

    assert spare_bytes(log_path) >= PREALLOCATION_SINCE_BYTES // 8


def test_where_there_are_none_appends_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuse(_: int, position: int, size: int) -> bool:
        asked.append(position + size)
        return False

    monkeypatch.setattr(disk, "_preallocate", refuse)
    log = open_log(DiskFileSystem(), str(tmp_path), LARGE)

    fill_large(log, PREALLOCATION_SINCE_BYTES + (3 << 20))

    assert len(asked) == 1
    assert offsets(log) == [*range(7)]
