"""Damage in the metadata log: a torn tail, which a crash leaves, or rot, which nothing may hide.

`MetadataLog.open` asks, before recovery cuts anything off. A torn tail was never acknowledged and
goes with a warning. Rot loses what the cluster knows about itself, so a node that votes refuses to
start with it until somebody has restored the file or said that the rest may go. Nothing here
changes a file.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import CorruptMessage, KafkaStorageError
from millstream.records.batch import RecordBatch
from millstream.records.layout import MAGIC, MAGIC_AT
from millstream.storage.file_names import LOG, parse_segment_file_name, segment_file_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.storage.filesystem import FileSystem

_logger = logging.getLogger(__name__)

RECOVERY_KEY: Final = "millstream.metadata.recovery"
STRICT: Final = "strict"
TRUNCATE: Final = "truncate"

_OFFSETS_MAX: Final = 1 << 31
"""How far behind the damage an offset is still believed to belong to this log."""
_BASE_OFFSET = Struct(">q")
_MAGIC_BYTE: Final = bytes([MAGIC])


class Remains(NamedTuple):
    """What is intact behind a damaged place."""

    batch_count: int
    first_offset: int
    last_offset: int


class DamageJudge:
    """Decides about damage in one directory, by what is known to have been on disk."""

    def __init__(
        self, filesystem: FileSystem, directory: str, synced_to: int | None, *, may_cut: bool
    ) -> None:
        """`synced_to` is None if nobody recorded it: then whatever is intact behind counts."""
        self._filesystem = filesystem
        self._directory = directory
        self._synced_to = synced_to
        self._may_cut = may_cut

    def before_loss(self, base_offset: int, position: int, next_offset: int) -> None:
        """The records from `next_offset` on are about to go; raises if they must not."""
        path = f"{self._directory}/{segment_file_name(base_offset, LOG)}"
        if self._synced_to is not None and next_offset >= self._synced_to:
            return
        remains = find_intact(self._filesystem, self._directory, base_offset, position, next_offset)
        if self._synced_to is None and remains is None:
            return
        self._judge(
            f"the metadata log is damaged in {path} at byte {position}, offset {next_offset}; "
            f"{_behind(remains)}",
            next_offset,
        )

    def check_end(self, end_offset: int) -> None:
        """The log is whole up to here; raises if it was longer."""
        if self._synced_to is not None and end_offset < self._synced_to:
            self._judge(
                f"the metadata log in {self._directory} ends at offset {end_offset}; the file of "
                "its last records is missing or was cut short",
                end_offset,
            )

    def _judge(self, problem: str, next_offset: int) -> None:
        if self._synced_to is not None:
            problem += f"; records up to offset {self._synced_to - 1} had been on disk"
        if self._may_cut:
            _logger.warning("%s: what came from offset %d on is lost", problem, next_offset)
            self._synced_to = next_offset  # It is said once.
            return
        raise KafkaStorageError(
            f"{problem}. No crash does this. Restore the file from a backup or from another voter "
            f"of the quorum; or start once with --set {RECOVERY_KEY}={TRUNCATE}, which cuts the "
            f"log at offset {next_offset}: all that was created or changed since is lost, unless "
            "other voters have it"
        )


def find_intact(
    filesystem: FileSystem, directory: str, base_offset: int, position: int, next_offset: int
) -> Remains | None:
    """The intact batches behind a place in a segment, in it and in those that follow."""
    found: list[RecordBatch] = []
    names = (parse_segment_file_name(each.name) for each in filesystem.scan(directory))
    bases = {
        each.base_offset for each in names if each and each.extension == LOG and not each.suffix
    }
    for base in sorted(each for each in bases if each >= base_offset):
        data = filesystem.read_bytes(f"{directory}/{segment_file_name(base, LOG)}")
        for batch in _intact_batches(data, position if base == base_offset else 0, next_offset):
            next_offset = batch.next_offset
            found.append(batch)
    if not found:
        return None
    return Remains(len(found), found[0].base_offset, found[-1].last_offset)


def _intact_batches(data: bytes, position: int, next_offset: int) -> Iterator[RecordBatch]:
    """Whatever is a batch by its checksum and goes on with the offsets, wherever it begins."""
    view = memoryview(data)
    while (found := data.find(_MAGIC_BYTE, position + MAGIC_AT)) >= 0:
        position = found - MAGIC_AT
        batch = None
        if 0 <= _BASE_OFFSET.unpack_from(data, position)[0] - next_offset < _OFFSETS_MAX:
            batch = _batch_at(view, position)
        if batch is None:
            position += 1
        else:
            yield batch
            position += batch.size
            next_offset = batch.next_offset


def _batch_at(view: memoryview, position: int) -> RecordBatch | None:
    try:
        batch = RecordBatch(view, position)
        batch.check_crc()
    except CorruptMessage:
        return None
    return batch


def _behind(remains: Remains | None) -> str:
    if remains is None:
        return "nothing intact is behind it"
    count = remains.batch_count
    batches = "is 1 intact batch" if count == 1 else f"are {count} intact batches"
    return f"behind it {batches}, offsets {remains.first_offset} to {remains.last_offset}"
