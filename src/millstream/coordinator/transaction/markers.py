"""Which partitions must still hear of a transaction's end, and when to tell them again.

A state machine without hands: `node` takes what is due, writes the markers, and says what became of
each, leader by leader. A partition that has no leader now, or whose leader does not answer, is told
again later; it does not hold up the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import (
    InvalidProducerEpoch,
    ProducerFenced,
    TransactionCoordinatorFenced,
    UnsupportedForMessageFormat,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.coordinator.transaction.ports import EndedTransaction
    from millstream.errors import ApiError
    from millstream.types import TopicPartition

RETRY_MS: Final = 20
RETRY_MAX_MS: Final = 1000
_FENCING: Final = (InvalidProducerEpoch, ProducerFenced, TransactionCoordinatorFenced)
"""Somebody newer coordinates this transaction, and will end it."""


class _Pending:
    """A transaction and the partitions that do not know its end."""

    __slots__ = ("due_ms", "ended", "in_flight", "remaining", "serial", "wait_ms")

    def __init__(self, ended: EndedTransaction, now_ms: int, serial: int) -> None:
        self.ended = ended
        self.serial = serial
        self.remaining = set(ended.partitions)
        self.in_flight: set[TopicPartition] = set()
        """Those of them whose markers are being written."""
        self.due_ms: int | None = now_ms
        """When the others are told; None while there are none."""
        self.wait_ms = RETRY_MS


class MarkersDue(NamedTuple):
    """Markers to write now."""

    ended: EndedTransaction
    partitions: tuple[TopicPartition, ...]
    serial: int
    """An old producer ends one transaction like the next: this tells them apart."""


class MarkerQueue:
    """The ends that are on their way."""

    def __init__(self) -> None:
        self._pending: dict[tuple[str, int, int], _Pending] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, ended: EndedTransaction, now_ms: int) -> None:
        """An end is decided."""
        self._serial += 1
        self._pending[_key(ended)] = _Pending(ended, now_ms, self._serial)

    def next_deadline_ms(self) -> int | None:
        """When `take_due` has something; None if never."""
        waits = (each.due_ms for each in self._pending.values())
        return min((each for each in waits if each is not None), default=None)

    def take_due(self, now_ms: int) -> list[MarkersDue]:
        """What to write now; `written` must follow for each partition."""
        due = []
        for pending in self._pending.values():
            if pending.due_ms is not None and pending.due_ms <= now_ms:
                pending.due_ms = None
                partitions = tuple(sorted(pending.remaining - pending.in_flight))
                pending.in_flight |= pending.remaining
                due.append(MarkersDue(pending.ended, partitions, pending.serial))
        return due

    def written(
        self,
        due: MarkersDue,
        results: Iterable[tuple[TopicPartition, ApiError | None]],
        now_ms: int,
    ) -> bool:
        """What became of some markers; True if every partition knows the end now."""
        pending = self._pending.get(_key(due.ended))
        if pending is None or pending.serial != due.serial:
            return False
        has_failed = False
        for partition, error in results:
            pending.in_flight.discard(partition)
            if error is None or isinstance(error, UnsupportedForMessageFormat):
                pending.remaining.discard(partition)
            elif isinstance(error, _FENCING):
                del self._pending[_key(due.ended)]
                return False
            else:
                has_failed = True
        if not pending.remaining:
            del self._pending[_key(due.ended)]
            return True
        if has_failed and pending.due_ms is None:
            pending.due_ms = now_ms + pending.wait_ms
            pending.wait_ms = min(pending.wait_ms * 2, RETRY_MAX_MS)
        return False

    def is_current(self, due: MarkersDue) -> bool:
        """Whether these markers are still to be written by this coordinator."""
        pending = self._pending.get(_key(due.ended))
        return pending is not None and pending.serial == due.serial

    def forget(self, coordinator_partition: int) -> None:
        """Drop the ends that another broker coordinates now."""
        for key, pending in list(self._pending.items()):
            if pending.ended.coordinator_partition == coordinator_partition:
                del self._pending[key]


def _key(ended: EndedTransaction) -> tuple[str, int, int]:
    return ended.transactional_id, ended.producer.producer_id, ended.producer.producer_epoch
