from collections.abc import Iterable, Mapping
from typing import SupportsIndex, TypeAlias

from millstream._accel.arrow.reader import ArrowChunk
from millstream.types import ReadableBuffer

_Field: TypeAlias = ReadableBuffer | None
_Headers: TypeAlias = Mapping[str, _Field] | Iterable[tuple[str, _Field]] | None
_Row: TypeAlias = (
    tuple[SupportsIndex, _Field, _Field] | tuple[SupportsIndex, _Field, _Field, _Headers]
)

class BatchWriter:
    def __init__(
        self, capacity: int = ..., base_timestamp: SupportsIndex | None = None
    ) -> None: ...
    @property
    def size(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    def append(
        self,
        timestamp: SupportsIndex,
        key: _Field,
        value: _Field,
        headers: _Headers = (),
        offset_delta: SupportsIndex | None = None,
    ) -> int: ...
    def extend(self, records: Iterable[_Row]) -> int: ...
    def extend_arrow(
        self, chunk: ArrowChunk, start: int, stop: int, size_limit: int, default_timestamp: int
    ) -> int: ...
    def extend_arrow_rows(
        self,
        chunk: ArrowChunk,
        picked: memoryview,
        start: int,
        stop: int,
        size_limit: int,
        default_timestamp: int,
    ) -> int: ...
    def append_raw(
        self, record_bytes: ReadableBuffer, offset_delta: int, timestamp: int
    ) -> int: ...
    def body(self) -> memoryview: ...
    def seal(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        attributes: int = 0,
        last_offset_delta: int | None = None,
        base_timestamp: int | None = None,
        max_timestamp: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        body: ReadableBuffer | None = None,
    ) -> bytes: ...
    def clear(self) -> None: ...
