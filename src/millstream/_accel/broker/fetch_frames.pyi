from millstream.types import ReadableBuffer

def read_single(
    buffer: ReadableBuffer, at: int, end: int, version: int
) -> tuple[int, int, int, int, int, int, bytes | None, int, int, int, int, int, int] | None: ...
def write_single(
    correlation_id: int,
    session_id: int,
    topic_id: bytes,
    index: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    has_aborted: bool,
    length: int,
) -> bytes: ...
def read_answer(
    descriptor: int,
    position: int,
    length: int,
    correlation_id: int,
    session_id: int,
    topic_id: bytes,
    index: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    has_aborted: bool,
) -> bytes | None: ...
