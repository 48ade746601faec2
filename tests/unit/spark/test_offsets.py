"""Offsets in the notation of Spark's Kafka connector."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidArgument
from millstream.spark.source.offsets import (
    AtOffsets,
    AtTimes,
    Edge,
    from_json,
    listed,
    parse_bound,
    parse_partitions,
    parse_times,
    to_json,
)
from millstream.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_offsets_are_written_by_topic_and_partition_and_read_back() -> None:
    offsets = {B0: 7, A1: 2, A0: 1}

    assert to_json(offsets) == {"a": {"0": 1, "1": 2}, "b": {"0": 7}}
    assert list(to_json(offsets)) == ["a", "b"]
    assert from_json(to_json(offsets)) == offsets


def test_the_number_of_a_partition_does_not_sort_as_text() -> None:
    offsets = {TopicPartition("a", number): 0 for number in (10, 2)}

    assert list(to_json(offsets)["a"]) == ["2", "10"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", Edge.EARLIEST),
        (" Latest ", Edge.LATEST),
        ('{"a": {"0": 23, "1": -2}, "b": {"0": -1}}', AtOffsets({A0: 23, A1: -2, B0: -1})),
    ],
)
def test_a_bound_is_a_word_or_offsets(text: str, meant: object) -> None:
    assert parse_bound(text) == meant


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("first", "no JSON"),
        ("[1]", "no JSON object"),
        ('{"a": 1}', "an object of partitions"),
        ('{"a": {"x": 1}}', "no partition number"),
        ('{"a": {"0": -3}}', "a-0 has -3"),
        ('{"a": {"0": true}}', "a-0 has True"),
        ('{"a": {"0": "1"}}', "a-0 has '1'"),
    ],
)
def test_other_bounds_are_refused_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        parse_bound(text)


def test_times_are_milliseconds_and_not_negative() -> None:
    assert parse_times('{"a": {"0": 1000}}') == AtTimes({A0: 1000})
    with pytest.raises(InvalidArgument, match="milliseconds since 1970"):
        parse_times('{"a": {"0": -1}}')


def test_partitions_to_assign_are_sorted_and_told_once() -> None:
    assert parse_partitions('{"b": [0], "a": [1, 0, 1]}') == (A0, A1, B0)


@pytest.mark.parametrize("text", ["{}", '{"a": []}', '{"a": 0}', '{"a": [-1]}', '{"a": [true]}'])
def test_partitions_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_partitions(text)


def test_partitions_in_words_are_in_order() -> None:
    assert listed([B0, A1, A0]) == "a-0, a-1, b-0"
