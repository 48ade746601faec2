"""What all batches of one producer share when they end: a lock, a dispatcher, and the unseen.

Batches complete on the I/O thread while handles are looked at by others, so both sides hold the
lock here for a moment; nobody's code runs under it. Failures that nobody has looked at are kept for
`flush()`, which raises for them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.errors import DeliveryFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.errors import MillstreamError

SHOWN_ERRORS_MAX: Final = 5
"""How many reasons a DeliveryFailed carries."""


class Dispatcher(Protocol):
    """Runs callbacks of users, in order, somewhere that is not the I/O thread."""

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run it soon."""
        ...


class Completions:
    """The lock of a producer's batches, where callbacks go, and failures nobody has seen."""

    __slots__ = ("_failed", "dispatcher", "lock")

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.lock = threading.Lock()
        self.dispatcher = dispatcher
        self._failed: list[ProducerBatch] = []

    def note_failure(self, batch: ProducerBatch) -> None:
        """A batch was lost. Called with the lock held."""
        self._failed.append(batch)

    def take_unseen(self) -> DeliveryFailed | None:
        """An error for the records that were lost unseen since the last call; None if none were."""
        with self.lock:
            failed, self._failed = self._failed, []
        count = 0
        errors: list[MillstreamError] = []
        for batch in failed:
            lost = batch.unseen_failures()
            count += lost
            if lost and len(errors) < SHOWN_ERRORS_MAX:
                assert batch.error is not None
                errors.append(batch.error)
        if not count:
            return None
        first = failed[0]
        noun = "record was" if count == 1 else "records were"
        return DeliveryFailed(
            f"{count} {noun} not delivered, among them to {first.topic}-{first.partition}: "
            f"{errors[0]}. Look at the handles that send() returns to learn which",
            count=count,
            errors=errors,
        )
