"""What becomes of a batch after a broker's word, or without one: done, again, in parts, or lost.

The Sender hands each outcome to `BatchCompletion`, which ends the batch exactly once, gives its
memory back, keeps the sequences right and tells the transaction. Only the I/O thread calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from millstream.client.metrics import SendMeters
from millstream.client.producer.produce_exchange import Produced
from millstream.errors import (
    ApiError,
    BrokerUnreachable,
    ClientClosed,
    DeliveryTimeout,
    DuplicateSequenceNumber,
    MessageTooLarge,
    MillstreamError,
    RecordListTooLarge,
    is_retriable,
)
from millstream.network.client.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from millstream.client.producer.config import ProducerConfig
    from millstream.client.producer.partition_state import PartitionState
    from millstream.client.producer.produce_exchange import Outcome
    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.client.producer.record_accumulator import RecordAccumulator
    from millstream.client.producer.sequences import Sequences


class TransactionView(Protocol):
    """What a transaction has to know of batches."""

    def on_batch_failed(self, error: MillstreamError) -> None:
        """A batch of the open transaction was lost."""
        ...


class BatchCompletion:
    """Ends batches, or puts them back into their queues and says so with `send_again`."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        config: ProducerConfig,
        random: Random,
        sequences: Sequences | None,
        send_again: Callable[[PartitionState], None],
    ) -> None:
        self._accumulator = accumulator
        self._config = config
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._random = random
        self._sequences = sequences
        self._send_again = send_again
        self.transaction: TransactionView | None = None
        self.meters = SendMeters()

    def acknowledge(
        self,
        state: PartitionState,
        batch: ProducerBatch,
        base_offset: int,
        log_append_time: int,
        now_ms: int,
    ) -> None:
        """A broker has a batch, and has said where."""
        self.acknowledge_all([Produced(state, batch, base_offset, log_append_time)], now_ms)

    def acknowledge_all(self, produced: Sequence[Produced], now_ms: int) -> None:
        """Brokers have batches, and have said where: the memory of all is free at once."""
        ended: list[ProducerBatch] = []
        size = 0
        for state, batch, base_offset, log_append_time in produced:
            state.in_flight_count -= 1
            batch.is_sent = False
            if self._sequences is not None:
                # If it timed out meanwhile, its number tells whether those behind it can follow.
                self._sequences.on_acked(state, batch, base_offset)
            if not batch.is_done:
                size += batch.size
                batch.end_well(base_offset, log_append_time)
                ended.append(batch)
        if ended:
            self.meters.on_acknowledged(ended, size, now_ms)
            # After their end: who flushes waits for what the accumulator still knows. Before it is
            # told: who waits for it goes on with their memory.
            self._accumulator.finish(*ended)
        for batch in ended:
            batch.tell()

    def complete(
        self, state: PartitionState, batch: ProducerBatch, outcome: Outcome, now_ms: int
    ) -> None:
        """A broker has answered, or cannot be reached: `outcome` tells."""
        error = outcome.error
        if error is None:
            self.acknowledge(state, batch, outcome.base_offset, outcome.log_append_time, now_ms)
            return
        if isinstance(error, DuplicateSequenceNumber) and not batch.is_done:
            # The broker knows a duplicate's offset no more.
            self.acknowledge(state, batch, -1, outcome.log_append_time, now_ms)
            return
        state.in_flight_count -= 1
        batch.is_sent = False
        if batch.is_done:
            return
        if isinstance(error, MessageTooLarge | RecordListTooLarge) and batch.record_count > 1:
            self._split(state, batch)
        elif self._may_retry(state, batch, outcome, now_ms):
            self._retry(state, batch, error, now_ms)
        else:
            is_refused = isinstance(error, ApiError) and batch.attempts <= self._config.retries
            self.fail(state, batch, error, outcome.record_errors or None, is_refused=is_refused)

    def fail(
        self,
        state: PartitionState | None,
        batch: ProducerBatch,
        error: MillstreamError,
        record_errors: object = None,
        *,
        is_refused: bool = False,
    ) -> None:
        """Give a batch up. `is_refused`: a broker said that it does not have it."""
        if state is not None and self._sequences is not None:
            self._sequences.on_failed(state, batch, is_refused=is_refused)
        self.meters.records_failed += batch.record_count
        batch.fail(error, record_errors)  # type: ignore[arg-type]  # As an Outcome has them.
        self._accumulator.finish(batch)
        if self.transaction is not None:
            self.transaction.on_batch_failed(error)

    def expire(self, now_ms: int) -> int | None:
        """Give up what was not acknowledged in time; when the next batch will be late."""
        limit_ms = self._config.delivery_timeout_ms
        while (batch := self._accumulator.oldest()) is not None:
            if now_ms < batch.created_ms + limit_ms:
                return batch.created_ms + limit_ms
            self._accumulator.remove(batch)
            self.fail(batch.state, batch, self._timeout_of(batch, limit_ms))
        return None

    def fail_all(self, error: MillstreamError, *, unsent_only: bool = False) -> None:
        """Give up every batch, or those that are neither on their way nor numbered."""
        for batch in self._accumulator.incomplete():
            if unsent_only and (batch.is_sent or batch.is_repeat):
                continue
            was_waiting = self._accumulator.remove(batch)
            # The end of one may end others: a transaction gives up what it has not sent.
            if not batch.is_done and (was_waiting or not unsent_only):
                self.fail(batch.state, batch, error)

    def _split(self, state: PartitionState, batch: ProducerBatch) -> None:
        parts = batch.split()
        if self._sequences is not None:
            self._sequences.split(state, batch, parts)
        self._accumulator.replace(batch, parts)
        for part in parts:
            part.state = state
            self._accumulator.put_back(state, part)
        self._send_again(state)

    def _may_retry(
        self, state: PartitionState, batch: ProducerBatch, outcome: Outcome, now_ms: int
    ) -> bool:
        error = outcome.error
        assert error is not None
        if batch.attempts > self._config.retries or isinstance(error, ClientClosed):
            return False
        if now_ms >= batch.created_ms + self._config.delivery_timeout_ms:
            return False
        if self._sequences is None:
            return is_retriable(error)
        return self._sequences.can_retry(state, batch, error, outcome.log_start_offset)

    def _retry(
        self, state: PartitionState, batch: ProducerBatch, error: MillstreamError, now_ms: int
    ) -> None:
        self.meters.retries += 1
        batch.retry_at_ms = now_ms + self._backoff.after(batch.attempts, self._random)
        if isinstance(error, BrokerUnreachable) and not error.was_sent:
            batch.attempts -= 1  # Nothing was tried: the connection's own backoff is enough.
            batch.retry_at_ms = now_ms
        self._accumulator.put_back(state, batch)
        self._send_again(state)

    def _timeout_of(self, batch: ProducerBatch, limit_ms: int) -> DeliveryTimeout:
        state = (
            "it may or may not be written"
            if batch.attempts
            else "it was never sent: is the partition's leader reachable?"
        )
        return DeliveryTimeout(
            f"{batch.record_count} records to {batch.topic}-{batch.partition} were not "
            f"acknowledged within the delivery timeout, {limit_ms / 1000:g} s, after "
            f"{batch.attempts} attempts; {state}"
        )
