"""Frames: a size, a header, a body. Cutting them from a stream and putting them together.

Connections feed what they read to a `FrameDecoder` and decode the frames it gives with
`decode_request` or `decode_response`; they send what the `encode_` functions return. Nothing here
reads or writes by itself.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import DecodeError, FrameTooLarge
from millstream.protocol.api import API_BY_KEY, ApiKey, decode_api_versions
from millstream.protocol.primitives import encode_string

if TYPE_CHECKING:
    from millstream.protocol.message import Message
    from millstream.protocol.messages import RequestHeader
    from millstream.types import ReadableBuffer

SIZE_BYTES = 4
FRAME_BYTES_MAX = 100 * 1024 * 1024
"""Kafka's default of `socket.request.max.bytes`."""

SMALL_PIECE_BYTES = 4096
"""Pieces of a frame below this are gathered, larger ones are kept as they came."""

_read_int = struct.Struct(">i").unpack_from
_read_api = struct.Struct(">hh").unpack_from
_request_head = struct.Struct(">ihhi").pack
_response_head = struct.Struct(">ii").pack
_NO_TAGS = b"\0"


class Cut(NamedTuple):
    """Where the frames in a buffer are."""

    bounds: list[tuple[int, int]]
    """Start and end of every complete frame, without its size."""
    rest: int
    """Where the bytes begin that are not a complete frame yet."""
    wanted: int
    """How many bytes the frame at `rest` takes with its size; 4 while the size is not known."""


def cut_frames(
    buffer: ReadableBuffer,
    start: int,
    end: int,
    *,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    allow_empty: bool = False,
) -> Cut:
    """Find the frames in `buffer[start:end]`, for readers that own a pooled buffer."""
    bounds: list[tuple[int, int]] = []
    while end - start >= SIZE_BYTES:
        (size,) = _read_int(buffer, start)
        if not 0 < size <= frame_bytes_max:
            _require_legal(size, frame_bytes_max, allow_empty=allow_empty)
        stop = start + SIZE_BYTES + size
        if stop > end:
            return Cut(bounds, start, SIZE_BYTES + size)
        bounds.append((start + SIZE_BYTES, stop))
        start = stop
    return Cut(bounds, start, SIZE_BYTES)


def _require_legal(size: int, frame_bytes_max: int, *, allow_empty: bool) -> None:
    if size < 0:
        raise FrameTooLarge(f"a frame of {size} bytes: the other side does not speak Kafka")
    if size > frame_bytes_max:
        raise FrameTooLarge(f"a frame of {size} bytes, limit {frame_bytes_max}")
    if not allow_empty:
        raise DecodeError("a frame of 0 bytes has no header")


class FrameDecoder:
    """Takes bytes as they come and gives frames.

    Memory grows with the bytes that arrived, not with the size a frame claims. A frame is copied
    once, however many reads it took. After an error the connection must be closed.
    """

    __slots__ = ("_allow_empty", "_frame_bytes_max", "_missing", "_pieces")

    def __init__(
        self, *, frame_bytes_max: int = FRAME_BYTES_MAX, allow_empty: bool = False
    ) -> None:
        """`allow_empty` admits frames of 0 bytes, which only raw SASL tokens are."""
        self._frame_bytes_max = frame_bytes_max
        self._allow_empty = allow_empty
        # The body so far of the frame that lacks `_missing` bytes; or, if none are missing, the
        # beginning of a size. Small pieces are gathered in bytearrays: a peer that sends byte by
        # byte must not make us keep an object for each.
        self._pieces: list[bytes | bytearray] = []
        self._missing = 0

    @property
    def held_bytes(self) -> int:
        """How many bytes wait for the rest of their frame."""
        return sum(len(piece) for piece in self._pieces)

    def feed(self, data: ReadableBuffer) -> list[bytes]:
        """Every frame that is complete now, in order, without its size."""
        if type(data) is not bytes:
            data = memoryview(data)
        frames: list[bytes] = []
        start = 0
        if self._missing:
            start = min(self._missing, len(data))
            self._keep(data[:start])
            self._missing -= start
            if self._missing:
                return frames
            frames.append(self._join())
        elif self._pieces:
            data = self._join() + data
        cut = cut_frames(
            data,
            start,
            len(data),
            frame_bytes_max=self._frame_bytes_max,
            allow_empty=self._allow_empty,
        )
        frames += [bytes(data[first:last]) for first, last in cut.bounds]
        self._hold(data, cut)
        return frames

    def _keep(self, data: ReadableBuffer) -> None:
        last = self._pieces[-1] if self._pieces else b""
        if len(data) >= SMALL_PIECE_BYTES:
            self._pieces.append(bytes(data))
        elif isinstance(last, bytearray):
            last += data
        else:
            self._pieces.append(bytearray(data))

    def _join(self) -> bytes:
        joined = b"".join(self._pieces)
        self._pieces.clear()
        return joined

    def _hold(self, data: ReadableBuffer, cut: Cut) -> None:
        left = len(data) - cut.rest
        if left >= SIZE_BYTES:
            self._keep(data[cut.rest + SIZE_BYTES :])
            self._missing = cut.wanted - left
        elif left:
            self._keep(data[cut.rest :])


def encode_request_parts(
    request: Message, version: int, correlation_id: int, client_id: str | None = None
) -> list[ReadableBuffer]:
    """A request's frame, cut at its records: nothing is copied that need not be."""
    client = encode_string(client_id)
    if API_BY_KEY[request.KEY].request_header_version(version) == 2:
        client += _NO_TAGS
    parts = request.encode_parts(version)
    size = 8 + len(client) + sum(map(len, parts))
    head = _request_head(size, request.KEY, version, correlation_id)
    parts[0] = b"".join((head, client, parts[0]))
    return parts


def encode_request(
    request: Message, version: int, correlation_id: int, client_id: str | None = None
) -> bytes:
    """A request's frame: size, header and body."""
    return b"".join(encode_request_parts(request, version, correlation_id, client_id))


def encode_response_parts(
    response: Message, version: int, correlation_id: int
) -> list[ReadableBuffer]:
    """A response's frame, cut at its records, which may be slices of files."""
    tags = _response_tags(response.KEY, version)
    parts = response.encode_parts(version)
    size = 4 + len(tags) + sum(map(len, parts))
    parts[0] = b"".join((_response_head(size, correlation_id), tags, parts[0]))
    return parts


def encode_response(response: Message, version: int, correlation_id: int) -> bytes:
    """A response's frame: size, header and body."""
    if response.CARRIES_RECORDS:
        return b"".join(encode_response_parts(response, version, correlation_id))
    tags, body = _response_tags(response.KEY, version), response.encode(version)
    return b"".join((_response_head(4 + len(tags) + len(body), correlation_id), tags, body))


@cache
def _response_tags(api_key: int, version: int) -> bytes:
    """What ends the header of a response."""
    return _NO_TAGS if API_BY_KEY[api_key].response_header_version(version) else b""


def decode_request_header(frame: ReadableBuffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header of a request, and where the body begins."""
    from millstream.protocol.messages.headers import RequestHeader

    if len(frame) - position < 4:
        raise DecodeError("truncated before the API key and version", message="RequestHeader")
    key, version = _read_api(frame, position)
    api = API_BY_KEY.get(key)
    if api is None or api.is_removed:
        raise DecodeError(f"there is no API with key {key}", message="RequestHeader", position=0)
    return RequestHeader.decode_from(frame, api.request_header_version(version), position)


def decode_request(frame: ReadableBuffer) -> tuple[RequestHeader, Message]:
    """A whole request. Check the version first if an unsupported one deserves an answer."""
    header, position = decode_request_header(frame)
    api = API_BY_KEY[header.request_api_key]
    return header, api.request.decode(frame, header.request_api_version, position)


def decode_response_header(
    frame: ReadableBuffer, api: ApiKey, version: int, position: int = 0
) -> tuple[int, int]:
    """The correlation id of a response, and where the body begins."""
    from millstream.protocol.messages.headers import ResponseHeader

    header_version = api.response_header_version(version)
    end = position + 4 + header_version
    if len(frame) >= end and (header_version == 0 or frame[end - 1] == 0):
        return _read_int(frame, position)[0], end  # No tagged fields, as nearly always.
    header, end = ResponseHeader.decode_from(frame, header_version, position)
    return header.correlation_id, end


def decode_response(frame: ReadableBuffer, api: ApiKey, version: int) -> tuple[int, Message]:
    """A whole response to a request of `version`: correlation id and body."""
    correlation_id, position = decode_response_header(frame, api, version)
    if api is ApiKey.API_VERSIONS:
        return correlation_id, decode_api_versions(frame, version, position)[0]
    return correlation_id, api.response.decode(frame, version, position)
