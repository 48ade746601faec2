"""The bytes of a `.checkpoint` file: a snapshot of the metadata log, or the bootstrap records.

Record batches: a control batch that opens it (and may say the quorum's version and voters), batches
of metadata records, a control batch that closes it. Code that snapshots or formats calls here;
files are written and read by others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import CorruptMessage
from millstream.metadata.records import VersionedRecord, decode_batch, encode_record
from millstream.protocol.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from millstream.protocol.records_framing import decode_kraft_control
from millstream.records.batch import RecordBatch, split_batches
from millstream.records.builder import RecordBatchBuilder
from millstream.records.control import ControlType, control_batch, control_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.metadata.records import MetadataBatch
    from millstream.protocol.message import Message
    from millstream.types import ReadableBuffer

BATCH_BYTES_MAX: Final = 1 << 20
"""Where a batch of a checkpoint ends; a single record may be larger."""

_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint file says."""

    last_timestamp_ms: int
    """The time of the last record of the log that it stands for."""
    kraft_version: int | None
    voters: VotersRecord | None
    batches: tuple[MetadataBatch, ...]

    @property
    def records(self) -> Iterator[Message]:
        """Its metadata records in order."""
        return (record for batch in self.batches for record in batch.records)


def encode_checkpoint(
    records: Iterable[VersionedRecord],
    *,
    epoch: int,
    last_timestamp_ms: int,
    kraft_version: int | None = None,
    voters: VotersRecord | None = None,
) -> Iterator[bytes]:
    """The batches of a checkpoint, one at a time: a large snapshot is never in memory as a whole.

    `epoch` is the leader epoch of the last record that the snapshot stands for.
    """
    header = [(ControlType.SNAPSHOT_HEADER, _header(last_timestamp_ms))]
    if kraft_version is not None:
        record = KRaftVersionRecord(version=_VERSION, kraft_version=kraft_version)
        header.append((ControlType.KRAFT_VERSION, record.encode(_VERSION)))
    if voters is not None:
        header.append((ControlType.KRAFT_VOTERS, voters.encode(_VERSION)))
    offset = 0
    yield control_batch(header, timestamp=last_timestamp_ms, base_offset=offset, leader_epoch=epoch)
    offset += len(header)
    builder = RecordBatchBuilder()
    for each in records:
        value = encode_record(each)
        if builder.record_count and builder.size + len(value) > BATCH_BYTES_MAX:
            yield builder.build(base_offset=offset, leader_epoch=epoch)
            offset += builder.record_count
            builder.clear()
        builder.append(last_timestamp_ms, None, value)
    if builder.record_count:
        yield builder.build(base_offset=offset, leader_epoch=epoch)
        offset += builder.record_count
    footer = SnapshotFooterRecord(version=_VERSION).encode(_VERSION)
    yield control_batch(
        [(ControlType.SNAPSHOT_FOOTER, footer)],
        timestamp=last_timestamp_ms,
        base_offset=offset,
        leader_epoch=epoch,
    )


def decode_checkpoint(data: ReadableBuffer) -> Checkpoint:
    """Read a whole checkpoint; CorruptMessage if it is damaged or cut off."""
    control: dict[ControlType, Message] = {}
    batches: list[MetadataBatch] = []
    size = 0
    for batch in split_batches(data):
        if not isinstance(batch, RecordBatch):
            raise CorruptMessage("the checkpoint has a batch of an old format")
        if ControlType.SNAPSHOT_FOOTER in control:
            raise CorruptMessage("the checkpoint goes on after its end")
        batch.check_crc()
        size += batch.size
        if batch.is_control:
            control.update(_control_messages(batch))
        elif ControlType.SNAPSHOT_HEADER not in control:
            raise CorruptMessage("the checkpoint does not begin with its header")
        else:
            batches.append(decode_batch(batch))
    if ControlType.SNAPSHOT_FOOTER not in control or size != len(data):
        raise CorruptMessage("the checkpoint is cut off: it has no end")
    header = control.get(ControlType.SNAPSHOT_HEADER)
    version = control.get(ControlType.KRAFT_VERSION)
    voters = control.get(ControlType.KRAFT_VOTERS)
    if not isinstance(header, SnapshotHeaderRecord):
        raise CorruptMessage("the checkpoint has no header")
    return Checkpoint(
        header.last_contained_log_timestamp,
        version.kraft_version if isinstance(version, KRaftVersionRecord) else None,
        voters if isinstance(voters, VotersRecord) else None,
        tuple(batches),
    )


def _header(last_timestamp_ms: int) -> bytes:
    record = SnapshotHeaderRecord(version=_VERSION, last_contained_log_timestamp=last_timestamp_ms)
    return record.encode(_VERSION)


def _control_messages(batch: RecordBatch) -> Iterator[tuple[ControlType, Message]]:
    for record in batch.records():
        kind = control_type(record)
        if kind is not None and record.value is not None:
            yield kind, decode_kraft_control(kind, record.value)
