"""Transactions that wait for their coordinator's word before their first append to a partition.

Without it a late batch could begin a transaction nobody will ever end (KIP-890). The leader takes
a guard, asks the coordinator, and appends with the guard; a marker that lands meanwhile makes the
guard worthless. `ProducerStateManager` owns a table of them. It does not talk to the coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import InvalidTxnState, OutOfOrderSequenceNumber

if TYPE_CHECKING:
    from millstream.records.batch import RecordBatch


class VerificationGuard:
    """Proof of one attempt to verify a transaction; compared by identity."""

    __slots__ = ()


@dataclass(slots=True)
class _Verification:
    guard: VerificationGuard
    started_ms: int
    epoch: int
    lowest_sequence: int
    supports_epoch_bump: bool


class VerificationTable:
    """The verifications of one partition that are going on now, by producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self, by_producer: dict[int, _Verification]) -> None:
        """`by_producer` belongs to the state of the producers: the fast path looks at it there."""
        self._by_producer = by_producer

    def begin(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """Take a guard, or join the attempt that is going on.

        Several batches may wait for one answer; the lowest sequence among them must come first.
        """
        found = self._by_producer.get(producer_id)
        if found is None:
            found = _Verification(VerificationGuard(), now_ms, epoch, sequence, supports_epoch_bump)
            self._by_producer[producer_id] = found
        elif epoch > found.epoch:
            found.epoch, found.lowest_sequence = epoch, sequence
        elif epoch == found.epoch:
            found.lowest_sequence = min(found.lowest_sequence, sequence)
        return found.guard

    def holds(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether the guard is of the attempt that is going on."""
        found = self._by_producer.get(producer_id)
        return found is not None and found.guard is guard

    def require(self, producer_id: int, guard: VerificationGuard | None) -> None:
        """Raise unless the guard is of the attempt that is going on."""
        if guard is None or not self.holds(producer_id, guard):
            raise InvalidTxnState(
                f"producer {producer_id} has no transaction open in this partition, and none that "
                "was verified with its coordinator"
            )

    def check_sequence(self, batch: RecordBatch, *, is_known_producer: bool) -> None:
        """Raise if a batch overtakes another that waits, or begins a new transaction not at 0."""
        found = self._by_producer.get(batch.producer_id)
        if found is None:
            return
        expected = None
        if batch.base_sequence > found.lowest_sequence:
            expected = f"at most {found.lowest_sequence}, which was seen while verifying"
        elif not is_known_producer and found.supports_epoch_bump and batch.base_sequence != 0:
            expected = "0, the first of a new transaction"
        if expected is not None:
            raise OutOfOrderSequenceNumber(
                f"producer {batch.producer_id} (epoch {batch.producer_epoch}) sent sequence "
                f"{batch.base_sequence}, expected {expected}"
            )

    def forget(self, producer_id: int) -> None:
        """The transaction began or ended: guards taken before are worthless."""
        self._by_producer.pop(producer_id, None)

    def remove_older_than(self, started_ms: int) -> None:
        """Forget attempts nobody came back from."""
        for producer_id, found in list(self._by_producer.items()):
            if found.started_ms <= started_ms:
                del self._by_producer[producer_id]

    def clear(self) -> None:
        """Forget all."""
        self._by_producer.clear()
