from typing import final

from millstream._accel.codec.batch_writer import BatchWriter as BatchWriter
from millstream.types import Headers, ReadableBuffer

@final
class Record:
    __match_args__ = ("offset", "timestamp", "key", "value", "headers")
    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
    ) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...

def decode_records(
    body: ReadableBuffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None = None,
    from_offset: int = 0,
    to_offset: int = ...,
) -> list[Record]: ...
def find_since(
    body: ReadableBuffer, count: int, base_timestamp: int, timestamp: int, from_delta: int
) -> tuple[int, int] | None: ...
def inspect_records(
    body: ReadableBuffer, count: int, base_timestamp: int, oldest: int, newest: int
) -> tuple[int, bool, int, list[int], int, list[tuple[int, int]]]: ...
def scan_records(
    body: ReadableBuffer, count: int
) -> list[tuple[int, int, bytes | None, bool, int, int]]: ...
