"""From where to where `read_topic` reads: offsets, ends and times, for all partitions or for each.

Times become offsets once, before anything is read, and so does the end of each partition: what is
written later is not read. Plain functions over what the brokers said.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from millstream.client.arguments import to_timestamp
from millstream.errors import InvalidArgument, OffsetOutOfRange

if TYPE_CHECKING:
    from millstream.client.consumer.offset_lookup import FoundOffset
    from millstream.types import TopicPartition

Bound: TypeAlias = int | datetime | Literal["earliest", "latest"]
"""An offset, a time, or an end of the log."""
Bounds: TypeAlias = Bound | Mapping[int, Bound]
"""The same for all partitions, or by the partition's number."""


class Ends(NamedTuple):
    """The first offset of a partition that is still there, and the one after the last."""

    first: int
    last: int


class Span(NamedTuple):
    """What to read of a partition: from `start` up to and without `end`."""

    start: int
    end: int


def bound_of(bounds: Bounds, partition: int, name: str, default: Bound) -> Bound:
    """The bound of one partition; the default where a mapping does not name it."""
    bound: object = bounds.get(partition, default) if isinstance(bounds, Mapping) else bounds
    if isinstance(bound, str) and bound not in ("earliest", "latest"):
        raise InvalidArgument(f"{name}={bound!r}: must be an offset, a time, earliest or latest")
    if isinstance(bound, bool) or not isinstance(bound, int | str | datetime):
        raise InvalidArgument(
            f"{name}={bound!r}: must be an offset (int), a time (aware datetime), 'earliest' or "
            "'latest', or a mapping of partitions to those"
        )
    if isinstance(bound, datetime):
        to_timestamp(bound)
    elif isinstance(bound, int) and bound < 0:
        raise InvalidArgument(f"{name}={bound}: an offset is 0 or more")
    return bound  # type: ignore[return-value]  # One of the two words, if it is a str.


def offset_of(
    bound: Bound, partition: TopicPartition, ends: Ends, found: FoundOffset | None, name: str
) -> int:
    """The offset that is meant; `found` is what a lookup of its time gave."""
    if bound == "earliest":
        return ends.first
    if bound == "latest":
        return ends.last
    if isinstance(bound, datetime):
        return ends.last if found is None else min(found.offset, ends.last)
    assert isinstance(bound, int)
    if not ends.first <= bound <= ends.last:
        raise OffsetOutOfRange(
            f"{partition}: {name}={bound} is outside the log, which has the offsets from "
            f"{ends.first} up to and without {ends.last}"
        )
    return bound
