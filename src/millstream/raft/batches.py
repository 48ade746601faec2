"""Batches of the metadata log: made by a leader, looked through by followers.

Headers are walked and checked here; records are read only in control batches, which tell about
the quorum itself. The contents of all other records are the controller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import CorruptMessage, DecodeError, InvalidArgument
from millstream.protocol.messages import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
    control_records,
)
from millstream.raft.voters import (
    Endpoint,
    ReplicaKey,
    SupportedVersions,
    Voter,
    VoterSet,
)
from millstream.records import control
from millstream.records.batch import RecordBatch, split_batches
from millstream.records.builder import RecordBatchBuilder
from millstream.records.control import ControlType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.types import ReadableBuffer

BATCH_BYTES_MAX: Final = 8 << 20
"""The largest batch a controller may submit: one fetch must be able to carry it."""


def walk_batches(buffer: ReadableBuffer) -> Iterator[RecordBatch]:
    """The batches of a buffer, in order, each checked as it is reached.

    A batch that is cut off at the end is left out: a read may end anywhere. CorruptMessage for
    one that is whole and wrong.
    """
    for batch in split_batches(buffer):
        if not isinstance(batch, RecordBatch):
            raise CorruptMessage("a metadata log has no batches of old formats")
        if batch.last_offset_delta < 0:
            raise CorruptMessage(f"the batch at offset {batch.base_offset} ends before it begins")
        batch.check_crc()
        yield batch


QuorumRecord = tuple[int, int | VoterSet]
"""An offset and what the record there sets: the kraft.version or the voters."""

ControlMessage = LeaderChangeMessage | KRaftVersionRecord | VotersRecord
"""A record about the quorum."""

_TYPES: Final[dict[type[ControlMessage], ControlType]] = {
    LeaderChangeMessage: ControlType.LEADER_CHANGE,
    KRaftVersionRecord: ControlType.KRAFT_VERSION,
    VotersRecord: ControlType.KRAFT_VOTERS,
}


def quorum_records(batch: RecordBatch) -> list[QuorumRecord]:
    """What the records of a batch say about the quorum; most batches say nothing."""
    found: list[QuorumRecord] = []
    for record in batch.records() if batch.is_control else ():
        kind = control.control_type(record)
        value = record.value or b""
        try:
            if kind is ControlType.KRAFT_VERSION:
                version = KRaftVersionRecord.decode(value, 0).kraft_version
                found.append((record.offset, version))
            elif kind is ControlType.KRAFT_VOTERS:
                found.append((record.offset, voter_set(VotersRecord.decode(value, 0))))
        except (DecodeError, InvalidArgument) as exc:
            raise CorruptMessage(f"the control record at offset {record.offset}: {exc}") from exc
    return found


def data_batch(
    base_offset: int, epoch: int, timestamp_ms: int, values: Sequence[ReadableBuffer]
) -> bytes:
    """A batch of the controller's records."""
    builder = RecordBatchBuilder()
    builder.extend((timestamp_ms, None, value) for value in values)
    return builder.build(base_offset=base_offset, leader_epoch=epoch)


def control_batch(
    base_offset: int, epoch: int, timestamp_ms: int, records: Iterable[ControlMessage]
) -> bytes:
    """A batch of records about the quorum."""
    return control.control_batch(
        (
            (_TYPES[type(record)], record.encode(record.version))  # its version is its first field
            for record in records
        ),
        timestamp=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def leader_change(leader_id: int, voters: VoterSet, granting: Iterable[int]) -> LeaderChangeMessage:
    """The first record of an epoch: who leads it, elected by whom.

    Always of version 0, without directory ids, whatever the kraft.version: Apache Kafka writes it
    so, and its nodes and tools cannot read another.
    """
    voter_of = control_records.LeaderChangeMessageVoter
    return LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[voter_of(voter_id=voter.id) for voter in voters],
        granting_voters=[voter_of(voter_id=voter_id) for voter_id in sorted(granting)],
    )


def voters_record(voters: VoterSet) -> VotersRecord:
    """A voter set as the record that sets it."""
    return VotersRecord(
        version=0,
        voters=[
            control_records.VotersRecordVoter(
                voter_id=voter.id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[
                    control_records.Endpoint(name=name, host=where.host, port=where.port)
                    for name, where in voter.endpoints.items()
                ],
                kraft_version_feature=control_records.KRaftVersionFeature(
                    min_supported_version=voter.supported.minimum,
                    max_supported_version=voter.supported.maximum,
                ),
            )
            for voter in voters
        ],
    )


def voter_set(record: VotersRecord) -> VoterSet:
    """The voter set that a record sets."""
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            {where.name: Endpoint(where.host, where.port) for where in voter.endpoints},
            SupportedVersions(
                voter.kraft_version_feature.min_supported_version,
                voter.kraft_version_feature.max_supported_version,
            ),
        )
        for voter in record.voters
    )
