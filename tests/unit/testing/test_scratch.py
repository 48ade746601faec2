"""Directories that are gone after the test."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from millstream.errors import InvalidArgument
from millstream.testing import scratch
from millstream.testing.scratch import ScratchDirectory, UnsyncedFileSystem


def test_a_directory_is_removed_with_everything_in_it() -> None:
    directory = ScratchDirectory()
    (Path(directory.path) / "file").write_bytes(b"x")

    directory.remove()
    directory.remove()

    assert not Path(directory.path).exists()


def test_a_forgotten_directory_is_removed() -> None:
    path = Path(ScratchDirectory().path)
    gc.collect()

    assert not path.exists()


def test_a_forked_child_removes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = ScratchDirectory()
    path = Path(directory.path)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        directory.remove()

    assert path.exists()
    path.rmdir()


def test_a_machine_without_files_in_memory_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "MEMORY_DIRECTORY", "/there/is/none")

    with pytest.raises(InvalidArgument, match="leave in_memory out"):
        ScratchDirectory(in_memory=True)


def test_nothing_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise AssertionError(f"{descriptor} was synced")

    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(os, "fdatasync", refuse)
    filesystem = UnsyncedFileSystem()

    file = filesystem.open(f"{tmp_path}/file", create=True)
    file.pwrite(b"abc", 0)
    file.sync()
    filesystem.sync_directory(str(tmp_path))

    assert filesystem.read_bytes(f"{tmp_path}/file") == b"abc"
