"""Idempotence: every batch has a number in its partition, so that a broker can tell repetitions.

The Sender asks here before it sends a batch and tells what became of it. The rules are those of
KIP-98 and KIP-360: a batch keeps its number when it is sent again; when numbers are lost (a batch
was given up, or the broker forgot the producer), the epoch is raised and numbering begins anew at
0. Knows nothing of brokers or time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.client.producer.produce_sink import (
    NOBODY,
    SEQUENCES,
    UNLIMITED,
    ProducerIdentity,
)
from millstream.errors import (
    MillstreamError,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
    is_retriable,
)

if TYPE_CHECKING:
    from millstream.client.producer.partition_state import PartitionState
    from millstream.client.producer.producer_batch import ProducerBatch

EPOCH_MAX: Final = (1 << 15) - 1


class Sequences:
    """Who this producer is, and the numbers of its batches, partition by partition."""

    def __init__(self, *, is_transactional: bool) -> None:
        self._is_transactional = is_transactional
        self.identity = NOBODY
        self._to_restart: dict[PartitionState, None] = {}
        self._unresolved: dict[PartitionState, None] = {}
        self.lost_numbers: str | None = None
        """Why a transactional producer cannot go on without a new epoch; None if it can."""

    @property
    def has_identity(self) -> bool:
        """Whether batches can be numbered."""
        return self.identity != NOBODY

    def become(self, identity: ProducerIdentity) -> None:
        """Go on as somebody else, or in a later epoch.

        Partitions that have to start again do so at once; the others when nothing is in flight.
        """
        self.identity = identity
        self.lost_numbers = None
        if identity != NOBODY:
            for state in self._to_restart:
                self._restart(state)
            self._to_restart.clear()

    # ---- before a batch is sent ----

    def allowance(self, state: PartitionState) -> int:
        """How many batches a partition that sends nothing now may send.

        One at a time while batches are sent again, the first one first.
        """
        repeats = state.queue.repeats()
        if repeats and repeats[0].has_sequence:
            return 1 if state.numbered[0] is repeats[0] else 0
        if not self.has_identity or state.is_unresolved or state in self._to_restart:
            return 0
        # A broker that has nothing of us yet takes whatever number comes first: so the first one
        # goes alone. And numbers of two epochs must not be in flight at once.
        if state.identity == self.identity and state.last_acked_sequence >= 0:
            return UNLIMITED
        return 0 if state.numbered else 1

    def begin(self, state: PartitionState) -> ProducerIdentity:
        """Whose numbers the next new batches of a partition that is granted to send have."""
        if state.identity != self.identity and not state.numbered:
            self._restart(state)
        return state.identity

    def on_sent(self, state: PartitionState, batch: ProducerBatch) -> None:
        """A new batch was numbered and sent."""
        state.numbered.append(batch)

    def split(
        self, state: PartitionState, batch: ProducerBatch, parts: list[ProducerBatch]
    ) -> None:
        """The parts of a batch take its numbers."""
        place = state.numbered.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.number(batch.producer_id, batch.producer_epoch, sequence)
            sequence = (sequence + part.record_count) % SEQUENCES
        state.numbered[place : place + 1] = parts

    # ---- what became of it ----

    def on_acked(self, state: PartitionState, batch: ProducerBatch, base_offset: int) -> None:
        """A broker has a batch, given up meanwhile or not."""
        if batch.is_renumbered:
            # It was taken under its old number: its new one will be missing.
            self.restart(state)
        elif (batch.producer_id, batch.producer_epoch) == state.identity:
            last = (batch.base_sequence + batch.record_count - 1) % SEQUENCES
            # Numbers begin again at 0 some day, so "later" is a distance, not a comparison.
            if (last - state.last_acked_sequence) % SEQUENCES < SEQUENCES // 2:
                state.last_acked_sequence = last
        if base_offset >= 0:
            state.last_acked_offset = max(
                state.last_acked_offset, base_offset + batch.record_count - 1
            )
        self._drop(state, batch)

    def can_retry(
        self,
        state: PartitionState,
        batch: ProducerBatch,
        error: MillstreamError,
        log_start_offset: int,
    ) -> bool:
        """Whether a refused batch may succeed when it is sent again, with whatever number."""
        if isinstance(error, UnknownProducerId):
            return self._can_retry_unknown(state, batch, log_start_offset)
        if isinstance(error, OutOfOrderSequenceNumber):
            is_next = batch.base_sequence == (state.last_acked_sequence + 1) % SEQUENCES
            if not state.is_unresolved and (batch.is_renumbered or not is_next):
                return True  # One before it failed and will be sent again, before it.
            if not self._is_transactional:
                self.restart(state)
                return True
        return is_retriable(error)

    def _can_retry_unknown(
        self, state: PartitionState, batch: ProducerBatch, log_start_offset: int
    ) -> bool:
        if log_start_offset < 0 or batch.is_renumbered:
            return True
        if state.last_acked_offset < log_start_offset:
            # Retention has removed all that the broker had of us, and our numbers with it.
            self._restart(state)
            return True
        if self._is_transactional:
            return False
        self.restart(state)
        return True

    def on_failed(self, state: PartitionState, batch: ProducerBatch, *, is_refused: bool) -> None:
        """A batch is given up. `is_refused`: a broker said that it does not have it."""
        if batch not in state.numbered:
            return
        place = state.numbered.index(batch)
        was_sent = batch.attempts > 0
        self._drop(state, batch)
        if not is_refused:
            if was_sent:
                state.is_unresolved = True
                self._unresolved[state] = None
        elif self._is_transactional:
            self._close_gap(state, batch, place)
        else:
            self.restart(state)

    def resolve(self) -> None:
        """See which partitions have nothing in flight any more, and what that says of numbers."""
        for state in [each for each in self._unresolved if not each.numbered]:
            del self._unresolved[state]
            state.is_unresolved = False
            if state.queue.next_sequence == (state.last_acked_sequence + 1) % SEQUENCES:
                continue  # A later batch was accepted, and so those before it were.
            if self._is_transactional:
                self.lost_numbers = (
                    f"a batch to {state.topic}-{state.partition} timed out, and whether the broker "
                    "has it is not known"
                )
            else:
                self.restart(state)

    # ---- beginning again ----

    @property
    def wants_new_epoch(self) -> bool:
        """Whether a partition can only go on in a new epoch."""
        return bool(self._to_restart)

    def restart(self, state: PartitionState) -> None:
        """Number a partition from 0 again, in the next epoch."""
        if not self._is_transactional:
            self._to_restart[state] = None

    def next_identity(self) -> ProducerIdentity:
        """The same producer in its next epoch, without transactions; NOBODY if it has no more."""
        if self.identity.epoch >= EPOCH_MAX:
            return NOBODY
        return ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)

    def _restart(self, state: PartitionState) -> None:
        state.identity = self.identity
        state.queue.next_sequence = 0
        state.last_acked_sequence = -1
        state.is_unresolved = False
        self._unresolved.pop(state, None)
        for batch in state.numbered:
            batch.number(*self.identity, state.queue.next_sequence)
            state.queue.next_sequence = (state.queue.next_sequence + batch.record_count) % SEQUENCES

    def _close_gap(self, state: PartitionState, batch: ProducerBatch, place: int) -> None:
        """What was refused has left its numbers free: those behind it move up."""
        for each in state.numbered[place:]:
            sequence = (each.base_sequence - batch.record_count) % SEQUENCES
            each.number(each.producer_id, each.producer_epoch, sequence)
        state.queue.next_sequence = (state.queue.next_sequence - batch.record_count) % SEQUENCES

    def _drop(self, state: PartitionState, batch: ProducerBatch) -> None:
        if batch in state.numbered:
            state.numbered.remove(batch)
