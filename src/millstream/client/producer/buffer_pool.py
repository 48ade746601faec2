"""The memory that a producer may use, handed out in the order in which it was asked for.

The `RecordAccumulator` reserves from it before a batch grows and gives back when the batch is done;
its lock is around every call here. Buffers of batches that were sealed are kept for the next ones,
inside the bound, and given up as soon as their memory is wanted. Nothing waits here: whoever must
wait gets a `Reservation` that tells when it was granted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.records import BatchWriter

SPARE_WRITERS_MAX: Final = 16
"""More buffers than this are not at work at once: five requests to a few brokers."""


class Reservation:
    """Memory that was asked for while none was free."""

    __slots__ = ("_wake", "is_cancelled", "is_granted", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_granted = False
        self.is_cancelled = False
        self._wake: Callable[[], object] | None = None

    def when_granted(self, wake: Callable[[], object]) -> None:
        """What to call, on any thread, once it is granted; called at once if it is already."""
        self._wake = wake
        # The grant may come between the two: then it is called twice, which a wake-up bears.
        if self.is_granted:
            wake()

    def wake(self) -> None:
        """Tell who waits. Called without the accumulator's lock."""
        if self._wake is not None:
            self._wake()


class BufferPool:
    """`total` bytes, of which `available` are free: neither reserved nor in spare buffers."""

    __slots__ = ("_spares", "_waiting", "available", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.available = total
        self._waiting: deque[Reservation] = deque()
        self._spares: list[tuple[BatchWriter, int]] = []

    @property
    def has_waiters(self) -> bool:
        """Whether somebody waits for memory: everything that can be sent should be."""
        return bool(self._waiting)

    def waiting(self) -> list[Reservation]:
        """Those who wait, the next one first."""
        return list(self._waiting)

    def try_reserve(self, size: int) -> bool:
        """Take memory now, unless there is too little or somebody asked before."""
        return not self._waiting and self._take(size)

    def enqueue(self, size: int) -> Reservation:
        """Ask for memory, behind all who asked before."""
        reservation = Reservation(size)
        if self.try_reserve(size):
            reservation.is_granted = True
        else:
            self._waiting.append(reservation)
        return reservation

    def cancel(self, reservation: Reservation) -> list[Reservation]:
        """Withdraw or give back; the reservations that are granted instead, to be woken."""
        if reservation.is_cancelled:
            return []
        reservation.is_cancelled = True
        if reservation.is_granted:
            return self.release(reservation.size)
        self._waiting.remove(reservation)
        return self._grant()

    def release(self, size: int) -> list[Reservation]:
        """Give memory back; the reservations that are granted now, to be woken."""
        self.available += size
        assert self.available <= self.total
        return self._grant() if self._waiting else []

    def take_spare(self) -> tuple[BatchWriter, int] | None:
        """A cleared writer and the bytes that are reserved with it, if there is one."""
        return self._spares.pop() if self._spares and not self._waiting else None

    def keep_spare(self, writer: BatchWriter, size: int) -> bool:
        """Keep a cleared writer whose `size` bytes stay reserved; False if they are wanted."""
        if self._waiting or len(self._spares) >= SPARE_WRITERS_MAX:
            return False
        self._spares.append((writer, size))
        return True

    def _take(self, size: int) -> bool:
        while self.available < size and self._spares:
            self.available += self._spares.pop()[1]
        if self.available < size:
            return False
        self.available -= size
        return True

    def _grant(self) -> list[Reservation]:
        granted: list[Reservation] = []
        while self._waiting and self._take(self._waiting[0].size):
            reservation = self._waiting.popleft()
            reservation.is_granted = True
            granted.append(reservation)
        return granted
