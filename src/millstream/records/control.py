"""Control batches: records that end transactions and mark a raft log, never seen by applications.

Transaction coordinators and raft write them; brokers and consumers read the type and act on it.
Types and versions from the future are tolerated, because a log may outlive a downgrade.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING

from millstream.errors import CorruptMessage
from millstream.records.builder import RecordBatchBuilder
from millstream.records.layout import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.records.kernel import Record
    from millstream.types import ReadableBuffer

_KEY = Struct(">hh")  # version, type
_END_TXN_VALUE = Struct(">hi")  # version, coordinator epoch
_VERSION = 0


class ControlType(IntEnum):
    """What a control record is about."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class EndTxnMarker:
    """The end of a producer's transaction in one partition."""

    type: ControlType
    """COMMIT or ABORT."""
    coordinator_epoch: int
    """Which term of the transaction coordinator wrote it; an older one is a zombie's."""


def control_type(record: Record) -> ControlType | None:
    """What a record of a control batch is about; None for a type that is not known yet."""
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptMessage(f"the control record at offset {record.offset} has no whole key")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptMessage(
            f"the control record at offset {record.offset} has key version {version}"
        )
    return ControlType(number) if number in _KNOWN_TYPES else None


_KNOWN_TYPES = frozenset(ControlType)


def parse_end_txn_marker(record: Record) -> EndTxnMarker:
    """Read a COMMIT or ABORT record."""
    kind = control_type(record)
    if kind not in (ControlType.COMMIT, ControlType.ABORT):
        raise CorruptMessage(f"the control record at offset {record.offset} ends no transaction")
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise CorruptMessage(f"the control record at offset {record.offset} has no whole value")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value)
    if version < 0:
        raise CorruptMessage(
            f"the control record at offset {record.offset} has value version {version}"
        )
    return EndTxnMarker(kind, coordinator_epoch)


def end_txn_marker(
    marker: EndTxnMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The batch that ends a producer's transaction in a partition."""
    return control_batch(
        [(marker.type, _END_TXN_VALUE.pack(_VERSION, marker.coordinator_epoch))],
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
    )


def control_batch(
    records: Iterable[tuple[ControlType, ReadableBuffer]],
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_transactional: bool = False,
) -> bytes:
    """A control batch of (type, encoded value) records, all of one time."""
    builder = RecordBatchBuilder(128)
    for kind, value in records:
        builder.append(timestamp, _KEY.pack(_VERSION, kind), value)
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=True,
    )
