"""Which offsets are read, and how they are shared out: to triggers and to tasks.

The readers on the driver plan with it. Plain functions over offsets; nothing here asks a broker or
knows Spark.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.spark.source.offsets import Offsets


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """What one task reads: the records from `start` up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; there may be fewer records."""
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        """Where they are."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def ranges_between(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """The ranges that are not empty, in order."""
    return [
        OffsetRange(each.topic, each.partition, starts[each], end)
        for each, end in sorted(ends.items())
        if each in starts and starts[each] < end
    ]


def split_ranges(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """The same offsets in as many ranges as are asked for, and none larger than allowed."""
    found = [each for each in ranges if each.size > 0]
    if max_records_per_partition is not None:
        found = [
            part
            for each in found
            for part in _split(each, -(-each.size // max_records_per_partition))
        ]
    if min_partitions is not None and len(found) < min_partitions:
        found = _split_to(found, min_partitions)
    return found


def _split_to(ranges: list[OffsetRange], count: int) -> list[OffsetRange]:
    """Split the largest until there are so many, as far as there are offsets for it."""
    parts = [1] * len(ranges)
    for _ in range(count - len(ranges)):
        which = max(
            range(len(ranges)), key=lambda at: (ranges[at].size / parts[at], -at), default=None
        )
        if which is None or ranges[which].size <= parts[which]:
            break
        parts[which] += 1
    return [part for each, n in zip(ranges, parts, strict=True) for part in _split(each, n)]


def _split(whole: OffsetRange, count: int) -> list[OffsetRange]:
    cuts = [whole.start + whole.size * at // count for at in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in itertools.pairwise(cuts)]


def limit_ends(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int
) -> Offsets:
    """Ends with at most `limit` offsets before them, each partition's share as large as its part.

    Every partition that has something gets an offset at least, so that none is starved; with a
    limit below their number there are more offsets than the limit.
    """
    sizes = {each: max(0, end - starts.get(each, end)) for each, end in ends.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    shares = {each: max(min(1, size), limit * size // total) for each, size in sizes.items()}
    left = limit - sum(shares.values())
    # What rounding has left goes to those who lost most by it.
    by_loss = sorted(sizes, key=lambda each: (-(limit * sizes[each] % total), each))
    for each in by_loss:
        if left <= 0:
            break
        if shares[each] < sizes[each]:
            shares[each] += 1
            left -= 1
    return {each: end - sizes[each] + shares[each] for each, end in ends.items()}


def count_offsets(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between; partitions that are only on one side count nothing."""
    return sum(max(0, end - starts[each]) for each, end in ends.items() if each in starts)
