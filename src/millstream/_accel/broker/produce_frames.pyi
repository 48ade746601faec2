from millstream.types import ReadableBuffer

def read_single(
    buffer: ReadableBuffer, at: int, end: int, version: int
) -> tuple[int, int, bytes, int, int, int] | None: ...
def write_single(
    version: int,
    correlation_id: int,
    topic: bytes,
    partition: int,
    base_offset: int,
    append_time_ms: int,
    log_start: int,
) -> bytes: ...
