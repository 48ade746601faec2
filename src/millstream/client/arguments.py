"""What callers give, checked at the border: partitions, offsets, times, names.

`Producer`, `Consumer` and the other clients call it before anything is handed to the I/O thread,
where a value of the wrong kind would end the client. Nothing here is called for each record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import index
from typing import Any

from millstream.client.groups import OffsetAndMetadata
from millstream.errors import InvalidArgument
from millstream.types import INT64_MAX, TopicPartition


def as_partition(given: object) -> TopicPartition:
    """A partition; a plain `(topic, number)` will do."""
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given[0], _as_int(given[1])
        if topic and isinstance(topic, str) and number is not None and number >= 0:
            return TopicPartition(topic, number)
    raise InvalidArgument(f"{given!r} is no partition; give TopicPartition(topic, number)")


def as_partitions(given: object) -> list[TopicPartition]:
    """Several partitions."""
    if isinstance(given, TopicPartition | str) or not isinstance(given, Iterable):
        raise InvalidArgument(
            f"{given!r} is no list of partitions; give [TopicPartition(...), ...]"
        )
    return [as_partition(each) for each in given]


def as_mapping(given: object, values: str) -> Mapping[Any, Any]:
    """Something for each of several partitions; `values` says what."""
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{given!r}: give a dict from TopicPartition to {values}")
    return given


def as_number(given: object, what: str, advice: str) -> int:
    """A whole number of 0 or more: an offset, a partition."""
    number = _as_int(given)
    if number is None or not 0 <= number <= INT64_MAX:
        raise InvalidArgument(f"{what}={given!r}: must be a number of 0 or more; {advice}")
    return number


def as_offsets(given: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to be committed, by partition."""
    offsets = as_mapping(given, "an offset")
    places = [as_partition(each) for each in offsets]
    return {each: as_committed(each, offsets[each]) for each in places}


def as_committed(partition: TopicPartition, given: object) -> OffsetAndMetadata:
    """What is to be committed for a partition: an offset, or one with metadata."""
    offset = given.offset if isinstance(given, OffsetAndMetadata) else given
    number = _as_int(offset)
    if number is None or not 0 <= number <= INT64_MAX:
        raise InvalidArgument(
            f"{partition}: commit an offset of 0 or more, or OffsetAndMetadata, not {given!r}"
        )
    if not isinstance(given, OffsetAndMetadata):
        return OffsetAndMetadata(number)
    if not isinstance(given.metadata, str):
        raise InvalidArgument(f"{partition}: metadata must be a str, not {given.metadata!r}")
    if given.leader_epoch is not None and _as_int(given.leader_epoch) is None:
        raise InvalidArgument(f"{partition}: leader_epoch must be a number: {given.leader_epoch!r}")
    return given


def to_timestamp(time: object) -> int:
    """Milliseconds since 1970 of an aware datetime, or as they are."""
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise InvalidArgument(
                f"{time!r} has no time zone: use an aware datetime, or milliseconds since 1970"
            )
        return round(time.timestamp() * 1000)
    timestamp = _as_int(time)
    if timestamp is None:
        raise InvalidArgument(
            f"{time!r} is no time: use an aware datetime, or milliseconds since 1970"
        )
    if timestamp < 0:
        raise InvalidArgument(f"{time} is before 1970; give milliseconds since then")
    return timestamp


def as_topics(given: object) -> list[str]:
    """Names of topics: one, or several."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Iterable):
        raise InvalidArgument(f"{given!r} is no topic; give its name, or a list of names")
    return [as_topic(each) for each in names]


def as_topic(given: object) -> str:
    """The name of a topic."""
    if not isinstance(given, str) or not given:
        raise InvalidArgument(f"a topic is a str that is not empty, not {given!r}")
    return given


def as_pattern(given: object) -> re.Pattern[str]:
    """A compiled pattern of names."""
    if not isinstance(given, re.Pattern) or not isinstance(given.pattern, str):
        raise InvalidArgument(f"pattern={given!r}: give a str, or re.compile() of one")
    return given


def as_seconds(given: object) -> float:
    """How long something may take."""
    if not isinstance(given, int | float) or not given >= 0:
        raise InvalidArgument(f"timeout={given!r}: must be at least 0 seconds")
    return given


def _as_int(given: Any) -> int | None:
    """The number that it is, also one of numpy's; None if it is none."""
    if isinstance(given, bool):
        return None
    try:
        return index(given)
    except TypeError:
        return None
