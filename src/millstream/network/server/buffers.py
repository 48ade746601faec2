"""Memory that frames are received into: one buffer for everybody, and a pool for large frames.

A read and the handling of what it brought happen without a pause between them, so all connections
of a processor share one buffer; five thousand idle ones hold none. A connection borrows a buffer
of its own from the pool only while a frame is too large to be carried from read to read.
"""

from __future__ import annotations

import mmap
from typing import Final

SHARED_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""What several connections send in one turn is gathered here, and goes to each log in one write.

Larger writes cost less per byte: 64 connections with 64 KiB each cost 93 us per request if 128 KiB
are gathered, 71 if 256, 59 if 512, 53 if 1 MiB, 45 if 4 MiB."""
READ_BYTES_MAX: Final = 256 * 1024
"""Of it one read gets so much. Larger frames are received into buffers of their own."""
CARRIED_BYTES_MAX: Final = 32 * 1024
"""The rest of a frame up to this size is copied into the shared buffer at the next read."""
KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
KEPT_BUFFERS_MAX: Final = 32
LINGERING_BYTES_MAX: Final = 96 * 1024 * 1024
"""Up to it, connections that send large frames keep their buffers: 1 MiB each for 64 producers."""
_GRAIN_BYTES: Final = 16 * 1024
_GROWTH: Final = 8


def growth_bytes(frame_bytes: int, received_bytes: int) -> int:
    """How large a buffer to give to a frame of which so much has arrived.

    A peer makes us allocate eight times what it has sent, whatever size it claims; a buffer that
    is outgrown is copied, which at this factor costs a seventh of the frame at most.
    """
    wanted = min(frame_bytes, max(received_bytes * _GROWTH, _GRAIN_BYTES))
    return -(-wanted // _GRAIN_BYTES) * _GRAIN_BYTES


def make_shared_buffer() -> memoryview:
    """A new one; a request may keep it for itself. Pages cost nothing before they are used."""
    return memoryview(mmap.mmap(-1, SHARED_BUFFER_BYTES))


class BufferPool:
    """Buffers for large frames. Fresh memory costs ten times used memory, so some is kept."""

    __slots__ = ("_free", "_free_bytes", "taken_bytes")

    def __init__(self) -> None:
        self._free: list[memoryview] = []
        self._free_bytes = 0
        self.taken_bytes = 0

    def take(self, size: int) -> memoryview:
        """A writable buffer of at least `size` bytes with anything in it."""
        free = self._free
        for index in range(len(free) - 1, -1, -1):
            if size <= len(free[index]) <= 2 * size:
                buffer = free.pop(index)
                self._free_bytes -= len(buffer)
                break
        else:
            buffer = memoryview(bytearray(size))
        self.taken_bytes += len(buffer)
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer nobody refers to any more; the oldest ones are let go."""
        self.taken_bytes -= len(buffer)
        if len(buffer) > KEPT_BYTES_MAX:
            return
        self._free.append(buffer)
        self._free_bytes += len(buffer)
        while self._free_bytes > KEPT_BYTES_MAX or len(self._free) > KEPT_BUFFERS_MAX:
            self._free_bytes -= len(self._free.pop(0))

    def write_off(self, buffer: memoryview) -> None:
        """Forget a buffer whose bytes a request retains."""
        self.taken_bytes -= len(buffer)

    @property
    def may_linger(self) -> bool:
        """Whether a connection may keep its buffer in the hope of another large frame."""
        return self.taken_bytes <= LINGERING_BYTES_MAX
