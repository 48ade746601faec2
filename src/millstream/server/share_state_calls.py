"""The shape that the five requests about share state have in common.

Each names a group, topics and partitions; each partition is asked for on its own and answered in
its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from millstream.coordinator.gathering import gather
from millstream.coordinator.share.state import ShareKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message, Struct

R = TypeVar("R", bound="Message")
P = TypeVar("P", bound="Struct")


def ask_each(
    request: Any,
    ask: Callable[[ShareKey, Any, Callable[[P], None]], None],
    make_topic: Callable[..., Struct],
    make_response: Callable[..., R],
    done: Callable[[R], None],
) -> None:
    """Ask for every partition of a request; `done` gets the response with all results.

    `ask` is given the share partition, the partition as it is in the request, and who takes the
    result; `make_topic` and `make_response` are the classes of the response.
    """
    places = [
        (ShareKey(request.group_id, topic.topic_id, asked.partition), asked)
        for topic in request.topics
        for asked in topic.partitions
    ]

    def answered(results: list[P]) -> None:
        in_order = iter(results)
        done(
            make_response(
                results=[
                    make_topic(
                        topic_id=topic.topic_id,
                        partitions=[next(in_order) for _ in topic.partitions],
                    )
                    for topic in request.topics
                ]
            )
        )

    gather(places, lambda place, take: ask(*place, take), answered)


def fail_each(
    request: Any,
    make_partition: Callable[[int], Struct],
    make_topic: Callable[..., Struct],
    make_response: Callable[..., R],
) -> R:
    """Every partition gets the same result."""
    return make_response(
        results=[
            make_topic(
                topic_id=topic.topic_id,
                partitions=[make_partition(asked.partition) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )
