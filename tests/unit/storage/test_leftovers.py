"""What a crash leaves in a log's directory, and what becomes of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.storage.log.leftovers import settle_leftovers
from tests.unit.storage.batches import batch_bytes
from tests.unit.storage.logs import SMALL

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

OLD = (batch_bytes(0), batch_bytes(1))


def name(base_offset: int, extension: str = ".log", suffix: str = "") -> str:
    return f"{base_offset:020d}{extension}{suffix}"


class Directory:
    """Files by name and content."""

    def __init__(self, filesystem: FileSystem, path: str) -> None:
        self.filesystem = filesystem
        self.path = path

    def add(self, file_name: str, data: bytes = b"x") -> None:
        self.filesystem.open(f"{self.path}/{file_name}", create=True).pwrite(data, 0)

    def settle(self) -> set[str]:
        """Twice, because the second time must find nothing to do."""
        first = settle_leftovers(self.filesystem, self.path, SMALL, was_clean=False)
        second = settle_leftovers(self.filesystem, self.path, SMALL, was_clean=False)
        assert {each.name for each in first} == {each.name for each in second}
        return {each.name for each in self.filesystem.scan(self.path)}

    def read(self, file_name: str) -> bytes:
        return self.filesystem.read_bytes(f"{self.path}/{file_name}")


@pytest.fixture
def files(filesystem: FileSystem, directory: str) -> Directory:
    return Directory(filesystem, directory)


def test_what_nobody_refers_to_goes(files: Directory) -> None:
    files.add(name(0), OLD[0])
    files.add(name(0, ".log", ".deleted"))
    files.add(name(5, ".snapshot", ".deleted"))
    files.add(name(7, ".index", ".cleaned"))
    files.add("leader-epoch-checkpoint.tmp")
    files.add("leader-epoch-checkpoint")
    files.add("partition.metadata")

    assert files.settle() == {name(0), "leader-epoch-checkpoint", "partition.metadata"}


def test_a_swap_takes_the_place_of_what_it_was_made_from(files: Directory) -> None:
    files.add(name(0), OLD[0])
    files.add(name(0, ".index"))
    files.add(name(1), OLD[1])
    files.add(name(2), batch_bytes(2))
    cleaned = batch_bytes(0, value_bytes=1) + batch_bytes(1, value_bytes=1)
    files.add(name(0, ".log", ".swap"), cleaned)
    files.add(name(0, ".index", ".swap"), b"")
    files.add(name(0, ".timeindex", ".swap"), b"")

    assert files.settle() == {name(0), name(0, ".index"), name(0, ".timeindex"), name(2)}
    assert files.read(name(0)) == cleaned


def test_a_swap_whose_originals_are_gone_already_is_completed(files: Directory) -> None:
    files.add(name(0, ".log", ".swap"), OLD[0])

    assert files.settle() == {name(0)}


def test_an_empty_swap_replaces_its_own_segment_only(files: Directory) -> None:
    files.add(name(0), OLD[0])
    files.add(name(1), OLD[1])
    files.add(name(0, ".log", ".swap"), b"")

    assert files.settle() == {name(0), name(1)}
    assert files.read(name(0)) == b""


def test_a_swap_whose_set_is_not_complete_goes(files: Directory) -> None:
    files.add(name(0), OLD[0])
    files.add(name(0, ".log", ".swap"), OLD[0])
    files.add(name(0, ".index", ".cleaned"))

    assert files.settle() == {name(0)}


def test_a_swap_below_the_unfinished_ones_is_completed(files: Directory) -> None:
    cleaned = batch_bytes(0, value_bytes=1)
    files.add(name(0), OLD[0])
    files.add(name(0, ".log", ".swap"), cleaned)
    files.add(name(9, ".log", ".cleaned"))

    assert files.settle() == {name(0)}
    assert files.read(name(0)) == cleaned


@pytest.mark.parametrize("damaged", [OLD[0][:-1], OLD[0][:-1] + b"\xff", OLD[0] + bytes(30)])
def test_a_damaged_swap_goes_while_the_original_is_there(files: Directory, damaged: bytes) -> None:
    files.add(name(0), OLD[0])
    files.add(name(0, ".log", ".swap"), damaged)
    files.add(name(0, ".index", ".swap"))

    assert files.settle() == {name(0)}
    assert files.read(name(0)) == OLD[0]


def test_a_swap_index_without_its_log_goes(files: Directory) -> None:
    files.add(name(0), OLD[0])
    files.add(name(3, ".index", ".swap"))

    assert files.settle() == {name(0)}


def test_an_index_without_its_log_goes_and_a_snapshot_stays(files: Directory) -> None:
    files.add(name(3, ".index"))
    files.add(name(3, ".txnindex"))
    files.add(name(3, ".snapshot"))

    assert files.settle() == {name(3, ".snapshot")}
