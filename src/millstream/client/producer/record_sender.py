"""`RecordSender`: the `send` that a blocking producer has, in plain Python.

`Producer` derives from it, or from the compiled version, which puts an ordinary record into its
batch by itself; `kernel` chooses. It knows nothing of batches: all is done in `_send`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeVar

    from millstream.client.producer.delivery import Delivery
    from millstream.client.producer.record import HeadersLike, Timestamp
    from millstream.types import ReadableBuffer

    K = TypeVar("K", default=ReadableBuffer | str)
    V = TypeVar("V", default=ReadableBuffer | str)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class RecordSender(Generic[K, V]):
    """What `Producer.send` looks like."""

    def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        partition: int | None = None,
        timestamp: Timestamp = None,
        headers: HeadersLike = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery:
        """Send one record; its handle tells what becomes of it.

        Waits up to `max_block` seconds for metadata or memory. `on_delivery(delivery)` is called
        on another thread when it is known.
        """
        return self._send(topic, value, key, partition, timestamp, headers, on_delivery)

    def send_through(self, accumulator: object) -> None:
        """Have ordinary records appended there without `_send`, where a compiled version can."""

    def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: Timestamp,
        headers: HeadersLike,
        on_delivery: Callable[[Delivery], object] | None,
    ) -> Delivery:
        """The producer's own way of a record."""
        raise NotImplementedError
