"""Idempotence: every batch has a number in its partition, so that a broker can tell repetitions.

The Sender asks here before it sends a batch and tells what became of it. The rules are those of
KIP-98 and KIP-360: a batch keeps its number when it is sent again; when numbers are lost (a batch
was given up, or the broker forgot the producer), the epoch is raised and numbering begins anew at
0. Knows nothing of brokers or time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.client.producer.lane import NOBODY, ProducerIdentity
from millstream.errors import (
    MillstreamError,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
    is_retriable,
)

if TYPE_CHECKING:
    from millstream.client.producer.lane import Lane
    from millstream.client.producer.producer_batch import ProducerBatch

SEQUENCES: Final = 1 << 31
"""Sequence numbers go from 0 to below this, then from 0 again."""
EPOCH_MAX: Final = (1 << 15) - 1


class Numbering:
    """Who this producer is, and the numbers of its batches, lane by lane."""

    def __init__(self, *, is_transactional: bool) -> None:
        self._is_transactional = is_transactional
        self.identity = NOBODY
        self._to_restart: dict[Lane, None] = {}
        self._unresolved: dict[Lane, None] = {}
        self.lost_numbers: str | None = None
        """Why a transactional producer cannot go on without a new epoch; None if it can."""

    @property
    def has_identity(self) -> bool:
        """Whether batches can be numbered."""
        return self.identity != NOBODY

    def become(self, identity: ProducerIdentity) -> None:
        """Go on as somebody else, or in a later epoch.

        Lanes that have to, start again at once; the others when what they have under way is done.
        """
        self.identity = identity
        self.lost_numbers = None
        if identity != NOBODY:
            for lane in self._to_restart:
                self._restart(lane)
            self._to_restart.clear()

    # ---- before a batch is sent ----

    def may_begin(self, lane: Lane) -> bool:
        """Whether a new batch of the lane may be numbered now."""
        if not self.has_identity or lane.is_unresolved or lane in self._to_restart:
            return False
        if not lane.numbered:
            return True
        # Numbers of two epochs must not be under way at once. And a broker that has nothing of us
        # yet takes whatever number comes first: so the first one goes alone.
        return lane.identity == self.identity and lane.last_acked_sequence >= 0

    def assign(self, lane: Lane, batch: ProducerBatch) -> None:
        """Give a new batch the next number."""
        if lane.identity != self.identity:
            assert not lane.numbered
            self._restart(lane)
        batch.number(*self.identity, lane.next_sequence)
        lane.next_sequence = (lane.next_sequence + batch.record_count) % SEQUENCES
        lane.numbered.append(batch)

    def may_repeat(self, lane: Lane, batch: ProducerBatch) -> bool:
        """Whether a batch may be sent again: one at a time, the first one first."""
        return not batch.has_sequence or lane.numbered[0] is batch

    def split(self, lane: Lane, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The parts of a batch take its numbers."""
        place = lane.numbered.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.number(batch.producer_id, batch.producer_epoch, sequence)
            sequence = (sequence + part.record_count) % SEQUENCES
        lane.numbered[place : place + 1] = parts

    # ---- what became of it ----

    def on_acked(self, lane: Lane, batch: ProducerBatch, base_offset: int) -> None:
        """A broker has a batch, given up meanwhile or not."""
        if batch.is_renumbered:
            # It was taken under its old number: its new one will be missing.
            self.restart(lane)
        elif (batch.producer_id, batch.producer_epoch) == lane.identity:
            last = (batch.base_sequence + batch.record_count - 1) % SEQUENCES
            # Numbers begin again at 0 some day, so "later" is a distance, not a comparison.
            if (last - lane.last_acked_sequence) % SEQUENCES < SEQUENCES // 2:
                lane.last_acked_sequence = last
        if base_offset >= 0:
            lane.last_acked_offset = max(
                lane.last_acked_offset, base_offset + batch.record_count - 1
            )
        self._drop(lane, batch)

    def can_retry(
        self, lane: Lane, batch: ProducerBatch, error: MillstreamError, log_start_offset: int
    ) -> bool:
        """Whether a refused batch may succeed when it is sent again, with whatever number."""
        if isinstance(error, UnknownProducerId):
            return self._can_retry_unknown(lane, batch, log_start_offset)
        if isinstance(error, OutOfOrderSequenceNumber):
            is_next = batch.base_sequence == (lane.last_acked_sequence + 1) % SEQUENCES
            if not lane.is_unresolved and (batch.is_renumbered or not is_next):
                return True  # One before it failed and will be sent again, before it.
            if not self._is_transactional:
                self.restart(lane)
                return True
        return is_retriable(error)

    def _can_retry_unknown(self, lane: Lane, batch: ProducerBatch, log_start_offset: int) -> bool:
        if log_start_offset < 0 or batch.is_renumbered:
            return True
        if lane.last_acked_offset < log_start_offset:
            # Retention has removed all that the broker had of us, and our numbers with it.
            self._restart(lane)
            return True
        if self._is_transactional:
            return False
        self.restart(lane)
        return True

    def on_failed(self, lane: Lane, batch: ProducerBatch, *, is_refused: bool) -> None:
        """A batch is given up. `is_refused`: a broker said that it does not have it."""
        if batch not in lane.numbered:
            return
        place = lane.numbered.index(batch)
        was_sent = batch.attempts > 0
        self._drop(lane, batch)
        if not is_refused:
            if was_sent:
                lane.is_unresolved = True
                self._unresolved[lane] = None
        elif self._is_transactional:
            self._close_gap(lane, batch, place)
        else:
            self.restart(lane)

    def resolve(self) -> None:
        """See which lanes have nothing under way any more, and what that says of their numbers."""
        for lane in [each for each in self._unresolved if not each.numbered]:
            del self._unresolved[lane]
            lane.is_unresolved = False
            if lane.next_sequence == (lane.last_acked_sequence + 1) % SEQUENCES:
                continue  # A later batch was accepted, and so those before it were.
            if self._is_transactional:
                self.lost_numbers = (
                    f"a batch to {lane.topic}-{lane.partition} timed out, and whether the broker "
                    "has it is not known"
                )
            else:
                self.restart(lane)

    # ---- beginning again ----

    @property
    def wants_new_epoch(self) -> bool:
        """Whether a lane can only go on in a new epoch."""
        return bool(self._to_restart)

    def restart(self, lane: Lane) -> None:
        """Number a lane from 0 again, in the next epoch."""
        if not self._is_transactional:
            self._to_restart[lane] = None

    def raise_epoch(self) -> bool:
        """Take the next epoch (only without transactions); False if this id has no more."""
        if self.identity.epoch >= EPOCH_MAX:
            self.become(NOBODY)
            return False
        self.become(ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1))
        return True

    def _restart(self, lane: Lane) -> None:
        lane.identity = self.identity
        lane.next_sequence = 0
        lane.last_acked_sequence = -1
        lane.is_unresolved = False
        self._unresolved.pop(lane, None)
        for batch in lane.numbered:
            batch.number(*self.identity, lane.next_sequence)
            lane.next_sequence = (lane.next_sequence + batch.record_count) % SEQUENCES

    def _close_gap(self, lane: Lane, batch: ProducerBatch, place: int) -> None:
        """What was refused has left its numbers free: those behind it move up."""
        for each in lane.numbered[place:]:
            sequence = (each.base_sequence - batch.record_count) % SEQUENCES
            each.number(each.producer_id, each.producer_epoch, sequence)
        lane.next_sequence = (lane.next_sequence - batch.record_count) % SEQUENCES

    def _drop(self, lane: Lane, batch: ProducerBatch) -> None:
        if batch in lane.numbered:
            lane.numbered.remove(batch)
