"""Waiting for bytes while no other thread of the process can run Python."""

from __future__ import annotations

import ctypes
import socket
import struct

LIMIT_SECONDS = 30


def receive_with_the_gil(peer: socket.socket, size: int) -> bytes:
    """So many bytes from a socket, read by C code that does not let go of the GIL meanwhile.

    Whatever they are, a thread without the GIL has sent them. Fewer if they do not come.
    """
    peer.setblocking(True)
    limit = struct.pack("@ll", LIMIT_SECONDS, 0)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    buffer = ctypes.create_string_buffer(size)
    got: int = ctypes.PyDLL(None).recv(peer.fileno(), buffer, size, socket.MSG_WAITALL)
    return buffer.raw[: max(got, 0)]
