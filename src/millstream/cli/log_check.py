"""Whether the files of a log are sound: what `log dump --verify` looks for.

Checksums, the order of offsets, records that can be read, and indexes that fit their segment. The
first fault of a segment ends its check, because what follows cannot be told from noise.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from millstream.cli.log_entries import (
    FILESYSTEM,
    batches,
    entries,
    offset_entries,
    time_entries,
    topic_of,
)
from millstream.cli.log_files import FileKind, LogFile
from millstream.cli.message_text import control_record, decoded_record
from millstream.cli.output import counted
from millstream.cli.record_format import Encoding
from millstream.errors import CorruptMessage, MillstreamError
from millstream.metadata.checkpoints import decode_checkpoint
from millstream.records import RecordBatch
from millstream.storage.file_names import LOG
from millstream.storage.log.batch_scan import scan_heads
from millstream.storage.log.epoch_cache import LeaderEpochCache

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.records import LegacyBatch
    from millstream.storage.filesystem import File
    from millstream.storage.log.batch_scan import BatchHead


class Finding(NamedTuple):
    """What became of a file's check."""

    file: LogFile
    summary: str
    """What there is in it, as far as it could be read."""
    problem: str | None


def check_file(file: LogFile) -> Finding:
    """Look at a whole file."""
    summary = _Summary()
    try:
        match file.kind:
            case FileKind.SEGMENT:
                _check_segment(file, summary)
            case FileKind.METADATA_SNAPSHOT:
                _check_segment(file, summary)
                decode_checkpoint(FILESYSTEM.read_bytes(file.path))
            case FileKind.OFFSET_INDEX:
                _check_offset_index(file, summary)
            case FileKind.TIME_INDEX:
                _check_time_index(file, summary)
            case _:
                _check_entries(file, summary)
    except (MillstreamError, OSError) as error:
        return Finding(file, str(summary), _without_path(str(error), file.path))
    return Finding(file, str(summary), None)


class _Summary:
    """Counts while a check goes on, so that a failed one can say how far it came."""

    def __init__(self) -> None:
        self.batch_count: int | None = None
        self.entry_count = 0
        self.record_count = 0
        self.first_offset: int | None = None
        self.last_offset = -1

    def __str__(self) -> str:
        if self.batch_count is None:
            return counted(self.entry_count, "entry", "entries")
        parts = [
            counted(self.batch_count, "batch", "batches"),
            counted(self.record_count, "record"),
        ]
        if self.first_offset is not None:
            parts.append(f"offsets {self.first_offset} to {self.last_offset}")
        return ", ".join(parts)


def _check_segment(file: LogFile, summary: _Summary) -> None:
    topic = topic_of(file)
    summary.batch_count = 0
    previous = file.base_offset - 1
    for position, batch in batches(file):
        batch.check_crc()
        _check_offsets(batch, position, previous)
        previous = batch.last_offset
        summary.batch_count += 1
        summary.record_count += _check_records(topic, batch, position)
        if summary.first_offset is None:
            summary.first_offset = batch.base_offset
        summary.last_offset = batch.last_offset


def _check_offsets(batch: RecordBatch | LegacyBatch, position: int, previous: int) -> None:
    if batch.base_offset <= previous or batch.last_offset < batch.base_offset:
        raise CorruptMessage(
            f"byte {position}: offsets {batch.base_offset} to {batch.last_offset} cannot follow "
            f"{previous}"
        )


def _check_records(topic: str | None, batch: RecordBatch | LegacyBatch, position: int) -> int:
    previous = batch.base_offset - 1
    records = batch.records(batch.base_offset)
    for record in records:
        if not previous < record.offset <= batch.last_offset:
            raise CorruptMessage(
                f"byte {position}: a record with offset {record.offset} in a batch of "
                f"{batch.base_offset} to {batch.last_offset}"
            )
        previous = record.offset
        said = control_record(record) if batch.is_control else decoded_record(topic, record)
        if said is not None and "problem" in said:
            raise CorruptMessage(f"offset {record.offset}: {said['problem']}")
    if isinstance(batch, RecordBatch) and len(records) != batch.record_count:
        raise CorruptMessage(
            f"byte {position}: {len(records)} records, the header says {batch.record_count}"
        )
    return len(records)


def _check_offset_index(file: LogFile, summary: _Summary) -> None:
    heads = {head.position: head for head in _heads(file)}
    previous = None
    for entry in offset_entries(file):
        if previous is not None and not (
            entry.offset > previous.offset and entry.position > previous.position
        ):
            raise CorruptMessage(f"{entry} cannot follow {previous}")
        head = heads.get(entry.position)
        if head is None or entry.offset < head.base_offset:
            raise CorruptMessage(f"{entry}: no batch of the segment begins there")
        summary.entry_count += 1
        previous = entry


def _check_time_index(file: LogFile, summary: _Summary) -> None:
    heads = _heads(file)
    last_offsets = [head.last_offset for head in heads]
    newest, latest = [], -1
    for head in heads:
        latest = max(latest, head.max_timestamp)
        newest.append(latest)
    previous = None
    for entry in time_entries(file):
        if previous is not None and not (
            entry.timestamp > previous.timestamp and entry.offset >= previous.offset
        ):
            raise CorruptMessage(f"{entry} cannot follow {previous}")
        whole = bisect_right(last_offsets, entry.offset)
        if whole and newest[whole - 1] > entry.timestamp:
            raise CorruptMessage(f"{entry}: an earlier record has time {newest[whole - 1]}")
        summary.entry_count += 1
        previous = entry


def _heads(index: LogFile) -> list[BatchHead]:
    """The batches of the segment that an index belongs to."""
    path = Path(index.path).with_suffix(LOG)
    if not path.exists():
        raise CorruptMessage(f"there is no {path.name} beside it")
    return list(_good_heads(FILESYSTEM.open(str(path))))


def _good_heads(segment: File) -> Iterator[BatchHead]:
    """Up to the first fault, of which the segment's own check tells."""
    with suppress(CorruptMessage):
        yield from scan_heads(segment, 0, segment.size())


def _check_entries(file: LogFile, summary: _Summary) -> None:
    for _ in entries(file, encoding=Encoding.TEXT):
        summary.entry_count += 1
    if file.kind is FileKind.EPOCH_CHECKPOINT:
        LeaderEpochCache.load(FILESYSTEM, file.directory)


def _without_path(problem: str, path: str) -> str:
    """The file is named already where a finding is shown."""
    return problem.removeprefix(path).lstrip(":, ").removeprefix("is corrupt: ")
