"""Requests as frames: size, header, body; and the ids by which answers are told apart.

`NetworkClient` has one. Ids of ordinary requests and of periodic requests never meet.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from millstream.protocol.primitives import encode_string

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.api import ApiKey
    from millstream.types import ReadableBuffer

FIRST_SINK_CORRELATION_ID: Final = 1 << 29
"""Requests that the selector takes by itself count from here, up to the periodic requests."""

FIRST_PERIODIC_CORRELATION_ID: Final = 1 << 30
"""Periodic requests count from here, ordinary requests from 1."""

_IDS_PER_PERIODIC: Final = 1 << 16
"""How many ids a periodic request has to itself until it meets another one's."""
_PERIODIC_BLOCKS: Final = (1 << 30) // _IDS_PER_PERIODIC
_NO_TAGS: Final = b"\0"

_request_head = struct.Struct(">ihhi").pack


class RequestFraming:
    """Makes the frames of one client."""

    __slots__ = ("_client_ids", "_next_id")

    def __init__(self, client_id: str) -> None:
        encoded = encode_string(client_id)
        self._client_ids = (encoded, encoded + _NO_TAGS)
        self._next_id = 1

    def next_id(self) -> int:
        """A correlation id for an ordinary request."""
        taken = self._next_id
        self._next_id = taken + 1 if taken + 1 < FIRST_SINK_CORRELATION_ID else 1
        return taken

    @staticmethod
    def first_periodic_id(periodic_id: int) -> int:
        """The correlation id of a periodic request's first sending."""
        return FIRST_PERIODIC_CORRELATION_ID + periodic_id % _PERIODIC_BLOCKS * _IDS_PER_PERIODIC

    def framed(
        self, api: ApiKey, version: int, correlation_id: int, body: Sequence[ReadableBuffer]
    ) -> list[ReadableBuffer]:
        """The frame, in parts: a body of one piece is copied, more are handed through."""
        client_id = self._client_ids[api.request_header_version(version) - 1]
        size = 8 + len(client_id) + sum(map(len, body))
        head = _request_head(size, api, version, correlation_id) + client_id
        if len(body) == 1 and type(body[0]) is bytes:
            return [head + body[0]]
        return [head, *body]
