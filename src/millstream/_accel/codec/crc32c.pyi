from millstream.types import ReadableBuffer

INSTRUCTIONS: str
"""Which way was chosen on import: "sse4.2", "armv8" or "portable"."""

def crc32c(data: ReadableBuffer, seed: int = 0) -> int: ...
def crc32c_portable(data: ReadableBuffer, seed: int = 0) -> int: ...
