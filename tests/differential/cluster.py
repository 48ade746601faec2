"""The state that the requests meet, the same on both sides, and the connection they go by."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from millstream.protocol.api import API_BY_KEY, ApiKey
from millstream.protocol.frame import decode_response, encode_request
from millstream.protocol.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    api_versions,
    create_topics,
    find_coordinator,
    init_producer_id,
    offset_commit,
)
from millstream.records.builder import RecordBatchBuilder
from tests.integration.node.harness import Client

if TYPE_CHECKING:
    from millstream.protocol.message import Message

TOPIC, UNREAD, DOOMED = "orders", "unread", "doomed"
GROUP, TRANSACTION = "readers", "payments"
TIMESTAMP_MS: Final = 1_700_000_000_000
ANSWER_SECONDS_MAX: Final = 10

SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "60000",
}
"""What both are started with."""

_SOON: Final = frozenset(
    {CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code, NotCoordinator.code}
)


def _batch() -> bytes:
    builder = RecordBatchBuilder()
    builder.extend((TIMESTAMP_MS, None, value) for value in (b"one", b"two"))
    return builder.build()


BATCH: Final = _batch()


def prepare(address: str) -> None:
    """Topics with records, a group with an offset, and coordinators that are there."""
    with Client(address) as client:
        for name in (TOPIC, UNREAD, DOOMED):
            topic = create_topics.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            answer = client.ask(request, 7, create_topics.CreateTopicsResponse)
            assert answer.topics[0].error_code == 0
        assert client.produce_bytes(TOPIC, BATCH) == (0, 0)
        for key_type, key in enumerate((GROUP, TRANSACTION, f"{GROUP}:AAAAAAAAAAAAAAAAAAAAAQ:0")):
            _until_there(client, key_type, key)
        _until_committed(client)
        _until_initialized(client)


def _until_there(client: Client, key_type: int, key: str) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    while True:
        answer = client.ask(request, 6, find_coordinator.FindCoordinatorResponse)
        if answer.coordinators[0].error_code == 0:
            return
        assert answer.coordinators[0].error_code in _SOON


def _until_committed(client: Client) -> None:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    while True:
        answer = client.ask(request, 9, offset_commit.OffsetCommitResponse)
        code = answer.topics[0].partitions[0].error_code
        if code == 0:
            return
        assert code in _SOON


def _until_initialized(client: Client) -> None:
    request = InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=60_000)
    while True:
        answer = client.ask(request, 4, init_producer_id.InitProducerIdResponse)
        if answer.error_code == 0:
            return
        assert answer.error_code in {*_SOON, 51}


def served(address: str) -> dict[ApiKey, tuple[int, int]]:
    """The APIs that a broker lists, with their versions."""
    with Client(address) as client:
        request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
        answer = client.ask(request, 4, api_versions.ApiVersionsResponse)
    return {
        API_BY_KEY[each.api_key]: (each.min_version, each.max_version)
        for each in answer.api_keys
        if each.api_key in API_BY_KEY
    }


class Connection:
    """Asks one request after the other; a connection that the broker closes is opened anew."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._socket: socket.socket | None = None

    def ask(self, api: ApiKey, request: Message, version: int) -> Message | None:
        """The answer; None if the broker closed the connection instead."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=ANSWER_SECONDS_MAX)
        try:
            self._socket.sendall(encode_request(request, version, 7, "differential"))
            (size,) = struct.unpack(">i", self._read(4))
            return decode_response(self._read(size), api, version)[1]
        except ConnectionError:
            self.close()
            return None

    def _read(self, length: int) -> bytes:
        assert self._socket is not None
        data = b""
        while len(data) < length:
            piece = self._socket.recv(length - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return data

    def close(self) -> None:
        """Forget the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
