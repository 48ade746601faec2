"""A connection to one broker: versions, frames, and every way in which it can go wrong."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

import millstream
from millstream.cli.connection import Address, Connection, FeatureLevel, parse_addresses
from millstream.cli.faults import Unreachable
from millstream.errors import (
    ClusterAuthorizationFailed,
    DecodeError,
    FrameTooLarge,
    ProtocolError,
    UnsupportedVersion,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import decode_request, encode_response
from millstream.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    MetadataRequest,
    MetadataResponse,
)
from millstream.protocol.messages.api_versions import (
    ApiVersion,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message

    Connect = Callable[..., tuple[Connection, "FakeSocket"]]

HERE = Address("broker", 9092)


class FakeSocket:
    """The other side: `answer` makes the response, or the bytes, to each request."""

    def __init__(self, answer: Callable[[Message], Message | bytes | OSError]) -> None:
        self._answer = answer
        self._incoming = b""
        self._arrived = b""
        self._timeout_s: float | None = 5.0
        self.requests: list[Message] = []
        self.is_closed = False
        self.send_error: OSError | None = None

    def sendall(self, data: bytes) -> None:
        if self.send_error is not None:
            raise self.send_error
        self._incoming += bytes(data)
        size = int.from_bytes(self._incoming[:4], "big")
        if len(self._incoming) < 4 + size:
            return
        frame, self._incoming = self._incoming[4 : 4 + size], self._incoming[4 + size :]
        header, request = decode_request(frame)
        self.requests.append(request)
        answer = self._answer(request)
        if isinstance(answer, OSError):
            raise answer
        if isinstance(answer, bytes):
            self._arrived += answer
            return
        # What a broker has to say about versions it does not know, all clients can read.
        is_refusal = isinstance(answer, ApiVersionsResponse) and answer.error_code == 35
        version = 0 if is_refusal else header.request_api_version
        self._arrived += encode_response(answer, version, header.correlation_id)

    def recv(self, size: int) -> bytes:
        # In small pieces, as a network does.
        piece, self._arrived = self._arrived[: min(size, 7)], self._arrived[min(size, 7) :]
        return piece

    def settimeout(self, seconds: float) -> None:
        self._timeout_s = seconds

    def gettimeout(self) -> float | None:
        return self._timeout_s

    def setsockopt(self, *_: int) -> None: ...

    def close(self) -> None:
        self.is_closed = True


VERSIONS = ApiVersionsResponse(
    supported_features=[
        SupportedFeatureKey(name="share.version", min_version=0, max_version=1),
        SupportedFeatureKey(name="metadata.version", min_version=7, max_version=30),
    ],
    finalized_features=[
        FinalizedFeatureKey(name="metadata.version", min_version_level=7, max_version_level=29)
    ],
    api_keys=[
        ApiVersion(api_key=int(ApiKey.METADATA), min_version=0, max_version=12),
        ApiVersion(api_key=int(ApiKey.API_VERSIONS), min_version=0, max_version=4),
    ],
)


def answer(request: Message) -> Message | bytes | OSError:
    if isinstance(request, ApiVersionsRequest):
        return VERSIONS
    return MetadataResponse(cluster_id="here")


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    def connect(
        answer: Callable[[Message], Message | bytes | OSError] = answer,
    ) -> tuple[Connection, FakeSocket]:
        fake = FakeSocket(answer)
        monkeypatch.setattr(socket, "create_connection", lambda *_, **__: fake)
        return Connection(HERE, 1000), fake

    return connect


def test_a_request_is_answered_in_a_version_that_both_know(connect: Connect) -> None:
    connection, fake = connect()

    with connection:
        found = connection.call(MetadataRequest(topics=None), MetadataResponse, 1000)

    assert found.cluster_id == "here"
    assert fake.is_closed
    assert connection.offers(ApiKey.METADATA)
    assert not connection.offers(ApiKey.LIST_GROUPS)


def test_a_broker_learns_which_software_asks(connect: Connect) -> None:
    _, fake = connect()

    [request] = fake.requests
    assert isinstance(request, ApiVersionsRequest)
    assert request.client_software_name == "millstream"
    assert request.client_software_version == millstream.__version__


def test_a_broker_tells_the_features_of_its_cluster(connect: Connect) -> None:
    connection, _ = connect()

    assert connection.features == (
        FeatureLevel("metadata.version", 29, 7, 30),
        FeatureLevel("share.version", 0, 0, 1),
    )


def test_an_api_that_the_broker_lacks_is_refused_here(connect: Connect) -> None:
    connection, _ = connect()

    with pytest.raises(UnsupportedVersion):
        connection.call(ListGroupsRequest(), ListGroupsResponse, 1000)


def test_an_older_broker_is_asked_again_in_its_version(connect: Connect) -> None:
    answers: list[Message] = [
        ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=VERSIONS.api_keys[1:]),
        VERSIONS,
    ]

    connection, fake = connect(lambda _: answers.pop(0))

    assert len(fake.requests) == 2
    assert connection.offers(ApiKey.METADATA)


def test_a_broker_that_refuses_is_left(connect: Connect) -> None:
    refusal = ApiVersionsResponse(error_code=ClusterAuthorizationFailed.code)

    with pytest.raises(ClusterAuthorizationFailed):
        connect(lambda _: refusal)


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x08" + b"\xff" * 8,
        b"\x15\x03\x03\x00\x02\x02\x50",
    ],
)
def test_who_does_not_speak_kafka_is_told_apart(connect: Connect, garbage: bytes) -> None:
    with pytest.raises(Unreachable, match=r"does not speak Kafka; is it a Kafka listener|closed"):
        connect(lambda _: garbage)


def test_a_frame_beyond_all_measure_is_not_read(connect: Connect) -> None:
    connection, fake = connect(lambda r: VERSIONS if is_versions(r) else b"\x7f\xff\xff\xff")

    with pytest.raises(FrameTooLarge):
        connection.call(MetadataRequest(), MetadataResponse, 1000)
    assert fake.is_closed


def test_an_answer_to_another_request_ends_the_connection(connect: Connect) -> None:
    connection, fake = connect()
    sent = connection.send(MetadataRequest(), 1000)

    with pytest.raises(DecodeError, match="another request"):
        connection.receive(sent._replace(correlation_id=99), MetadataResponse, 1000)
    assert fake.is_closed


def test_an_answer_that_cannot_be_read_ends_the_connection(connect: Connect) -> None:
    short = b"\x00\x00\x00\x05\x00\x00\x00\x02\x00"
    connection, fake = connect(lambda r: VERSIONS if is_versions(r) else short)

    with pytest.raises(ProtocolError):
        connection.call(MetadataRequest(), MetadataResponse, 1000)
    assert fake.is_closed


def test_a_connection_closed_by_the_other_side_is_told(connect: Connect) -> None:
    connection, fake = connect(lambda r: VERSIONS if is_versions(r) else b"\x00\x00")

    with pytest.raises(Unreachable, match="it closed the connection"):
        connection.call(MetadataRequest(), MetadataResponse, 1000)
    assert fake.is_closed


def test_a_broken_connection_is_told_when_sending(connect: Connect) -> None:
    connection, fake = connect()
    fake.send_error = OSError(32, "Broken pipe")

    with pytest.raises(Unreachable, match="broker:9092: Broken pipe"):
        connection.call(MetadataRequest(), MetadataResponse, 1000)
    assert fake.is_closed


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ConnectionRefusedError(), "millstream server start"),
        (socket.gaierror(), "no such host"),
        (TimeoutError(), "--timeout"),
        (OSError("made up"), "made up"),
    ],
)
def test_a_broker_that_cannot_be_reached_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, error: OSError, says: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)

    with pytest.raises(Unreachable, match=says):
        Connection(HERE, 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", [Address("a", 9092)]),
        ("a:1, b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:5", [Address("::1", 5)]),
        ("::1", [Address("::1", 9092)]),
    ],
)
def test_addresses_are_read(text: str, expected: list[Address]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["", " , ", "a:", "a:b", ":1", "a:0", "a:65536", "a:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)


def test_an_address_of_version_6_is_shown_in_brackets() -> None:
    assert str(Address("::1", 5)) == "[::1]:5"


def is_versions(request: Message) -> bool:
    return isinstance(request, ApiVersionsRequest)
