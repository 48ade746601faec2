"""Offsets of topics as values and as JSON, in the notation of Spark's own Kafka connector.

Options, checkpoints and streaming progress all spell offsets `{"orders": {"0": 23, "1": -2}}`; this
is the only place that knows. Where a read begins or ends is one of the bounds below, which `lookup`
turns into offsets. Nothing here asks a broker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.errors import InvalidArgument
from millstream.types import INT64_MAX, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Offsets: TypeAlias = dict[TopicPartition, int]
"""The next offset of each partition."""
JsonOffsets: TypeAlias = dict[str, dict[str, int]]
"""The same by topic and by the partition's number in text, as JSON has it."""

LATEST_OFFSET: Final = -1
"""In options: after the last record."""
EARLIEST_OFFSET: Final = -2
"""In options: the first record that is still there."""


class Edge(Enum):
    """One end of the logs, for all partitions."""

    EARLIEST = EARLIEST_OFFSET
    LATEST = LATEST_OFFSET


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; LATEST_OFFSET and EARLIEST_OFFSET stand for the ends."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of each partition that is not older than this, in ms since 1970."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same with a time for each partition."""

    times: Mapping[TopicPartition, int]


Bound: TypeAlias = Edge | AtOffsets | AtTime | AtTimes
"""Where reading begins or ends."""


def to_json(offsets: Mapping[TopicPartition, int]) -> JsonOffsets:
    """Offsets as what `json.dumps` takes, topics and partitions in order."""
    found: JsonOffsets = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def from_json(offsets: JsonOffsets) -> Offsets:
    """What `to_json` gave, read back from a checkpoint."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, of_topic in offsets.items()
        for number, offset in of_topic.items()
    }


def parse_bound(text: str) -> Bound:
    """What startingOffsets or endingOffsets says: earliest, latest, or offsets as JSON."""
    word = text.strip().lower()
    if word == "earliest":
        return Edge.EARLIEST
    if word == "latest":
        return Edge.LATEST
    return AtOffsets(
        _parse_numbers(text, "an offset, -1 (latest) or -2 (earliest)", EARLIEST_OFFSET)
    )


def parse_times(text: str) -> AtTimes:
    """What startingOffsetsByTimestamp or endingOffsetsByTimestamp says."""
    return AtTimes(_parse_numbers(text, "milliseconds since 1970", 0))


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """What assign says: `{"orders": [0, 1]}`."""
    found = []
    for topic, numbers in _parse_object(text, '{"topic": [0, 1]}').items():
        if not isinstance(numbers, list) or not all(_is_partition(each) for each in numbers):
            raise InvalidArgument(f"{topic!r} must have a list of partition numbers")
        found += [TopicPartition(topic, each) for each in numbers]
    if not found:
        raise InvalidArgument("it names no partition")
    return tuple(sorted(set(found)))


def listed(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in words, in order."""
    return ", ".join(map(str, sorted(partitions)))


def _parse_numbers(text: str, what: str, smallest: int) -> Offsets:
    found: Offsets = {}
    for topic, of_topic in _parse_object(text, '{"topic": {"0": 23}}').items():
        if not isinstance(of_topic, dict):
            raise InvalidArgument(f"{topic!r} must have an object of partitions")
        for number, value in of_topic.items():
            if not number.isdecimal():
                raise InvalidArgument(f"{number!r} of {topic!r} is no partition number")
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not is_number or not smallest <= value <= INT64_MAX:
                raise InvalidArgument(f"{topic}-{number} has {value!r}; it must be {what}")
            found[TopicPartition(topic, int(number))] = value
    return found


def _parse_object(text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"it is no JSON ({error}); write {example}") from error
    if not isinstance(found, dict):
        raise InvalidArgument(f"it is no JSON object; write {example}")
    return found


def _is_partition(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
