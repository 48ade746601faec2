"""What is in the files of a log, entry by entry, as rows for tables and JSON.

`log dump` prints them. A file that cannot be read any further raises what the reader of its kind
raises, after the rows before the fault. Large segments are read piece by piece.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from millstream.cli.log_files import FileKind, LogFile, ReadOnlyFileSystem
from millstream.cli.message_text import control_record, decoded_record
from millstream.cli.record_format import Encoding, record_as_json
from millstream.cli.times import show_time
from millstream.errors import CorruptMessage, KafkaStorageError, UnsupportedCompressionType
from millstream.metadata.topic_names import CLUSTER_METADATA_TOPIC
from millstream.records import RecordBatch
from millstream.records.layout import MAGIC_AT
from millstream.storage.checkpoint import read_numbers, read_offsets
from millstream.storage.log.batch_scan import scan_batches
from millstream.storage.log.index import OffsetIndex, TimeIndex
from millstream.storage.log.producer_snapshot import parse_snapshot
from millstream.storage.log.transaction_index import TransactionIndex
from millstream.storage.manager.meta_properties import read_meta_properties, read_partition_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.cli.output import Row
    from millstream.records import LegacyBatch, Record
    from millstream.storage.log.batch_scan import BatchAt
    from millstream.storage.log.index import OffsetPosition, TimestampOffset

FILESYSTEM: Final = ReadOnlyFileSystem()

COLUMNS: Final[Mapping[FileKind, Mapping[str, str]]] = {
    FileKind.SEGMENT: {
        "position": "POSITION",
        "base_offset": "OFFSET",
        "last_offset": "LAST",
        "count": "COUNT",
        "size": "BYTES",
        "compression": "CODEC",
        "time": "NEWEST",
        "leader_epoch": "EPOCH",
        "producer_id": "PRODUCER",
        "base_sequence": "SEQUENCE",
        "flags": "FLAGS",
    },
    FileKind.OFFSET_INDEX: {"offset": "OFFSET", "position": "POSITION"},
    FileKind.TIME_INDEX: {"time": "TIME", "timestamp": "TIMESTAMP", "offset": "OFFSET"},
    FileKind.TRANSACTION_INDEX: {
        "producer_id": "PRODUCER",
        "first_offset": "FIRST",
        "last_offset": "LAST",
        "last_stable_offset": "LAST STABLE",
    },
    FileKind.PRODUCER_SNAPSHOT: {
        "producer_id": "PRODUCER",
        "producer_epoch": "EPOCH",
        "last_sequence": "SEQUENCE",
        "last_offset": "LAST OFFSET",
        "time": "TIME",
        "coordinator_epoch": "COORDINATOR EPOCH",
        "transaction_first_offset": "OPEN SINCE",
    },
    FileKind.OFFSET_CHECKPOINT: {"topic": "TOPIC", "partition": "PARTITION", "offset": "OFFSET"},
    FileKind.EPOCH_CHECKPOINT: {"epoch": "EPOCH", "start_offset": "FROM OFFSET"},
    FileKind.META_PROPERTIES: {
        "cluster_id": "CLUSTER",
        "node_id": "NODE",
        "directory_id": "DIRECTORY",
    },
    FileKind.PARTITION_METADATA: {"topic_id": "TOPIC ID"},
    FileKind.QUORUM_STATE: {
        "leaderEpoch": "EPOCH",
        "leaderId": "LEADER",
        "votedId": "VOTED FOR",
        "votedDirectoryId": "DIRECTORY",
    },
}
"""By kind of file, keys of its rows and their headings. A metadata snapshot is a segment here."""


def entries(file: LogFile, *, with_records: bool = False, encoding: Encoding) -> Iterator[Row]:
    """The rows of a file; with records those of a segment, too, under `records`."""
    match file.kind:
        case FileKind.SEGMENT | FileKind.METADATA_SNAPSHOT:
            for position, batch in batches(file):
                row = batch_row(position, batch)
                if with_records:
                    row["records"] = record_rows(topic_of(file), batch, encoding)
                yield row
        case FileKind.OFFSET_INDEX:
            yield from (each._asdict() for each in offset_entries(file))
        case FileKind.TIME_INDEX:
            yield from (
                {"time": show_time(each.timestamp), **each._asdict()} for each in time_entries(file)
            )
        case FileKind.TRANSACTION_INDEX:
            index = TransactionIndex(FILESYSTEM, file.path, file.base_offset)
            yield from (each._asdict() for each in index.entries())
        case FileKind.PRODUCER_SNAPSHOT:
            yield from _producers(file)
        case _:
            yield from _small_file(file)


def topic_of(file: LogFile) -> str | None:
    """Whose records are in a segment, as far as its place says."""
    return CLUSTER_METADATA_TOPIC if file.kind is FileKind.METADATA_SNAPSHOT else file.topic


def batches(file: LogFile) -> Iterator[BatchAt]:
    """The batches of a segment; CorruptMessage where something else follows them."""
    opened = FILESYSTEM.open(file.path)
    end, position = opened.size(), 0
    try:
        for found in scan_batches(opened, 0, end):
            yield found
            position = found.position + found.batch.size
    except CorruptMessage:
        if any(opened.pread(MAGIC_AT + 1, position)):
            raise
        return  # Zeros: room that was reserved and is not used yet.
    if position < end:
        raise CorruptMessage(
            f"byte {position}: the last {end - position} bytes are a part of a batch"
        )


def offset_entries(file: LogFile) -> Iterator[OffsetPosition]:
    """The entries of an offset index, without the zeros that an index in use has at its end."""
    index = OffsetIndex(FILESYSTEM, file.path, file.base_offset, file.size)
    for slot in range(index.entry_count):
        entry = index.entry(slot)
        if slot and entry == (file.base_offset, 0):
            return
        yield entry


def time_entries(file: LogFile) -> Iterator[TimestampOffset]:
    """The entries of a time index, likewise."""
    index = TimeIndex(FILESYSTEM, file.path, file.base_offset, file.size)
    for slot in range(index.entry_count):
        entry = index.entry(slot)
        if slot and entry == (0, file.base_offset):
            return
        yield entry


def batch_row(position: int, batch: RecordBatch | LegacyBatch) -> dict[str, Any]:
    """A batch's header."""
    is_current = isinstance(batch, RecordBatch)
    flags = {
        "control": batch.is_control,
        "transactional": batch.is_transactional,
        "append-time": bool(batch.timestamp_type),
        f"magic-{batch.magic}": not is_current,
        "BAD-CHECKSUM": not batch.is_intact(),
    }
    return {
        "position": position,
        "base_offset": batch.base_offset if is_current else batch.last_offset,
        "last_offset": batch.last_offset,
        "count": batch.record_count if isinstance(batch, RecordBatch) else None,
        "size": batch.size,
        "compression": _codec(batch),
        "time": show_time(batch.max_timestamp),
        "max_timestamp": batch.max_timestamp,
        "leader_epoch": batch.leader_epoch,
        "producer_id": _unless_none(batch.producer_id),
        "producer_epoch": _unless_none(batch.producer_epoch),
        "base_sequence": _unless_none(batch.base_sequence),
        "flags": [name for name, is_set in flags.items() if is_set],
        "crc": f"{batch.crc:08x}",
    }


def record_rows(
    topic: str | None, batch: RecordBatch | LegacyBatch, encoding: Encoding
) -> list[dict[str, Any]]:
    """The records of a batch, decoded where they are known; one row that says why if unreadable."""
    try:
        return [_record_row(topic, batch, each, encoding) for each in batch.records()]
    except (CorruptMessage, UnsupportedCompressionType) as error:
        return [{"offset": batch.last_offset, "record": "unreadable", "problem": str(error)}]


def _record_row(
    topic: str | None, batch: RecordBatch | LegacyBatch, record: Record, encoding: Encoding
) -> dict[str, Any]:
    where = {"offset": record.offset, "timestamp": record.timestamp}
    if batch.is_control:
        return where | control_record(record)
    decoded = decoded_record(topic, record)
    return where | decoded if decoded is not None else record_as_json(record, encoding)


def _codec(batch: RecordBatch | LegacyBatch) -> str:
    try:
        return batch.compression.name.lower()
    except UnsupportedCompressionType:
        return f"unknown ({batch.attributes & 7})"


def _unless_none(number: int) -> int | None:
    return None if number < 0 else number


def _producers(file: LogFile) -> Iterator[Row]:
    for each in parse_snapshot(FILESYSTEM.read_bytes(file.path), file.path):
        row = each._asdict()
        row["transaction_first_offset"] = row.pop("current_transaction_first_offset")
        yield row | {
            "time": show_time(each.timestamp),
            "transaction_first_offset": _unless_none(each.current_transaction_first_offset),
        }


def _small_file(file: LogFile) -> Iterator[Row]:
    match file.kind:
        case FileKind.OFFSET_CHECKPOINT:
            for partition, offset in read_offsets(FILESYSTEM, file.path).items():
                yield {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "offset": offset,
                }
        case FileKind.EPOCH_CHECKPOINT:
            for epoch, start_offset in read_numbers(FILESYSTEM, file.path, columns=2):
                yield {"epoch": epoch, "start_offset": start_offset}
        case FileKind.META_PROPERTIES:
            meta = read_meta_properties(FILESYSTEM, file.directory)
            if meta is not None:
                yield {
                    "cluster_id": meta.cluster_id,
                    "node_id": meta.node_id,
                    "directory_id": None if meta.directory_id is None else str(meta.directory_id),
                }
        case FileKind.PARTITION_METADATA:
            yield {"topic_id": str(read_partition_metadata(FILESYSTEM, file.directory))}
        case _:
            yield _quorum_state(file)


def _quorum_state(file: LogFile) -> Row:
    try:
        found = json.loads(FILESYSTEM.read_bytes(file.path))
    except ValueError as error:
        raise KafkaStorageError(f"{file.path} is corrupt: {error}") from error
    if not isinstance(found, dict):
        raise KafkaStorageError(f"{file.path} is corrupt: it is not a JSON object")
    return found
