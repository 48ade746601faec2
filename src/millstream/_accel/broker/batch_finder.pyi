from mmap import mmap

from millstream.types import ReadableBuffer

def find_batch(
    descriptor: int,
    written: ReadableBuffer | mmap,
    written_count: int,
    pending: ReadableBuffer,
    base_offset: int,
    end: int,
    offset: int,
) -> tuple[int, int] | None: ...
