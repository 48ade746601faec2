"""The contract of the disk seam: what storage relies on, on both file systems."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.errors import KafkaStorageError
from millstream.storage.disk import DiskFileSystem
from millstream.storage.filesystem import FileSlice, directory_of, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.storage.filesystem import FileSystem


def names(filesystem: FileSystem, directory: str) -> set[str]:
    return {status.name for status in filesystem.scan(directory)}


def test_open_without_create_wants_the_file_to_exist(
    filesystem: FileSystem, directory: str
) -> None:
    with pytest.raises(FileNotFoundError):
        filesystem.open(f"{directory}/a")

    filesystem.open(f"{directory}/a", create=True)

    assert filesystem.exists(f"{directory}/a")
    assert filesystem.open(f"{directory}/a").size() == 0


def test_create_keeps_what_is_there(filesystem: FileSystem, directory: str) -> None:
    filesystem.open(f"{directory}/a", create=True).pwrite(b"kept", 0)

    assert filesystem.open(f"{directory}/a", create=True).pread(10, 0) == b"kept"


def test_written_bytes_read_back_from_any_position(filesystem: FileSystem, directory: str) -> None:
    file = filesystem.open(f"{directory}/a", create=True)

    file.pwrite(b"hello", 0)
    file.pwrite(memoryview(b" world"), 5)
    file.pwritev([b"!", bytearray(b"?"), b""], 11)
    file.pwrite(b"J", 0)

    assert file.size() == 13
    assert file.pread(100, 0) == b"Jello world!?"
    assert file.pread(5, 6) == b"world"
    assert file.pread(5, 13) == b""
    assert filesystem.read_bytes(f"{directory}/a") == b"Jello world!?"


def test_reading_into_memory_stops_at_the_end_of_the_file(
    filesystem: FileSystem, directory: str
) -> None:
    file = filesystem.open(f"{directory}/a", create=True)
    file.pwrite(b"abcdef", 0)
    buffer = bytearray(b"........")

    assert file.pread_into(buffer, 2) == 4
    assert buffer == b"cdef...."
    assert file.pread_into(memoryview(buffer)[:2], 0) == 2
    assert buffer == b"abef...."
    assert file.pread_into(buffer, 6) == 0


def test_a_write_past_the_end_leaves_zeros_between(filesystem: FileSystem, directory: str) -> None:
    file = filesystem.open(f"{directory}/a", create=True)

    file.pwrite(b"x", 3)

    assert file.pread(10, 0) == b"\0\0\0x"


def test_truncate_cuts_and_extends(filesystem: FileSystem, directory: str) -> None:
    file = filesystem.open(f"{directory}/a", create=True)
    file.pwrite(b"abcdef", 0)

    file.truncate(3)
    file.truncate(5)

    assert file.pread(10, 0) == b"abc\0\0"


def test_allocated_room_is_zeros_and_never_shrinks_the_file(
    filesystem: FileSystem, directory: str
) -> None:
    file = filesystem.open(f"{directory}/a", create=True)
    file.pwrite(b"abcdef", 0)

    file.allocate(8)
    file.allocate(2)

    assert file.pread(10, 0) == b"abcdef\0\0"


def test_a_map_shows_later_writes(filesystem: FileSystem, directory: str) -> None:
    file = filesystem.open(f"{directory}/a", create=True)
    file.truncate(4096)
    file_map = file.map(4096)

    file.pwrite(b"late", 100)

    assert bytes(file_map.buffer[100:104]) == b"late"
    file_map.close()
    file.truncate(10)
    assert file.size() == 10


def test_a_map_is_read_only_and_within_the_file(filesystem: FileSystem, directory: str) -> None:
    file = filesystem.open(f"{directory}/a", create=True)
    file.truncate(16)
    file_map = file.map(16)

    with pytest.raises(TypeError):
        file_map.buffer[0:1] = b"x"
    with pytest.raises(ValueError, match="greater than file size"):
        file.map(17)
    file_map.close()


def test_a_removed_file_stays_readable_through_its_handle(
    filesystem: FileSystem, directory: str
) -> None:
    file = filesystem.open(f"{directory}/a", create=True)
    file.pwrite(b"still here", 0)
    piece = FileSlice(file, 6, 4)

    assert piece.fileno() == file.fileno()

    filesystem.remove(f"{directory}/a")
    filesystem.remove(f"{directory}/a")

    assert not filesystem.exists(f"{directory}/a")
    assert len(piece) == 4
    assert piece.read() == b"here"


def test_a_closed_file_is_an_error(filesystem: FileSystem, directory: str) -> None:
    file = filesystem.open(f"{directory}/a", create=True)

    file.close()
    file.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread(1, 0)


def test_scan_tells_names_sizes_and_kinds(filesystem: FileSystem, directory: str) -> None:
    filesystem.open(f"{directory}/file", create=True).pwrite(b"12345", 0)
    filesystem.make_directory(f"{directory}/sub/deeper")
    filesystem.make_directory(f"{directory}/sub")

    found = {status.name: status for status in filesystem.scan(directory)}

    assert found["file"].size == 5
    assert not found["file"].is_directory
    assert found["sub"].is_directory
    assert names(filesystem, f"{directory}/sub") == {"deeper"}
    with pytest.raises(FileNotFoundError):
        filesystem.scan(f"{directory}/none")


def test_rename_replaces_the_target_in_one_step(filesystem: FileSystem, directory: str) -> None:
    filesystem.open(f"{directory}/old", create=True).pwrite(b"old", 0)
    filesystem.open(f"{directory}/new", create=True).pwrite(b"new", 0)

    filesystem.rename(f"{directory}/new", f"{directory}/old")

    assert names(filesystem, directory) == {"old"}
    assert filesystem.read_bytes(f"{directory}/old") == b"new"
    with pytest.raises(FileNotFoundError):
        filesystem.rename(f"{directory}/new", f"{directory}/old")


def test_a_directory_is_renamed_with_its_content(filesystem: FileSystem, directory: str) -> None:
    filesystem.make_directory(f"{directory}/t-0")
    filesystem.open(f"{directory}/t-0/f", create=True).pwrite(b"x", 0)

    filesystem.rename(f"{directory}/t-0", f"{directory}/t-0.abc-delete")

    assert filesystem.read_bytes(f"{directory}/t-0.abc-delete/f") == b"x"


def test_remove_directory_takes_everything_below(filesystem: FileSystem, directory: str) -> None:
    filesystem.make_directory(f"{directory}/t-0/inner")
    filesystem.open(f"{directory}/t-0/inner/f", create=True)

    filesystem.remove_directory(f"{directory}/t-0")
    filesystem.remove_directory(f"{directory}/t-0")

    assert names(filesystem, directory) == set()


def test_a_directory_in_place_of_a_file_is_an_error(filesystem: FileSystem, directory: str) -> None:
    filesystem.make_directory(f"{directory}/d")
    filesystem.open(f"{directory}/f", create=True)

    with pytest.raises(IsADirectoryError):
        filesystem.open(f"{directory}/d")
    with pytest.raises(IsADirectoryError):
        filesystem.read_bytes(f"{directory}/d")
    with pytest.raises(IsADirectoryError):
        filesystem.remove(f"{directory}/d")
    with pytest.raises(NotADirectoryError):
        filesystem.remove_directory(f"{directory}/f")
    with pytest.raises(NotADirectoryError):
        filesystem.scan(f"{directory}/f")


def test_write_atomically_leaves_only_the_new_content(
    filesystem: FileSystem, directory: str
) -> None:
    filesystem.open(f"{directory}/c.tmp", create=True).pwrite(b"left over, and longer", 0)

    write_atomically(filesystem, f"{directory}/c", b"one")
    write_atomically(filesystem, f"{directory}/c", b"two")

    assert filesystem.read_bytes(f"{directory}/c") == b"two"
    assert names(filesystem, directory) == {"c"}


def test_a_directory_is_locked_once_until_it_is_released(
    filesystem: FileSystem, directory: str
) -> None:
    lock = filesystem.lock_directory(directory)

    with pytest.raises(KafkaStorageError, match="in use"):
        filesystem.lock_directory(directory)

    lock.release()
    lock.release()
    filesystem.lock_directory(directory).release()
    assert ".lock" in names(filesystem, directory)


def test_usage_says_how_much_room_there_is(filesystem: FileSystem, directory: str) -> None:
    usage = filesystem.usage(directory)

    assert usage.total_bytes >= usage.free_bytes > 0


def test_syncing_is_accepted_everywhere(filesystem: FileSystem, directory: str) -> None:
    file = filesystem.open(f"{directory}/a", create=True)
    file.pwrite(b"x", 0)

    file.sync()
    filesystem.sync_directory(directory)

    assert file.pread(1, 0) == b"x"


def test_another_process_cannot_take_a_locked_directory(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from millstream.storage.disk import DiskFileSystem\n"
        "DiskFileSystem().lock_directory(sys.argv[1])\n"
    )
    lock = DiskFileSystem().lock_directory(str(tmp_path))

    command = [sys.executable, "-c", code, str(tmp_path)]
    while_locked = subprocess.run(command, capture_output=True, text=True, check=False)
    lock.release()
    after_release = subprocess.run(command, capture_output=True, text=True, check=False)

    assert while_locked.returncode != 0
    assert f"{tmp_path} is in use by " in while_locked.stderr
    assert after_release.returncode == 0


def test_a_descriptor_stays_open_while_a_slice_needs_it(tmp_path: Path) -> None:
    file = DiskFileSystem().open(str(tmp_path / "a"), create=True)
    file.pwrite(b"content", 0)
    piece = FileSlice(file, 0, 7)
    descriptor = file.fileno()

    del file

    assert piece.file.fileno() == descriptor
    assert piece.read() == b"content"


def test_the_directory_of_a_path() -> None:
    assert directory_of("/a/b/c") == "/a/b"
    assert directory_of("/a") == "/"


def test_calls_that_the_system_cuts_short_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals and full disks make short calls; here every call does at most three bytes."""
    file = DiskFileSystem().open(str(tmp_path / "a"), create=True)
    pread, pwrite = os.pread, os.pwrite
    monkeypatch.setattr(os, "pread", lambda fd, n, at: pread(fd, min(n, 3), at))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, at: pwrite(fd, buffers[0][:3], at))
    monkeypatch.setattr(os, "preadv", lambda fd, into, at: _read_some(pread, fd, into[0], at))

    file.pwrite(b"0123456789", 0)
    file.pwritev([b"abcd", b"efgh"], 10)

    buffer = bytearray(20)
    assert file.pread(100, 0) == b"0123456789abcdefgh"
    assert file.pread_into(buffer, 0) == 18
    assert buffer[:18] == b"0123456789abcdefgh"


def _read_some(
    pread: Callable[[int, int, int], bytes], fd: int, into: memoryview, position: int
) -> int:
    data = pread(fd, min(len(into), 3), position)
    into[: len(data)] = data
    return len(data)
