"""The transaction coordinator of simulated brokers: ids, epochs, partitions and a group's offsets.

Both versions of transactions: with the first, producers add partitions and keep their epoch; with
the second, leaders add them and every end raises the epoch. Markers are written at once: what takes
long in a real cluster is here an answer that says to try again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
)
from millstream.protocol.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
)
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from millstream.protocol.messages import (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        EndTxnRequest,
        InitProducerIdRequest,
        TxnOffsetCommitRequest,
    )
    from millstream.records import RecordBatch
    from tests.simulation.clients.log import LoggedPartition

IMPLICIT_FROM = 5
"""The version of EndTxn from which on transactions are of the second kind."""


@dataclass
class _Transaction:
    producer_id: int
    epoch: int = -1
    partitions: set[int] = field(default_factory=set)
    has_group: bool = False
    offset: int | None = None
    """What the group gets if it is committed."""
    is_open: bool = False
    ended: bool | None = None
    """How the last one ended: committed or not; None before the first."""
    was_fenced: bool = False
    """Whether the last end was not the producer's own."""


class SimTransactions:
    """All transactional ids; whichever broker coordinates has this state."""

    def __init__(self, partitions: Sequence[LoggedPartition], random: Random) -> None:
        self._partitions = partitions
        self._random = random
        self._by_id: dict[str, _Transaction] = {}
        self.is_implicit = False
        self.group_offsets: list[int] = []
        """What the group has got, one after the other."""

    def initialize(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """Somebody begins with an id, or goes on in the next epoch."""
        assert request.transactional_id is not None
        found = self._by_id.get(request.transactional_id)
        if found is None:
            found = _Transaction(5000 + len(self._by_id))
            self._by_id[request.transactional_id] = found
        if request.producer_id >= 0 and request.producer_epoch not in (
            found.epoch,
            found.epoch - 1,
        ):
            return _no_identity(ProducerFenced.code)
        if request.producer_id >= 0 and request.producer_epoch == found.epoch - 1:
            if found.was_fenced:
                return _no_identity(ProducerFenced.code)
            return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)
        if found.is_open:
            self._end(found, found.epoch + 1, commits=False, is_fencing=True)
            return _no_identity(ConcurrentTransactions.code)
        found.epoch += 1
        found.was_fenced = request.producer_id < 0
        found.ended = None
        return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    def add_partitions(
        self, request: AddPartitionsToTxnRequest, refusal: int
    ) -> AddPartitionsToTxnResponse:
        """A producer says where it is going to write; `refusal` is why this is not for us."""
        found = self._by_id.get(request.v3_and_below_transactional_id)
        code = refusal or self._check(
            found, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        if not code and self._random.random() < 0.1:
            code = ConcurrentTransactions.code
        if not code:
            assert found is not None
            found.is_open = True
            for topic in request.v3_and_below_topics:
                found.partitions.update(topic.partitions)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=each, partition_error_code=code
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def add_offsets(self, request: AddOffsetsToTxnRequest, refusal: int) -> AddOffsetsToTxnResponse:
        """A producer says that a group takes part."""
        found = self._by_id.get(request.transactional_id)
        code = refusal or self._check(found, request.producer_id, request.producer_epoch)
        if not code:
            assert found is not None
            found.is_open = found.has_group = True
        return AddOffsetsToTxnResponse(error_code=code)

    def commit_offsets(
        self, request: TxnOffsetCommitRequest, refusal: int
    ) -> TxnOffsetCommitResponse:
        """The group gets offsets when the transaction is committed."""
        found = self._by_id.get(request.transactional_id)
        code = refusal or self._check(found, request.producer_id, request.producer_epoch)
        if not code:
            assert found is not None
            if self.is_implicit:
                found.is_open = found.has_group = True
            if found.has_group:
                found.offset = request.topics[0].partitions[0].committed_offset
            else:
                code = InvalidTxnState.code
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=each.partition_index, error_code=code
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def check_batch(self, index: int, batch: RecordBatch) -> int:
        """What a leader asks before it takes a transactional batch; the error code."""
        for found in self._by_id.values():
            if found.producer_id == batch.producer_id:
                if batch.producer_epoch != found.epoch:
                    return InvalidProducerEpoch.code
                if self.is_implicit:
                    found.is_open = True
                    found.partitions.add(index)
                elif not found.is_open or index not in found.partitions:
                    return InvalidTxnState.code
                return 0
        return InvalidProducerIdMapping.code

    def end(self, request: EndTxnRequest, version: int) -> EndTxnResponse:
        """Commit or abort; a repetition is answered as the first time was."""
        found = self._by_id.get(request.transactional_id)
        raises = version >= IMPLICIT_FROM
        if found is not None and self._is_repeated(found, request, raises=raises):
            return self._identity(found) if raises else EndTxnResponse()
        code = self._check(found, request.producer_id, request.producer_epoch)
        if code:
            return EndTxnResponse(error_code=code)
        assert found is not None
        if not found.is_open and (request.committed or not raises):
            return EndTxnResponse(error_code=InvalidTxnState.code)
        if self._random.random() < 0.1:
            return EndTxnResponse(error_code=ConcurrentTransactions.code)
        epoch = found.epoch + 1 if raises else found.epoch
        self._end(found, epoch, commits=request.committed, is_fencing=False)
        return self._identity(found) if raises else EndTxnResponse()

    def expire(self) -> None:
        """The coordinator ends what has taken too long, and shuts the owners out."""
        for found in self._by_id.values():
            if found.is_open:
                self._end(found, found.epoch + 1, commits=False, is_fencing=True)

    def _is_repeated(self, found: _Transaction, request: EndTxnRequest, *, raises: bool) -> bool:
        epoch = found.epoch - 1 if raises else found.epoch
        return (
            not found.is_open
            and not found.was_fenced
            and found.ended is request.committed
            and (request.producer_id, request.producer_epoch) == (found.producer_id, epoch)
        )

    def _check(self, found: _Transaction | None, producer_id: int, epoch: int) -> int:
        if found is None or found.producer_id != producer_id:
            return InvalidProducerIdMapping.code
        return ProducerFenced.code if epoch != found.epoch else 0

    def _identity(self, found: _Transaction) -> EndTxnResponse:
        return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    def _end(self, found: _Transaction, epoch: int, *, commits: bool, is_fencing: bool) -> None:
        for index in found.partitions:
            self._partitions[index].end_transaction(found.producer_id, epoch, commits=commits)
        if commits and found.offset is not None:
            self.group_offsets.append(found.offset)
        found.has_group, found.offset = False, None
        found.epoch = epoch
        found.partitions.clear()
        found.is_open = False
        found.ended = commits
        found.was_fenced = is_fencing


def _no_identity(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
