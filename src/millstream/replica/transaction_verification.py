"""Transactional appends are verified before their first batch in a partition (KIP-890).

`ReplicaManager.append` comes by here when a request has a transactional id. The rules about guards
are the log's; asking the coordinator is the `TransactionVerifier`'s; this part only finds out what
must be asked, and waits for the answer.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import ApiError, InvalidProducerIdMapping
from millstream.records.layout import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER_ID,
    PRODUCER_ID_AT,
    TRANSACTIONAL_BIT,
)
from millstream.storage.log.validator import Inspected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.replica.append_service import AppendEntry
    from millstream.replica.partition import Partition
    from millstream.replica.partition_table import PartitionTable
    from millstream.replica.ports import TransactionVerifier
    from millstream.storage.log.verification import VerificationGuard
    from millstream.types import ReadableBuffer, TopicPartition

TRIES_MAX: Final = 3
"""How often to ask, at most, when the end of the transaction before comes in between."""
_ATTRIBUTES = Struct(">h")
_PRODUCER = Struct(">qhi")


class TransactionalBatch(NamedTuple):
    """Who sent a transactional batch, and where it is in the request."""

    place: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class Verification(NamedTuple):
    """What the appends of a request may rely on; by the place of an entry."""

    guards: Mapping[int, VerificationGuard]
    refused: Mapping[int, ApiError]


def transactional_batches(entries: Sequence[AppendEntry]) -> list[TransactionalBatch]:
    """The transactional batches of a request, by a look at their headers."""
    return [
        batch
        for place, (_, _, records) in enumerate(entries)
        if (batch := _peek(place, _raw(records))) is not None
    ]


def has_transactional_records(entries: Sequence[AppendEntry]) -> bool:
    """Whether any batch of a request says that it is part of a transaction."""
    return any(
        len(raw := _raw(records)) >= HEADER_SIZE and _is_transactional(raw)
        for _, _, records in entries
    )


def _raw(records: ReadableBuffer | Inspected | Exception | None) -> ReadableBuffer:
    """The bytes that a client sent; none where they were refused already."""
    if isinstance(records, Inspected):
        return records.records
    return b"" if records is None or isinstance(records, Exception) else records


def _is_transactional(records: ReadableBuffer) -> bool:
    (attributes,) = _ATTRIBUTES.unpack_from(records, ATTRIBUTES_AT)
    return records[MAGIC_AT] == MAGIC and bool(attributes & TRANSACTIONAL_BIT)


def _peek(place: int, records: ReadableBuffer) -> TransactionalBatch | None:
    if len(records) < HEADER_SIZE or not _is_transactional(records):
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
    if producer_id == NO_PRODUCER_ID:
        return None
    return TransactionalBatch(place, producer_id, epoch, sequence)


def require_one_producer(batches: Sequence[TransactionalBatch]) -> None:
    """Raise if the batches of one request are of several producers."""
    producers = {(each.producer_id, each.producer_epoch) for each in batches}
    if len(producers) > 1:
        raise InvalidProducerIdMapping(
            f"the transactional batches of one request are of producers {sorted(producers)}"
        )


def verify(
    transactional_id: str,
    entries: Sequence[AppendEntry],
    batches: Sequence[TransactionalBatch],
    table: PartitionTable,
    verifier: TransactionVerifier,
    wall_ms: int,
    done: Callable[[Verification], None],
    *,
    adds_partitions: bool,
    tries: int = TRIES_MAX,
) -> bool:
    """Ask the coordinator about the partitions whose transaction is not open here yet.

    False if there are none; then `done` is never called.
    """
    asked = _take_guards(entries, batches, table, wall_ms, supports_epoch_bump=adds_partitions)
    if not asked:
        return False

    def on_verified(errors: Mapping[TopicPartition, ApiError]) -> None:
        guards = {batch.place: guard for batch, _, guard in asked.values()}
        refused = {asked[name][0].place: error for name, error in errors.items()}
        # The end of the transaction before may have come in between. What was verified since then
        # counts, and only that.
        late = [
            batch
            for batch, partition, guard in asked.values()
            if batch.place not in refused
            and not partition.log.producers.is_verifying(batch.producer_id, guard)
        ]

        def on_verified_again(again: Verification) -> None:
            done(Verification({**guards, **again.guards}, {**refused, **again.refused}))

        if not (late and tries > 1) or not verify(
            transactional_id,
            entries,
            late,
            table,
            verifier,
            wall_ms,
            on_verified_again,
            adds_partitions=adds_partitions,
            tries=tries - 1,
        ):
            done(Verification(guards, refused))

    verifier.verify(
        transactional_id,
        batches[0].producer_id,
        batches[0].producer_epoch,
        list(asked),
        on_verified,
        adds_partitions=adds_partitions,
    )
    return True


def _take_guards(
    entries: Sequence[AppendEntry],
    batches: Sequence[TransactionalBatch],
    table: PartitionTable,
    wall_ms: int,
    *,
    supports_epoch_bump: bool,
) -> dict[TopicPartition, tuple[TransactionalBatch, Partition, VerificationGuard]]:
    """A guard for each partition whose transaction is not open yet."""
    taken = {}
    for batch in batches:
        topic, index, _ = entries[batch.place]
        try:
            partition = table.find(topic, index)
        except ApiError:
            continue  # The append will say the same.
        guard = partition.log.producers.begin_verification(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            wall_ms,
            supports_epoch_bump=supports_epoch_bump,
        )
        if guard is not None:
            taken[partition.name] = batch, partition, guard
    return taken
