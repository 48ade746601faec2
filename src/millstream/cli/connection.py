"""One blocking connection to one broker: frames, versions, one answer after the other.

`Session` opens them. A connection that raised is closed and not used again. It never retries and
knows nothing of topics or leaders.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from millstream import __version__
from millstream.cli.faults import Unreachable
from millstream.errors import (
    DecodeError,
    FrameTooLarge,
    ProtocolError,
    UnsupportedVersion,
    error_for_code,
)
from millstream.protocol.api import API_BY_KEY, ApiKey, negotiate_api
from millstream.protocol.frame import (
    FRAME_BYTES_MAX,
    SIZE_BYTES,
    decode_response,
    encode_request_parts,
)
from millstream.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.notation import VersionRange

if TYPE_CHECKING:
    from typing import Self

    from millstream.protocol.message import Message

R = TypeVar("R", bound="Message")

CLIENT_ID: Final = "millstream-cli"
_RECEIVE_BYTES: Final = 1 << 18
_SERVED: Final = "is it a Kafka listener without TLS?"


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Sent(NamedTuple):
    """A request whose answer is still to come."""

    api: ApiKey
    version: int
    correlation_id: int


class FeatureLevel(NamedTuple):
    """A feature of a cluster: what it is at, and what the broker could do."""

    name: str
    level: int
    """0 if it is not in use."""
    min_supported: int
    max_supported: int


class Connection:
    """A socket to a broker that has told its versions."""

    def __init__(self, address: Address, timeout_ms: int) -> None:
        self.address = address
        self._correlation_id = 0
        self._versions: dict[int, VersionRange] = {}
        self.features: tuple[FeatureLevel, ...] = ()
        """As they were when the connection was made."""
        try:
            self._socket = socket.create_connection(address, timeout=timeout_ms / 1000)
        except OSError as error:
            raise _unreachable(address, error) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._learn_versions()

    def close(self) -> None:
        """Hang up; again is fine."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def offers(self, api: ApiKey) -> bool:
        """Whether the broker knows an API at all."""
        return int(api) in self._versions

    def call(self, request: Message, response: type[R], timeout_ms: int) -> R:
        """Send a request and wait for its answer."""
        sent = self.send(request, timeout_ms)
        return self.receive(sent, response, timeout_ms)

    def send(self, request: Message, timeout_ms: int) -> Sent:
        """Send a request in the newest version that both sides know; answers come in order."""
        api = API_BY_KEY[request.KEY]
        version = negotiate_api(api, self._versions.get(request.KEY))
        return self._send(request, api, version, timeout_ms)

    def receive(self, sent: Sent, response: type[R], timeout_ms: int) -> R:
        """Wait for the answer to the oldest request that has none."""
        frame = self._read_frame(timeout_ms)
        try:
            correlation_id, message = decode_response(frame, sent.api, sent.version)
        except ProtocolError:
            self.close()
            raise
        if correlation_id != sent.correlation_id or not isinstance(message, response):
            self.close()
            raise DecodeError(f"{self.address} answered another request than the one sent")
        return message

    def _send(self, request: Message, api: ApiKey, version: int, timeout_ms: int) -> Sent:
        self._correlation_id += 1
        parts = encode_request_parts(request, version, self._correlation_id, CLIENT_ID)
        self._socket.settimeout(timeout_ms / 1000)
        try:
            for part in parts:
                self._socket.sendall(part)
        except OSError as error:
            self.close()
            raise _unreachable(self.address, error) from error
        return Sent(api, version, self._correlation_id)

    def _learn_versions(self) -> None:
        api = ApiKey.API_VERSIONS
        version = api.released.highest
        answer = self._ask_versions(version)
        if answer.error_code == UnsupportedVersion.code:
            # An older broker names the versions it knows; 0 is understood by all of them.
            theirs = {each.api_key: each for each in answer.api_keys}.get(int(api))
            version = 0 if theirs is None else min(version, theirs.max_version)
            answer = self._ask_versions(version)
        if answer.error_code:
            self.close()
            raise error_for_code(answer.error_code)
        self._versions = {
            each.api_key: VersionRange(each.min_version, each.max_version)
            for each in answer.api_keys
        }
        self.features = _features(answer)

    def _ask_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(
            client_software_name="millstream", client_software_version=__version__
        )
        timeout_ms = int((self._socket.gettimeout() or 1) * 1000)
        sent = self._send(request, ApiKey.API_VERSIONS, version, timeout_ms)
        try:
            return self.receive(sent, ApiVersionsResponse, timeout_ms)
        except ProtocolError as error:
            raise Unreachable(f"{self.address} does not speak Kafka; {_SERVED}") from error

    def _read_frame(self, timeout_ms: int) -> bytearray:
        self._socket.settimeout(timeout_ms / 1000)
        size = int.from_bytes(self._read(SIZE_BYTES), "big", signed=True)
        if not 0 < size <= FRAME_BYTES_MAX:
            self.close()
            raise FrameTooLarge(f"{self.address} does not speak Kafka; {_SERVED}")
        return self._read(size)

    def _read(self, size: int) -> bytearray:
        # Grown as bytes arrive: the size is only what the other side claims.
        data = bytearray()
        try:
            while len(data) < size:
                piece = self._socket.recv(min(size - len(data), _RECEIVE_BYTES))
                if not piece:
                    raise ConnectionResetError("connection closed by the other side")
                data += piece
        except OSError as error:
            self.close()
            raise _unreachable(self.address, error) from error
        return data


def _features(answer: ApiVersionsResponse) -> tuple[FeatureLevel, ...]:
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return tuple(
        FeatureLevel(each.name, levels.get(each.name, 0), each.min_version, each.max_version)
        for each in sorted(answer.supported_features, key=lambda each: each.name)
    )


def _unreachable(address: Address, error: OSError) -> Unreachable:
    match error:
        case ConnectionRefusedError():
            why = (
                "connection refused: is a broker running there? Start one with "
                "`millstream server start`, or name another with --bootstrap-server"
            )
        case socket.gaierror():
            why = "no such host: check --bootstrap-server"
        case TimeoutError():
            why = "no answer in time: check the address, or give more with --timeout"
        case ConnectionResetError():
            why = f"it closed the connection; {_SERVED}"
        case _:
            why = error.strerror or str(error)
    return Unreachable(f"{address}: {why}")


def parse_addresses(text: str) -> list[Address]:
    """Read `host[:port],…`; ValueError if that cannot be. The default port is 9092."""
    addresses = [_parse_address(item.strip()) for item in text.split(",") if item.strip()]
    if not addresses:
        raise ValueError("no address given; write host:port")
    return addresses


def _parse_address(item: str) -> Address:
    host, colon, port = item.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, port = item, "9092"  # No port, or a bare IPv6 address.
    if not port.isdecimal() or not 0 < int(port) < 1 << 16 or not host.strip("[]"):
        raise ValueError(f"{item!r} is not host:port")
    return Address(host.strip("[]"), int(port))
