"""Producers that outlive a task: each of Spark's Python workers keeps those that it has used.

Connecting costs more than a small micro-batch takes. Only producers without transactions are
kept: they are nobody's but their process's, and remember nothing that a task could rely on.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from millstream.client.producer.producer import Producer
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KEPT_MAX: Final = 4
"""Sinks with other settings than these are rare; the one that was idle longest goes."""

_kept: Final[dict[tuple[tuple[str, str], ...], Producer]] = {}


@contextlib.contextmanager
def borrowed(settings: Mapping[str, str]) -> Iterator[Producer]:
    """A producer with these settings, for one task at a time; one that failed is not kept."""
    name = tuple(sorted(settings.items()))
    producer = _kept.pop(name, None) or Producer.from_config(settings)
    try:
        yield producer
    except BaseException:
        close(producer, 0)
        raise
    while len(_kept) >= KEPT_MAX:
        close(_kept.pop(next(iter(_kept))), 0)
    _kept[name] = producer


def close(producer: Producer, timeout: float | None = None) -> None:
    """End a producer whose records are settled or given up."""
    with contextlib.suppress(MillstreamError):
        producer.close(timeout)


def close_all() -> None:
    """End all that are kept."""
    while _kept:
        close(_kept.popitem()[1])
