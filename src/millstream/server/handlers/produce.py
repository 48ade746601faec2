"""Produce 3-13: append a batch to each of several partitions.

Version 8 names the records that are to blame, 10 says who leads instead, 13 has topic ids. With
`acks=0` nothing is ever answered; if something fails the connection is closed, which is the only
sign there is. The bytes of records are never copied: the log patches and writes them where they
were received.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    ApiError,
    CorruptMessage,
    DecodeError,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    TransactionalIdAuthorizationFailed,
    UnsupportedCompressionType,
)
from millstream.network.log_limiter import LogLimiter
from millstream.network.server.request import CLOSE, NO_RESPONSE, PENDING
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import SIZE_BYTES, decode_response, encode_response
from millstream.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from millstream.records.compression import Compression
from millstream.records.layout import ATTRIBUTES_AT, CODEC_MASK, HEADER_SIZE, MAGIC, MAGIC_AT
from millstream.replica.append_service import ACKS_NONE, AppendResult
from millstream.replica.transaction_verification import has_transactional_records
from millstream.server.bodies import read_body
from millstream.server.leaders import STALE_LEADER_CODES, find_leader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.clock import Clock
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.network.server.request import Connection, Outcome, Request, Response
    from millstream.replica.append_service import ClientEntry
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.server.leaders import KnownLeader
    from millstream.types import ReadableBuffer, Uuid

_logger = logging.getLogger(__name__)

_ADMIN_CLIENT_ID: Final = "__admin_client"
"""Who may write to internal topics."""
_VERSION_MIN: Final = 3
_LEADERS_SINCE: Final = 10
_TOPIC_IDS_SINCE: Final = 13
_BAD_RECORDS: Final = (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
_ZSTD_SINCE: Final = 7
_ADDS_TO_TRANSACTION_SINCE: Final = 12
"""From this version on a client leaves it to the leader to add partitions to a transaction."""


class ProduceHandler:
    """Answers Produce."""

    __slots__ = ("_append", "_log", "_metadata")

    def __init__(
        self, replicas: ReplicaManager, metadata: KRaftMetadataCache, clock: Clock
    ) -> None:
        self._append = replicas.append
        self._metadata = metadata
        self._log = LogLimiter(clock, _logger)
        if replicas.fast_path is not None:
            replicas.fast_path.explain = self.explain

    def handle(self, request: Request) -> Response | Outcome:
        """Append, and answer as `acks` asks."""
        version = request.api_version
        if version < _VERSION_MIN:
            raise DecodeError("Produce before version 3 is not served", version=version)
        message = read_body(ProduceRequest, request)
        topics = _topics(message, version)
        entries: list[ClientEntry] = [
            (topic, part.index, part.records)
            for (topic, _), each in zip(topics, message.topic_data, strict=True)
            for part in each.partition_data
        ]
        refusal = _refusal(message, version, entries)
        if refusal is not None:
            results = [AppendResult(refusal)] * len(entries)
            return self._answer(request, message.acks, topics, results)
        appended = self._append(
            entries,
            message.acks,
            message.timeout_ms,
            lambda late: request.complete(self._answer(request, message.acks, topics, late)),
            allows_internal=request.client_id == _ADMIN_CLIENT_ID,
            hold=request.hold,
            transactional_id=message.transactional_id,
            adds_partitions=version >= _ADDS_TO_TRANSACTION_SINCE,
        )
        if appended is None:
            if message.transactional_id is not None and request.response is PENDING:
                request.retain()  # The records wait for the word of the coordinator.
            return PENDING
        return self._answer(request, message.acks, topics, appended)

    def fail(self, request: Request, error: ApiError) -> Response | Outcome:
        """The answer that nothing was appended."""
        message = read_body(ProduceRequest, request)
        topics = _topics(message, request.api_version)
        count = sum(len(indexes) for _, indexes in topics)
        return self._answer(request, message.acks, topics, [AppendResult(error)] * count)

    def _answer(
        self,
        request: Request,
        acks: int,
        topics: Sequence[tuple[str | Uuid, list[int]]],
        results: Sequence[AppendResult],
    ) -> Response | Outcome:
        if acks == ACKS_NONE:
            failed = [result.error for result in results if result.error is not None]
            if not failed:
                return NO_RESPONSE
            # The client waits for no answer, so this is how it learns to refresh its metadata.
            self._log.info(
                "acks=0",
                "%s sent records with acks=0 that were refused: %s",
                request.connection.peer_host,
                failed[0],
                api="Produce",
                peer=request.connection.peer_host,
                client_id=request.client_id,
            )
            return CLOSE
        for (topic, index), result in zip(_flat(topics), results, strict=False):
            if isinstance(result.error, _BAD_RECORDS):
                self._note_bad_records(request, topic, index, result.error)
        return self._encode(
            topics, results, request.api_version, request.correlation_id, request.connection
        )

    def explain(
        self, answer: bytes, version: int, error: ApiError, connection: Connection
    ) -> bytes:
        """An answer that the fast path had ready, with an error that was found since."""
        correlation_id, response = decode_response(answer[SIZE_BYTES:], ApiKey.PRODUCE, version)
        assert isinstance(response, ProduceResponse)
        topics = [
            (
                each.topic_id if version >= _TOPIC_IDS_SINCE else each.name,
                [part.index for part in each.partition_responses],
            )
            for each in response.responses
        ]
        results = [
            AppendResult(error, log_start_offset=part.log_start_offset)
            for each in response.responses
            for part in each.partition_responses
        ]
        return self._encode(topics, results, version, correlation_id, connection)

    def _encode(
        self,
        topics: Sequence[tuple[str | Uuid, list[int]]],
        results: Sequence[AppendResult],
        version: int,
        correlation_id: int,
        connection: Connection,
    ) -> bytes:
        response = ProduceResponse()
        leaders: dict[int, KnownLeader] = {}
        in_order = iter(results)
        for topic, indexes in topics:
            answered = TopicProduceResponse()
            if isinstance(topic, str):
                answered.name = topic
            else:
                answered.topic_id = topic
            response.responses.append(answered)
            for index, result in zip(indexes, in_order, strict=False):
                partition = _partition(index, result)
                answered.partition_responses.append(partition)
                if partition.error_code in STALE_LEADER_CODES and version >= _LEADERS_SINCE:
                    leader = find_leader(self._metadata, topic, index, connection.listener_name)
                    if leader is not None:
                        leaders[leader.leader_id] = leader
                        partition.current_leader = LeaderIdAndEpoch(
                            leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
                        )
        response.node_endpoints = [
            NodeEndpoint(node_id=each.leader_id, host=each.host, port=each.port, rack=each.rack)
            for each in leaders.values()
        ]
        return encode_response(response, version, correlation_id)

    def _note_bad_records(
        self, request: Request, topic: str | Uuid, index: int, error: ApiError
    ) -> None:
        """Somebody has a broken client, or a setting that does not fit it."""
        self._log.info(
            type(error).__name__,
            "Refused records of %s (client id %s) for %s-%d: %s",
            request.connection.peer_host,
            request.client_id,
            topic,
            index,
            error,
            api="Produce",
            peer=request.connection.peer_host,
            client_id=request.client_id,
            topic=str(topic),
            partition=index,
        )


def _flat(topics: Sequence[tuple[str | Uuid, list[int]]]) -> Iterator[tuple[str | Uuid, int]]:
    return ((topic, index) for topic, indexes in topics for index in indexes)


def _topics(message: ProduceRequest, version: int) -> list[tuple[str | Uuid, list[int]]]:
    """Topics as the version names them, with their partitions."""
    return [
        (
            each.topic_id if version >= _TOPIC_IDS_SINCE else each.name,
            [part.index for part in each.partition_data],
        )
        for each in message.topic_data
    ]


def _refusal(
    message: ProduceRequest, version: int, entries: Sequence[ClientEntry]
) -> ApiError | None:
    """Why nothing of a request can be appended."""
    if message.transactional_id is None and has_transactional_records(entries):
        return TransactionalIdAuthorizationFailed("transactional records without transactional id")
    if version < _ZSTD_SINCE and any(
        records is not None and _is_zstd(records) for _, _, records in entries
    ):
        return UnsupportedCompressionType(
            f"Produce has zstd since version {_ZSTD_SINCE}, this is version {version}"
        )
    return None


def _is_zstd(records: ReadableBuffer) -> bool:
    return (
        len(records) >= HEADER_SIZE
        and records[MAGIC_AT] == MAGIC
        and records[ATTRIBUTES_AT + 1] & CODEC_MASK == Compression.ZSTD
    )


def _partition(index: int, result: AppendResult) -> PartitionProduceResponse:
    error = result.error
    if error is None:
        return PartitionProduceResponse(
            index=index,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=result.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=problem)
            for place, problem in getattr(error, "record_errors", ())
        ],
        error_message=str(error),
    )
