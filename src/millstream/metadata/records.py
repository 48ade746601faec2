"""Metadata records: which version of one is written when, and batches of them.

The controller writes through here, the loader reads through here. The frame around a single record
is the business of `protocol.records_framing`, the batch around many that of `records`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import MillstreamError
from millstream.metadata.features import (
    CORDONED_DIRECTORIES_SINCE,
    DIRECTORIES_SINCE,
    ELR_RECORDS_SINCE,
)
from millstream.protocol.records_framing import decode_metadata_record, encode_metadata_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.protocol.message import Message
    from millstream.records.batch import RecordBatch


class UnreplayableRecord(MillstreamError):
    """A committed metadata record that does not fit the state before it: the log is damaged or
    was written by software that this version does not understand."""


class UnsupportedFeatureLevel(UnreplayableRecord):
    """The cluster is at a level of a feature that this software does not know: it must stop."""


class VersionedRecord(NamedTuple):
    """A metadata record and the version it is written in."""

    record: Message
    version: int


_VERSIONS: Final[Mapping[str, Sequence[tuple[int, int]]]] = {
    "PartitionRecord": ((ELR_RECORDS_SINCE, 2), (DIRECTORIES_SINCE, 1)),
    "PartitionChangeRecord": ((ELR_RECORDS_SINCE, 2), (DIRECTORIES_SINCE, 1)),
    "RegisterBrokerRecord": (
        (CORDONED_DIRECTORIES_SINCE, 4),
        (DIRECTORIES_SINCE, 3),
        (8, 2),
        (0, 1),
    ),
    "BrokerRegistrationChangeRecord": (
        (CORDONED_DIRECTORIES_SINCE, 3),
        (DIRECTORIES_SINCE, 2),
        (0, 1),
    ),
}
"""By record: (from this metadata.version on, record version), newest first. All others are 0."""


def versioned(record: Message, metadata_version: int) -> VersionedRecord:
    """A record in the version that all nodes at a metadata.version can read."""
    for since, version in _VERSIONS.get(type(record).__name__, ()):
        if metadata_version >= since:
            return VersionedRecord(record, version)
    return VersionedRecord(record, 0)


def encode_record(record: VersionedRecord) -> bytes:
    """The value of a record of the metadata log."""
    return encode_metadata_record(record.record, record.version)


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """Committed records of one batch: a log's, or a piece of a snapshot."""

    base_offset: int
    epoch: int
    timestamp_ms: int
    size: int
    """Bytes in the log, for deciding when a snapshot is due."""
    records: Sequence[Message]

    @property
    def last_offset(self) -> int:
        """The offset of its last record."""
        return self.base_offset + len(self.records) - 1


def decode_batch(batch: RecordBatch) -> MetadataBatch:
    """The metadata records of a batch of the log. Control batches are raft's and have none."""
    records = []
    for record in batch.records():
        if record.value is None:
            raise UnreplayableRecord(f"the metadata record at offset {record.offset} has no value")
        records.append(decode_metadata_record(record.value)[0])
    return MetadataBatch(
        batch.base_offset, batch.leader_epoch, batch.max_timestamp, batch.size, records
    )
