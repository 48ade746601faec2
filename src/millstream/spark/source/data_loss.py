"""What to do when records that should be read are gone: fail with the facts, or say so and go on.

`failOnDataLoss` decides. The driver finds losses when it plans, a task when it reads; both tell
what is lost, why that happens and how to go on in the same words.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.errors import RecordsLost
from millstream.spark.source.offsets import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.types import TopicPartition

_logger: Final = logging.getLogger(__name__)

_HOW_TO_GO_ON: Final = (
    "To go on without them, set failOnDataLoss=false; to begin anew, give the query a new "
    "checkpoint location and startingOffsets."
)


def report_loss(problem: str, *, is_fatal: bool) -> None:
    """Raise RecordsLost, or log a warning."""
    if is_fatal:
        raise RecordsLost(f"{problem} {_HOW_TO_GO_ON}")
    _logger.warning("%s failOnDataLoss is false: reading on.", problem)


def deleted(partition: TopicPartition, start: int, end: int, first: int) -> str:
    """The log begins behind the offsets that should be read."""
    return (
        f"{partition}: the offsets {start} to {min(end, first) - 1} are gone, the log now begins "
        f"at {first} (they were deleted by retention or by hand before they were read)."
    )


def truncated(partition: TopicPartition, wanted: int, last: int) -> str:
    """The log ends before the offsets that should be read."""
    return (
        f"{partition}: offset {wanted} was read or asked for and the log now ends at {last} (the "
        "topic was made anew, or the log lost its end)."
    )


def vanished(partitions: Iterable[TopicPartition]) -> str:
    """Partitions that were read do not exist any more."""
    return (
        f"{listed(partitions)} existed when the query read last, and exist no more (the topic was "
        "deleted, or the query reads others now)."
    )


def check_starts(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
    *,
    is_fatal: bool,
) -> dict[TopicPartition, int]:
    """Where reading can begin; losses are reported."""
    found = dict(starts)
    for partition, start in sorted(starts.items()):
        begins = first.get(partition, start)
        end = ends.get(partition, start)
        if start < begins and start < end:
            report_loss(deleted(partition, start, end, begins), is_fatal=is_fatal)
            found[partition] = min(begins, end)
    return found
