"""Ranges of offsets, shared out to tasks and triggers."""

from __future__ import annotations

from hypothesis import given
from hypothesis.strategies import dictionaries, integers, lists

from millstream.spark.source.planning import (
    OffsetRange,
    count_offsets,
    limit_ends,
    ranges_between,
    split_ranges,
)
from millstream.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def offsets_of(ranges: list[OffsetRange]) -> list[tuple[str, int, int]]:
    return [
        (each.topic, each.partition, offset)
        for each in ranges
        for offset in range(each.start, each.end)
    ]


def test_ranges_are_what_lies_between_in_order_and_never_empty() -> None:
    found = ranges_between({A0: 1, A1: 5, B0: 0}, {B0: 2, A1: 5, A0: 3, TopicPartition("c", 0): 9})

    assert found == [OffsetRange("a", 0, 1, 3), OffsetRange("b", 0, 0, 2)]
    assert [each.size for each in found] == [2, 2]
    assert found[0].topic_partition == A0
    assert str(found[0]) == "a-0 [1, 3)"


def test_no_task_has_more_offsets_than_allowed() -> None:
    found = split_ranges([OffsetRange("a", 0, 0, 10)], max_records_per_partition=4)

    assert [(each.start, each.end) for each in found] == [(0, 3), (3, 6), (6, 10)]


def test_the_largest_ranges_are_split_until_there_are_tasks_enough() -> None:
    ranges = [OffsetRange("a", 0, 0, 90), OffsetRange("a", 1, 0, 10)]

    found = split_ranges(ranges, min_partitions=4)

    assert [(each.partition, each.size) for each in found] == [(0, 30), (0, 30), (0, 30), (1, 10)]


def test_there_are_never_more_tasks_than_offsets() -> None:
    assert len(split_ranges([OffsetRange("a", 0, 0, 3)], min_partitions=50)) == 3
    assert split_ranges([], min_partitions=5) == []


@given(lists(integers(0, 60), max_size=6), integers(1, 40), integers(1, 40))
def test_splitting_keeps_every_offset_once(sizes: list[int], least: int, most: int) -> None:
    ranges = [OffsetRange("a", number, 7, 7 + size) for number, size in enumerate(sizes)]

    found = split_ranges(ranges, min_partitions=least, max_records_per_partition=most)

    assert offsets_of(found) == offsets_of(ranges)
    assert all(0 < each.size <= most for each in found)
    assert len(found) >= min(least, sum(sizes))


def test_a_limit_is_shared_as_much_as_each_partition_has() -> None:
    limited = limit_ends({A0: 0, A1: 100}, {A0: 900, A1: 200}, 100)

    assert limited == {A0: 90, A1: 110}


@given(dictionaries(integers(0, 9), integers(0, 1000), max_size=8), integers(1, 2000))
def test_a_limit_is_used_up_and_starves_nobody(sizes: dict[int, int], limit: int) -> None:
    starts = {TopicPartition("a", number): 50 for number in sizes}
    ends = {TopicPartition("a", number): 50 + size for number, size in sizes.items()}

    limited = limit_ends(starts, ends, limit)

    taken = {each: limited[each] - 50 for each in ends}
    waiting = sum(1 for size in sizes.values() if size)
    total = sum(sizes.values())
    assert all(min(1, ends[each] - 50) <= taken[each] <= ends[each] - 50 for each in ends)
    assert min(limit, total) <= sum(taken.values()) <= max(min(limit, total), limit + waiting)


def test_partitions_of_one_side_only_count_nothing() -> None:
    assert count_offsets({A0: 1}, {A0: 4, A1: 9}) == 3
