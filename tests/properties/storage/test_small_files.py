"""Small structures of storage against slow and obvious models."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from millstream.storage.checkpoint import read_offsets, write_offsets
from millstream.storage.file_names import (
    parse_partition_directory_name,
    parse_segment_file_name,
    partition_directory_name,
    renamed_directory_name,
    segment_file_name,
)
from millstream.storage.log.epoch_cache import LeaderEpochCache
from millstream.storage.log.index import OffsetIndex, TimeIndex
from millstream.storage.log.producer_snapshot import (
    EarlierBatch,
    SnapshotEntry,
    parse_snapshot,
    render_snapshot,
)
from millstream.storage.log.transaction_index import AbortedTransaction, TransactionIndex
from millstream.testing.sim_filesystem import SimFileSystem
from millstream.types import TopicPartition, Uuid

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))


def empty_disk() -> SimFileSystem:
    return SimFileSystem(Random(0))


@given(st.dictionaries(PARTITIONS, INT64, max_size=20))
def test_offset_tables_round_trip(offsets: dict[TopicPartition, int]) -> None:
    filesystem = empty_disk()

    write_offsets(filesystem, "/c", offsets)

    assert read_offsets(filesystem, "/c") == offsets


SNAPSHOT_ENTRIES = st.builds(
    SnapshotEntry,
    *(INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64),
    earlier=st.lists(st.builds(EarlierBatch, INT32, INT64, INT32, INT64), max_size=4).map(tuple),
)


@given(st.lists(SNAPSHOT_ENTRIES, unique_by=lambda entry: entry.producer_id))
def test_snapshots_round_trip(entries: list[SnapshotEntry]) -> None:
    assert parse_snapshot(render_snapshot(entries), "f") == entries


@given(PARTITIONS, st.binary(min_size=16, max_size=16).map(Uuid))
def test_directory_names_round_trip(partition: TopicPartition, unique_id: Uuid) -> None:
    in_use = parse_partition_directory_name(partition_directory_name(partition))
    deleted_name = renamed_directory_name(partition, unique_id, "delete")
    deleted = parse_partition_directory_name(deleted_name)

    assert in_use == (partition, "")
    assert deleted is not None
    assert deleted.state == "delete"
    assert deleted.partition.partition == partition.partition
    assert partition.topic.startswith(deleted.partition.topic)
    assert len(deleted_name) <= 255


@given(
    st.integers(0, 2**63 - 1),
    st.sampled_from([".log", ".index", ".timeindex", ".txnindex", ".snapshot"]),
    st.sampled_from(["", ".deleted", ".cleaned", ".swap"]),
)
def test_file_names_round_trip(offset: int, extension: str, suffix: str) -> None:
    name = segment_file_name(offset, extension, suffix)

    assert parse_segment_file_name(name) == (offset, extension, suffix)
    assert parse_segment_file_name(name + "x") is None


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=700),
    cuts=st.lists(st.integers(0, 30_000), max_size=3),
    queries=st.lists(st.integers(-10, 40_000), max_size=20),
    data=st.data(),
)
def test_index_lookups_agree_with_a_list(
    steps: list[tuple[int, int]], cuts: list[int], queries: list[int], data: st.DataObject
) -> None:
    filesystem = empty_disk()
    index = OffsetIndex(filesystem, "/i", 100, 8 * 1000)
    model: list[tuple[int, int]] = []

    offset, position = 100, 0
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        index.append(offset, position)
        model.append((offset, position))
    for cut in cuts:
        index.truncate_to(100 + cut)
        model = [entry for entry in model if entry[0] < 100 + cut]
        action = data.draw(st.sampled_from(["nothing", "release", "reopen"]))
        if action == "release":
            index.release()
        elif action == "reopen":
            index.seal()
            index = OffsetIndex(filesystem, "/i", 100, 8 * 1000)

    assert index.entry_count == len(model)
    for query in queries:
        before = [entry for entry in model if entry[0] <= 100 + query]
        assert index.lookup(100 + query) == (before[-1] if before else (100, 0))
        after = [entry for entry in model if entry[1] >= query]
        assert index.first_at_or_after(query) == (after[0] if after else None)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 50)), max_size=100),
    st.lists(st.integers(-5, 1005), max_size=20),
)
def test_time_lookups_agree_with_a_list(batches: list[tuple[int, int]], queries: list[int]) -> None:
    index = TimeIndex(empty_disk(), "/t", 100, 12 * 200)
    model: list[tuple[int, int]] = []

    offset = 100
    for timestamp, step in batches:
        offset += step
        index.append_if_later(timestamp, offset)
        if not model or timestamp > model[-1][0]:
            model.append((timestamp, offset))

    for query in queries:
        before = [entry for entry in model if entry[0] <= query]
        assert index.lookup(query) == (before[-1] if before else (-1, 100))


EPOCH_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.integers(0, 20), st.integers(0, 100)),
        st.tuples(st.just("from_end"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("from_start"), st.integers(0, 100), st.just(0)),
    ),
    max_size=30,
)


@given(EPOCH_STEPS, st.integers(-1, 22))
def test_the_end_of_an_epoch_agrees_with_a_plain_search(
    steps: list[tuple[str, int, int]], asked: int
) -> None:
    filesystem = empty_disk()
    cache = LeaderEpochCache(filesystem, "")
    for name, first, second in steps:
        if name == "assign":
            cache.assign(first, second)
        elif name == "from_end":
            cache.truncate_from_end(first)
        else:
            cache.truncate_from_start(first)
        epochs = [entry.epoch for entry in cache.entries]
        starts = [entry.start_offset for entry in cache.entries]
        assert epochs == sorted(set(epochs))
        assert starts == sorted(set(starts))

    found = cache.end_offset_for(asked, 1000)

    entries = cache.entries
    at_most = [entry.epoch for entry in entries if entry.epoch <= asked]
    later = [entry.start_offset for entry in entries if entry.epoch > asked]
    if asked < 0 or not entries or asked > entries[-1].epoch:
        assert found == (-1, -1)
    elif asked == entries[-1].epoch:
        assert found == (asked, 1000)
    else:
        assert found == (at_most[-1] if at_most else asked, later[0])
    cache.flush()
    assert LeaderEpochCache.load(filesystem, "").entries == entries


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=20),
    st.integers(0, 200),
    st.integers(1, 100),
)
def test_an_aborted_search_that_is_complete_missed_nothing(
    shapes: list[tuple[int, int]], fetch_offset: int, length: int
) -> None:
    index = TransactionIndex(empty_disk(), "/t", 0)
    last = 0
    for reach, step in shapes:
        last += step
        first = max(last - reach, 0)
        # What is undecided at a marker can only lie after the smallest later first offset.
        index.append(AbortedTransaction(1, first, last, first))

    upper = fetch_offset + length
    found = index.search(fetch_offset, upper)

    expected = [
        each
        for each in index.entries()
        if each.last_offset >= fetch_offset and each.first_offset < upper
    ]
    assert found.transactions == expected[: len(found.transactions)]
    if not found.is_complete:
        assert found.transactions == expected
