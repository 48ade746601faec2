"""How `AsyncProducer` waits in an event loop for what other threads do. Nothing here blocks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from millstream.client.producer.delivery import until_done

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from millstream.client.producer.producer_batch import ProducerBatch


def event_for_threads() -> tuple[asyncio.Event, Callable[[], None]]:
    """An event of the running loop, and what sets it from any thread."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def happen() -> None:
        with contextlib.suppress(RuntimeError):  # The loop is gone, and who waited in it.
            loop.call_soon_threadsafe(event.set)

    return event, happen


class Until:
    """The end of a batch, to be awaited."""

    __slots__ = ("_batch",)

    def __init__(self, batch: ProducerBatch) -> None:
        self._batch = batch

    def __await__(self) -> Generator[Any, None, None]:
        if not self._batch.is_done:
            yield from until_done(self._batch)
