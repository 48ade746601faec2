"""The slow, obvious log: a list of batches; every question is answered by looking at them all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from millstream.records import ControlType, RecordBatch, control_type, parse_end_txn_marker


class ModelRecord(NamedTuple):
    """One record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ModelBatch:
    """One batch, with everything that must survive."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    records: tuple[ModelRecord, ...]
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    marker: ControlType | None = None
    coordinator_epoch: int = -1

    @classmethod
    def of(cls, batch: RecordBatch) -> ModelBatch:
        """What a batch of bytes says; its checksum must be right."""
        batch.check_crc()
        records = batch.records()
        return cls(
            batch.base_offset,
            batch.last_offset,
            batch.leader_epoch,
            tuple(
                ModelRecord(each.offset, each.timestamp, each.key, each.value) for each in records
            ),
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.is_transactional,
            control_type(records[0]) if batch.is_control else None,
            parse_end_txn_marker(records[0]).coordinator_epoch if batch.is_control else -1,
        )

    def placed(self, base_offset: int, leader_epoch: int, stamp: int | None) -> ModelBatch:
        """The same where a leader puts it; `stamp` is its time if the broker sets times."""
        shift = base_offset - self.base_offset
        return replace(
            self,
            base_offset=base_offset,
            last_offset=self.last_offset + shift,
            leader_epoch=leader_epoch,
            records=tuple(
                ModelRecord(offset + shift, timestamp if stamp is None else stamp, key, value)
                for offset, timestamp, key, value in self.records
            ),
        )

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record."""
        return self.base_sequence + self.last_offset - self.base_offset


@dataclass(slots=True)
class ModelProducer:
    """What a log must know about a producer."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    transaction_first_offset: int | None = None
    coordinator_epoch: int = -1


class ModelTransaction(NamedTuple):
    """A transaction that ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass
class ModelLog:
    """Batches in order, and the bounds that a log keeps."""

    batches: list[ModelBatch] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0
    high_watermark: int = 0

    def copy(self) -> ModelLog:
        """Another one that may go another way."""
        return replace(self, batches=list(self.batches))

    def append(self, batch: ModelBatch) -> None:
        assert batch.base_offset >= self.log_end_offset
        self.batches.append(batch)
        self.log_end_offset = batch.last_offset + 1

    def truncate_to(self, offset: int) -> None:
        self.batches = [each for each in self.batches if each.last_offset < offset]
        self.log_end_offset = min(self.log_end_offset, offset)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)

    def begin_at(self, offset: int) -> None:
        self.batches = []
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset

    def visible(self, from_offset: int) -> list[ModelBatch]:
        """The batches a reader meets from an offset on."""
        return [each for each in self.batches if each.last_offset >= from_offset]

    def producers(self, from_offset: int = 0) -> dict[int, ModelProducer]:
        """The producers with batches from an offset on."""
        found: dict[int, ModelProducer] = {}
        for batch in self.visible(from_offset):
            if batch.producer_id < 0:
                continue
            known = found.setdefault(batch.producer_id, ModelProducer(batch.producer_epoch))
            if known.epoch != batch.producer_epoch:
                known.epoch = batch.producer_epoch
                known.last_sequence = known.last_offset = -1
            if batch.marker is not None:
                known.transaction_first_offset = None
                known.coordinator_epoch = batch.coordinator_epoch
                continue
            known.last_sequence = batch.last_sequence
            known.last_offset = batch.last_offset
            if batch.is_transactional and known.transaction_first_offset is None:
                known.transaction_first_offset = batch.base_offset
        return found

    def transactions(self) -> list[ModelTransaction]:
        """The transactions that ended, in the order of their markers."""
        ongoing: dict[int, int] = {}
        ended = []
        for batch in self.batches:
            if batch.marker is not None:
                first = ongoing.pop(batch.producer_id, None)
                if first is not None:
                    is_aborted = batch.marker is ControlType.ABORT
                    ended.append(
                        ModelTransaction(batch.producer_id, first, batch.last_offset, is_aborted)
                    )
            elif batch.is_transactional:
                ongoing.setdefault(batch.producer_id, batch.base_offset)
        return ended

    def last_stable_offset(self) -> int:
        """Nothing before it is undecided, and every decision before it is committed."""
        unstable = [
            each.transaction_first_offset
            for each in self.producers().values()
            if each.transaction_first_offset is not None
        ]
        unstable += [
            each.first_offset
            for each in self.transactions()
            if each.last_offset >= self.high_watermark
        ]
        stable = min([*unstable, self.high_watermark])
        return max(stable, min(self.log_start_offset, self.high_watermark))

    def committed_records(self, from_offset: int, to_offset: int) -> list[ModelRecord]:
        """What a read_committed consumer gets."""
        aborted = [each for each in self.transactions() if each.is_aborted]
        return [
            record
            for batch in self.batches
            for record in batch.records
            if batch.marker is None
            and from_offset <= record.offset < to_offset
            and not any(
                batch.is_transactional
                and each.producer_id == batch.producer_id
                and each.first_offset <= batch.base_offset < each.last_offset
                for each in aborted
            )
        ]

    def first_at_or_after(self, timestamp: int) -> ModelRecord | None:
        """The first record that is not older."""
        for batch in self.visible(self.log_start_offset):
            for record in batch.records:
                if record.timestamp >= timestamp and record.offset >= self.log_start_offset:
                    return record
        return None

    def epoch_end(self, epoch: int) -> int:
        """Where an epoch ends that has records."""
        for batch in self.batches:
            if batch.leader_epoch > epoch:
                return batch.base_offset
        return self.log_end_offset
