"""Every storage test runs on a real disk and on the simulated one."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.storage.disk import DiskFileSystem
from millstream.testing.sim_filesystem import SimFileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.storage.filesystem import FileSystem


@pytest.fixture(params=["disk", "sim"])
def filesystem(request: pytest.FixtureRequest) -> FileSystem:
    """The real disk, then the simulated one."""
    return DiskFileSystem() if request.param == "disk" else SimFileSystem(Random(1))


@pytest.fixture
def directory(filesystem: FileSystem, tmp_path: Path) -> str:
    """An empty directory on the file system under test."""
    path = str(tmp_path) if isinstance(filesystem, DiskFileSystem) else "/data/log"
    filesystem.make_directory(path)
    return path
