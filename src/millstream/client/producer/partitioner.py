"""Which partition a record goes to, when its sender does not say.

The built-in choice (a key's murmur2 hash as Java's, else the sticky partition) is
made by the accumulator for each record. Other partitioners are objects or functions of the user, or
`RoundRobin`; the producer asks them before it appends. Nothing here knows brokers or time.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from importlib import import_module
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from millstream.types import ReadableBuffer


class TopicPartitions(Protocol):
    """What a partitioner learns of a topic."""

    @property
    def count(self) -> int:
        """How many partitions there are."""
        ...

    @property
    def available(self) -> Sequence[int]:
        """Those that have a leader."""
        ...


@runtime_checkable
class Partitioner(Protocol):
    """Chooses partitions; it may be asked by several threads at once."""

    def partition(
        self,
        topic: str,
        key: ReadableBuffer | None,
        value: ReadableBuffer | None,
        partitions: TopicPartitions,
    ) -> int:
        """The partition for a record with this serialized key and value."""
        ...


class RoundRobin:
    """One record to each available partition in turn, whatever the keys."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._lock = threading.Lock()

    def partition(
        self,
        topic: str,
        key: ReadableBuffer | None,
        value: ReadableBuffer | None,
        partitions: TopicPartitions,
    ) -> int:
        """The one after the last."""
        choices = partitions.available or range(partitions.count)
        with self._lock:
            turn = self._next.get(topic, 0)
            self._next[topic] = turn + 1
        return choices[turn % len(choices)]


class _FunctionPartitioner:
    """A function in the place of a `Partitioner`."""

    def __init__(self, function: Callable[..., int]) -> None:
        self.partition = function


def resolve_partitioner(given: object) -> Partitioner | None:
    """A partitioner from a setting: None for the built-in one, a name, an object or a function."""
    if given is None or given == "sticky":
        return None
    if given == "round_robin":
        return RoundRobin()
    if isinstance(given, str):
        given = _named(given)
    if isinstance(given, type):
        given = given()
    # A str has a method of that name, too.
    if isinstance(given, Partitioner) and not isinstance(given, str):
        return given
    if callable(given):
        return _FunctionPartitioner(given)
    raise InvalidArgument(
        "partitioner must be 'sticky', 'round_robin', a function of (topic, key, value, "
        f"partitions) or an object with such a method `partition`; not {given!r}"
    )


def _named(name: str) -> object:
    """What a dotted name stands for; the name itself if it is none."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute) if module else name
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"partitioner {name!r} cannot be imported: {error}") from error


def draw_partition(
    candidates: Sequence[int], queue_sizes: Sequence[int] | None, random: Random
) -> int:
    """One of the candidates, the likelier the shorter its queue (KIP-794); evenly without sizes.

    The weight of a queue is how much shorter it is than one that were longer than the longest, so
    that every partition keeps a chance.
    """
    if queue_sizes is None or len(candidates) == 1:
        return candidates[int(random.random() * len(candidates))]  # injected
    longest = max(queue_sizes) + 1
    bounds = list(accumulate(longest - size for size in queue_sizes))
    return candidates[bisect_right(bounds, int(random.random() * bounds[-1]))]
