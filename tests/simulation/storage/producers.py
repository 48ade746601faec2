"""Draws batches: plain, idempotent, transactional, markers, of every codec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.records import Compression, ControlType, EndTxnMarker
from millstream.records.builder import RecordBatchBuilder
from millstream.records.control import end_txn_marker

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.storage.model import ModelProducer

PLAIN_PRODUCERS = (1, 2, 3)
TRANSACTIONAL_PRODUCERS = (101, 102)


class BatchSource:
    """Makes batches whose values never repeat."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._value_count = 0

    def draw(
        self, known: dict[int, ModelProducer], now_ms: int, base_offset: int, leader_epoch: int
    ) -> bytes:
        """A batch that a log which knows these producers must take."""
        producer_id = self._random.choice([-1, -1, -1, *PLAIN_PRODUCERS, *TRANSACTIONAL_PRODUCERS])
        state = known.get(producer_id)
        epoch, sequence = 0, 0
        if state is not None:
            epoch, sequence = state.epoch, state.last_sequence + 1
            is_open = state.transaction_first_offset is not None
            if self._random.random() < 0.1 and not is_open:
                epoch, sequence = epoch + 1, 0
        return self.build(
            self._random.randint(1, 5),
            now_ms,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer=(-1, -1, -1) if producer_id < 0 else (producer_id, epoch, sequence),
        )

    def build(
        self,
        count: int,
        now_ms: int,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer: tuple[int, int, int] = (-1, -1, -1),
    ) -> bytes:
        """A batch of so many records."""
        builder = RecordBatchBuilder()
        for _ in range(count):
            self._value_count += 1
            timestamp = now_ms - self._random.choice([0, 0, 3, 1000])
            # A producer whose batches have no time is forgotten at the next start, as in Kafka.
            if producer[0] < 0 and self._random.random() < 0.02:
                timestamp = -1
            size = self._random.choice([1, 10, 200])
            value = (b"%d-" % self._value_count) + self._random.randbytes(size)
            builder.append(timestamp, b"k%d" % self._random.randrange(5), value)
        producer_id, epoch, sequence = producer
        return builder.build(
            compression=self._random.choice([Compression.NONE, Compression.NONE, *Compression]),
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=producer_id in TRANSACTIONAL_PRODUCERS,
        )

    def draw_marker(
        self,
        producer_id: int,
        epoch: int,
        now_ms: int,
        base_offset: int = 0,
        leader_epoch: int = -1,
    ) -> bytes:
        """The end of a transaction, one way or the other."""
        kind = self._random.choice([ControlType.COMMIT, ControlType.ABORT])
        return end_txn_marker(
            EndTxnMarker(kind, 1),
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=now_ms,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
        )
