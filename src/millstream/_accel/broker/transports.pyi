from millstream.types import ReadableBuffer

def send_region(
    socket: int,
    head: ReadableBuffer,
    file: int,
    position: int,
    length: int,
    tail: ReadableBuffer,
) -> int: ...
