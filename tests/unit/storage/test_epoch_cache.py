"""Leader epochs of a log: assignment, the question where one ended, truncation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidArgument, KafkaStorageError
from millstream.storage.log.epoch_cache import UNDEFINED_END, LeaderEpochCache

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

LOG_END = 100


@pytest.fixture
def cache(filesystem: FileSystem, directory: str) -> LeaderEpochCache:
    return LeaderEpochCache(filesystem, directory)


def fill(cache: LeaderEpochCache) -> None:
    for epoch, start in [(2, 6), (3, 9), (7, 40)]:
        cache.assign(epoch, start)


def test_assignments_are_on_disk_and_load_again(
    cache: LeaderEpochCache, filesystem: FileSystem, directory: str
) -> None:
    fill(cache)

    loaded = LeaderEpochCache.load(filesystem, directory)

    assert loaded.entries == cache.entries == ((2, 6), (3, 9), (7, 40))
    assert loaded.latest_epoch == 7


def test_a_later_batch_of_the_same_epoch_changes_nothing(cache: LeaderEpochCache) -> None:
    fill(cache)

    assert not cache.assign(7, 41)
    assert cache.assign(8, 50)
    assert cache.entries[-1] == (8, 50)


def test_an_assignment_removes_the_entries_it_contradicts(cache: LeaderEpochCache) -> None:
    fill(cache)

    cache.assign(5, 8)

    assert cache.entries == ((2, 6), (5, 8))


def test_the_same_epoch_at_a_lower_offset_moves_it(cache: LeaderEpochCache) -> None:
    fill(cache)

    assert cache.assign(7, 30)
    assert cache.entries == ((2, 6), (3, 9), (7, 30))


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (7, (7, LOG_END)),  # The newest ends where the log does.
        (8, UNDEFINED_END),  # Not known yet.
        (1, (1, 6)),  # Before all that is known: ends where the first begins.
        (2, (2, 9)),
        (3, (3, 40)),
        (5, (3, 40)),  # Unknown between two: the one before it.
        (-1, UNDEFINED_END),
    ],
)
def test_the_end_of_an_epoch(cache: LeaderEpochCache, epoch: int, end: tuple[int, int]) -> None:
    fill(cache)

    assert cache.end_offset_for(epoch, LOG_END) == end


def test_an_empty_cache_knows_no_end(cache: LeaderEpochCache) -> None:
    assert cache.end_offset_for(0, LOG_END) == UNDEFINED_END
    assert cache.latest is None
    assert cache.latest_epoch == -1


def test_the_epoch_of_an_offset_and_the_one_before(cache: LeaderEpochCache) -> None:
    fill(cache)

    assert [cache.epoch_for_offset(offset) for offset in (5, 6, 39, 40)] == [None, 2, 3, 7]
    assert [cache.previous_epoch(epoch) for epoch in (2, 3, 5, 9)] == [None, 2, 3, 7]


def test_truncation_at_the_end_forgets_what_begins_there(cache: LeaderEpochCache) -> None:
    fill(cache)

    assert not cache.truncate_from_end(41)
    assert cache.truncate_from_end(40)
    assert cache.entries == ((2, 6), (3, 9))
    assert cache.truncate_from_end(0)
    assert cache.latest is None


def test_truncation_at_the_start_keeps_the_epoch_it_is_in(cache: LeaderEpochCache) -> None:
    fill(cache)

    assert not cache.truncate_from_start(5)
    assert not cache.truncate_from_start(6)
    assert cache.truncate_from_start(20)
    assert cache.entries == ((3, 20), (7, 40))


def test_negative_numbers_are_refused(cache: LeaderEpochCache) -> None:
    with pytest.raises(InvalidArgument, match="epoch -1"):
        cache.assign(-1, 0)


@pytest.mark.parametrize("content", [b"0\n2\n3 5\n2 6\n", b"0\n2\n3 5\n4 5\n"])
def test_a_table_that_does_not_increase_is_an_error(
    filesystem: FileSystem, directory: str, content: bytes
) -> None:
    filesystem.open(f"{directory}/leader-epoch-checkpoint", create=True).pwrite(content, 0)

    with pytest.raises(KafkaStorageError, match="leader-epoch-checkpoint is corrupt"):
        LeaderEpochCache.load(filesystem, directory)


def test_a_renamed_log_takes_its_epochs_along(
    cache: LeaderEpochCache, filesystem: FileSystem, directory: str
) -> None:
    filesystem.make_directory(f"{directory}/moved")
    cache.move_to(f"{directory}/moved")

    cache.assign(1, 0)

    assert LeaderEpochCache.load(filesystem, f"{directory}/moved").entries == ((1, 0),)


def test_an_epoch_that_begins_is_written_with_its_first_record(
    cache: LeaderEpochCache, filesystem: FileSystem, directory: str
) -> None:
    fill(cache)

    cache.begin(9, LOG_END)

    assert cache.end_offset_for(7, LOG_END) == (7, LOG_END)
    assert cache.is_dirty
    assert LeaderEpochCache.load(filesystem, directory).latest_epoch == 7
    cache.assign(9, LOG_END)
    assert LeaderEpochCache.load(filesystem, directory).entries == cache.entries


def test_an_epoch_that_has_begun_is_not_begun_again(cache: LeaderEpochCache) -> None:
    fill(cache)

    cache.begin(7, LOG_END)
    cache.begin(6, LOG_END)

    assert not cache.is_dirty
    assert cache.entries == ((2, 6), (3, 9), (7, 40))


def test_an_epoch_without_records_alone_is_not_worth_a_write(
    cache: LeaderEpochCache, filesystem: FileSystem, directory: str
) -> None:
    fill(cache)
    cache.begin(9, LOG_END)

    cache.flush_if_needed()
    assert LeaderEpochCache.load(filesystem, directory).latest_epoch == 7

    cache.truncate_from_start(8)
    cache.flush_if_needed()
    assert LeaderEpochCache.load(filesystem, directory).entries == cache.entries
    assert not cache.is_dirty
