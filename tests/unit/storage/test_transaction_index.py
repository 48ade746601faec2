"""The index of aborted transactions: Kafka's bytes and the search of a fetch."""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidArgument, KafkaStorageError
from millstream.storage.log.transaction_index import AbortedTransaction, TransactionIndex

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

ABORTED = [
    AbortedTransaction(producer_id=1, first_offset=0, last_offset=10, last_stable_offset=5),
    AbortedTransaction(producer_id=2, first_offset=5, last_offset=15, last_stable_offset=16),
    AbortedTransaction(producer_id=3, first_offset=18, last_offset=35, last_stable_offset=25),
    AbortedTransaction(producer_id=4, first_offset=32, last_offset=50, last_stable_offset=40),
]


@pytest.fixture
def index(filesystem: FileSystem, directory: str) -> TransactionIndex:
    return TransactionIndex(filesystem, f"{directory}/t.txnindex", 0)


def fill(index: TransactionIndex) -> None:
    for each in ABORTED:
        index.append(each)


def test_there_is_no_file_before_the_first_abort(
    index: TransactionIndex, filesystem: FileSystem
) -> None:
    assert index.entries() == []
    index.sync()
    index.truncate_to(0)

    assert not filesystem.exists(index.path)


def test_entries_have_kafkas_bytes_and_load_again(
    index: TransactionIndex, filesystem: FileSystem
) -> None:
    fill(index)
    index.sync()

    data = filesystem.read_bytes(index.path)
    assert data[:34] == pack(">hqqqq", 0, 1, 0, 10, 5)
    assert len(data) == 4 * 34
    assert TransactionIndex(filesystem, index.path, 0).entries() == ABORTED


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "producers", "is_complete"),
    [
        (0, 100, [1, 2, 3, 4], False),
        (0, 32, [1, 2, 3], True),
        (0, 35, [1, 2, 3, 4], True),
        (10, 35, [1, 2, 3, 4], True),
        (11, 35, [2, 3, 4], True),
        (20, 41, [3, 4], False),
        (26, 31, [3], True),
        (51, 100, [], False),
    ],
)
def test_a_search_finds_what_overlaps_and_says_whether_that_is_all(
    index: TransactionIndex,
    fetch_offset: int,
    upper_bound: int,
    producers: list[int],
    is_complete: bool,
) -> None:
    fill(index)

    found = index.search(fetch_offset, upper_bound)

    assert [each.producer_id for each in found.transactions] == producers
    assert found.is_complete is is_complete


def test_truncation_forgets_the_transactions_that_ended_later(
    index: TransactionIndex, filesystem: FileSystem
) -> None:
    fill(index)

    index.truncate_to(35)

    assert TransactionIndex(filesystem, index.path, 0).entries() == ABORTED[:2]
    index.clear()
    assert filesystem.read_bytes(index.path) == b""


def test_aborts_come_in_order(index: TransactionIndex) -> None:
    index.append(ABORTED[1])

    with pytest.raises(InvalidArgument, match="does not follow"):
        index.append(ABORTED[0])


@pytest.mark.parametrize(
    "content",
    [
        b"short",
        pack(">hqqqq", 1, 1, 0, 10, 5),
        pack(">hqqqq", 0, 1, 0, -1, 5),
        pack(">hqqqq", 0, 1, 11, 10, 5),
    ],
)
def test_a_corrupt_file_is_an_error_that_names_it(
    index: TransactionIndex, filesystem: FileSystem, content: bytes
) -> None:
    filesystem.open(index.path, create=True).pwrite(content, 0)

    with pytest.raises(KafkaStorageError, match=r"t\.txnindex is corrupt"):
        index.entries()
