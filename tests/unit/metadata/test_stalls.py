"""The metadata log on a disk without room, and in a process without descriptors."""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.errors import KafkaStorageError
from millstream.metadata.quorum_state_store import FileQuorumStateStore
from millstream.raft import batches
from millstream.raft.effects import ElectionState
from millstream.raft.ports import LogStalled
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import OffsetAndEpoch
from tests.unit.metadata.test_metadata_log import (
    Quorum,
    Shelf,
    batch,
    records,
    start_driver,
    take_snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Trouble:
    """A disk whose operations fail while `is_on`."""

    def __init__(self) -> None:
        self.disk = SimFileSystem(Random(1), before_operation=self._before)
        self.shelf = Shelf(self.disk, "/data")
        self.is_on = False
        self.number = errno.EMFILE
        self.concerns: Callable[[str, str], bool] = lambda operation, path: operation == "open"

    def _before(self, operation: str, path: str, _: int) -> None:
        if self.is_on and self.concerns(operation, path):
            raise OSError(self.number, "injected", path)


@pytest.fixture
def trouble() -> Trouble:
    return Trouble()


def test_an_append_goes_on_where_the_room_ended(trouble: Trouble) -> None:
    log = trouble.shelf.open()
    log.append(batch(log, b"a"))
    first = batches.data_batch(1, 1, 0, [b"b"])
    second = batches.data_batch(2, 2, 0, [b"c"])
    trouble.number, trouble.is_on = errno.ENOSPC, True
    trouble.concerns = lambda operation, path: operation == "write"
    with pytest.raises(LogStalled, match="full"):
        log.append(first + second)
    trouble.is_on = False
    log.append(first)

    log.append(first + second)

    assert records(log) == [b"a", b"b", b"c"]
    assert log.epochs() == [(1, 0), (2, 2)]
    log.append(first + second)
    assert log.end_offset == 3


def test_an_error_of_the_disk_itself_is_no_stall(trouble: Trouble) -> None:
    log = trouble.shelf.open()
    trouble.number, trouble.is_on = errno.EIO, True
    trouble.concerns = lambda operation, path: operation == "write"

    with pytest.raises(KafkaStorageError) as caught:
        log.append(batch(log, b"a"))

    assert not isinstance(caught.value, LogStalled)


@pytest.mark.parametrize(
    ("number", "is_failure"), [(errno.EMFILE, False), (errno.ENOSPC, True), (errno.EIO, True)]
)
def test_a_sync_is_tried_again_only_if_it_never_began(
    trouble: Trouble, number: int, is_failure: bool
) -> None:
    log = trouble.shelf.open()
    log.append(batch(log, b"a"))
    ends: list[object] = []
    trouble.number, trouble.is_on = number, True
    trouble.concerns = lambda operation, path: operation == "sync"

    log.flush(lambda: ends.append("done"), ends.append)

    assert len(trouble.shelf.failures) == is_failure
    assert [isinstance(end, LogStalled) for end in ends] == ([] if is_failure else [True])


def test_the_note_of_what_is_synced_may_lag(trouble: Trouble) -> None:
    log = trouble.shelf.open()
    log.append(batch(log, b"a"))
    ends: list[object] = []
    trouble.number, trouble.is_on = errno.ENOSPC, True
    trouble.concerns = lambda operation, path: operation == "write" and "synced" in path

    log.flush(lambda: ends.append("done"), ends.append)

    assert ends == ["done"]
    assert trouble.shelf.failures == []


def test_a_vote_without_room_stalls(trouble: Trouble) -> None:
    trouble.disk.make_directory("/data")
    store = FileQuorumStateStore(trouble.disk, "/data")
    trouble.is_on = True
    with pytest.raises(LogStalled, match="quorum-state"):
        store.write(ElectionState(7), 1, (1,))
    trouble.is_on = False

    store.write(ElectionState(7), 1, (1,))

    assert store.read() == ElectionState(7)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_snapshot_counts_although_a_new_segment_has_no_room(
    trouble: Trouble, number: int
) -> None:
    log = trouble.shelf.open()
    log.append(batch(log, b"a"))
    job = log.snapshot_job(OffsetAndEpoch(1, 1), [b"state"])
    size = job()
    trouble.number, trouble.is_on = number, True
    trouble.concerns = lambda operation, path: operation == "open" and path.endswith("1.log")

    log.note_snapshot(OffsetAndEpoch(1, 1), size)
    trouble.is_on = False

    assert log.latest_snapshot == OffsetAndEpoch(1, 1)
    assert trouble.shelf.failures == []
    log.append(batch(log, b"b"))
    assert records(log) == [b"a", b"b"]


def test_a_snapshot_without_room_leaves_nothing(trouble: Trouble) -> None:
    log = trouble.shelf.open()
    log.append(batch(log, b"a"))
    trouble.number, trouble.is_on = errno.ENOSPC, True
    trouble.concerns = lambda operation, path: operation == "write"

    with pytest.raises(OSError, match="injected"):
        take_snapshot(log, OffsetAndEpoch(1, 1))

    names = [each.name for each in trouble.disk.scan(log.directory)]
    assert not [name for name in names if name.endswith(".part")]


def test_what_is_superfluous_may_stay_for_a_while(trouble: Trouble) -> None:
    log = trouble.shelf.open()
    log.append(batch(log, b"a"))
    take_snapshot(log, OffsetAndEpoch(1, 1))
    log.set_high_watermark(1)
    trouble.is_on = True
    trouble.concerns = lambda operation, path: operation in ("rename", "remove", "sync_directory")

    log.delete_before(OffsetAndEpoch(1, 1))

    assert log.start_offset == 1
    trouble.is_on = False
    log.append(batch(log, b"b"))
    log.close()
    assert records(trouble.shelf.open())[-1] == b"b"


def test_a_quorum_of_one_goes_on_when_there_are_descriptors_again(trouble: Trouble) -> None:
    log, quorum = trouble.shelf.open(), Quorum()
    driver = start_driver(trouble.shelf, log, quorum)
    trouble.is_on = True
    trouble.concerns = lambda operation, path: operation == "sync"
    _, end = driver.submit(driver.core.epoch, [b"a topic"])
    assert quorum.told[-1] == "stalled"

    trouble.is_on = False
    driver.tick()

    assert quorum.told[-1:] == [end]
    assert b"a topic" in records(log)
