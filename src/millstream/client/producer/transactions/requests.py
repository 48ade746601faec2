"""The requests of a transaction, and which errors in their answers mean what.

The `TransactionManager` sends them through the router. With transactions of version 2 (KIP-890)
partitions and groups are added by whoever gets the first record or offset; before that the producer
adds them itself, and must not speak the versions that say otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import (
    ClusterAuthorizationFailed,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnknownProducerId,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
    class_for_code,
    error_for_code,
)
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from millstream.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.client.groups import ConsumerGroupMetadata, OffsetAndMetadata
    from millstream.client.producer.produce_sink import ProducerIdentity
    from millstream.errors import ApiError, MillstreamError
    from millstream.protocol.message import Message
    from millstream.types import TopicPartition

FEATURE: Final = "transaction.version"
IMPLICIT_LEVEL: Final = 2
BUMPS_FROM: Final = 3
"""InitProducerId raises the epoch of a given producer from this version on."""

_FATAL: Final = (
    ClusterAuthorizationFailed,
    InvalidTxnState,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
_NEEDS_NEW_EPOCH: Final = (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)


def is_fatal(error: MillstreamError) -> bool:
    """Whether no transaction of this producer can succeed any more."""
    return isinstance(error, _FATAL)


def needs_new_epoch(error: MillstreamError) -> bool:
    """Whether the next transaction must begin with a new epoch."""
    return isinstance(error, _NEEDS_NEW_EPOCH)


def init_producer_id(
    transactional_id: str, timeout_ms: int, identity: ProducerIdentity
) -> VersionedRequest:
    """Who shall I be? With an identity: in the next epoch of that one."""

    def build(version: int) -> Message:
        if version < BUMPS_FROM:
            return InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
        return InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
        )

    return VersionedRequest(ApiKey.INIT_PRODUCER_ID, build)


def add_partitions(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[tuple[str, int]]
) -> VersionedRequest:
    """Make partitions part of the transaction."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in by_topic.items()
        ],
    )
    # Later versions are for brokers among themselves.
    return VersionedRequest(ApiKey.ADD_PARTITIONS_TO_TXN, lambda _: request, highest=3)


def add_offsets(
    transactional_id: str, identity: ProducerIdentity, group_id: str
) -> VersionedRequest:
    """Make a group's offsets part of the transaction."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )
    return VersionedRequest(ApiKey.ADD_OFFSETS_TO_TXN, lambda _: request)


def commit_offsets(
    transactional_id: str,
    identity: ProducerIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
    *,
    is_implicit: bool,
) -> VersionedRequest:
    """Commit offsets of a group when the transaction is committed. Names are the wire's."""

    def build(version: int) -> Message:
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=_offsets_by_topic(offsets),
        )
        if version >= 3:
            request.generation_id_or_member_epoch = group.generation_id
            request.member_id = group.member_id
            request.group_instance_id = group.group_instance_id
        return request

    # Version 6 names topics by id, 5 adds the group by itself.
    return VersionedRequest(ApiKey.TXN_OFFSET_COMMIT, build, highest=5 if is_implicit else 4)


def _offsets_by_topic(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[TxnOffsetCommitRequestTopic]:
    by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for place, committed in offsets.items():
        epoch = committed.leader_epoch
        by_topic.setdefault(place.topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=place.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=-1 if epoch is None else epoch,
                committed_metadata=committed.metadata,
            )
        )
    return [
        TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
        for name, partitions in by_topic.items()
    ]


def end_transaction(
    transactional_id: str, identity: ProducerIdentity, *, commits: bool, is_implicit: bool
) -> VersionedRequest:
    """Commit or abort. From version 5 on the answer has the identity to go on with."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commits,
    )
    return VersionedRequest(ApiKey.END_TXN, lambda _: request, highest=None if is_implicit else 4)


def code_of(answer: Message) -> int:
    """The error code that counts: the answer's own, else the worst of its partitions.

    One that does not go away counts before one that may.
    """
    codes = _codes_of(answer)
    lasting = [code for code in codes if not class_for_code(code).retriable]
    return (lasting or codes or [0])[0]


def _codes_of(answer: Message) -> list[int]:
    codes: list[int] = []
    if isinstance(answer, AddPartitionsToTxnResponse):
        codes = [
            each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]
    elif isinstance(answer, TxnOffsetCommitResponse):
        codes = [each.error_code for topic in answer.topics for each in topic.partitions]
    else:
        codes = [getattr(answer, "error_code", 0)]
    return [code for code in codes if code]


def error_in(answer: Message) -> ApiError | None:
    """The error in an answer, if there is one; a stale epoch is another's newer producer."""
    code = code_of(answer)
    if code == InvalidProducerEpoch.code:
        return ProducerFenced()
    return error_for_code(code) if code else None
