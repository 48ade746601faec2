from collections.abc import Sequence
from typing import final

from millstream.types import ReadableBuffer

class ArrowRecordsBuilder:
    def append(
        self,
        body: ReadableBuffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None = None,
        partition: int = 0,
        from_offset: int = 0,
        to_offset: int = ...,
    ) -> int: ...
    @property
    def row_count(self) -> int: ...
    @property
    def byte_count(self) -> int: ...
    def finish(self) -> ArrowRecords: ...

@final
class ArrowRecords:
    def __len__(self) -> int: ...
    def select(self, columns: Sequence[str]) -> ArrowRecords: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
