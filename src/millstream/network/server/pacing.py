"""Sockets of one machine that send at a pace for which there is no reason.

`SocketSender` asks for each connection. Where bbr is the machine's choice, each 64 KiB that it
holds back costs a timer; between two sockets of one machine there is no network to be gentle with,
and 1 MiB took twice the processor time. Connections to other machines are left as they are.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)
_TCP_CONGESTION: Final[int] = getattr(socket, "TCP_CONGESTION", -1)
_NAME_BYTES_MAX: Final = 16
_PACING: Final = b"bbr"
_NOT_PACING: Final = b"reno"
"""Every Linux has it and lets everybody choose it."""


def stop_pacing(sock: socket.socket) -> None:
    """Send to this same machine as fast as it takes."""
    if sock.family not in _INTERNET or _TCP_CONGESTION < 0:
        return
    # A peer that is gone already, a kernel that refuses: then it stays as it is.
    with suppress(OSError):
        if sock.getpeername()[0] != sock.getsockname()[0]:
            return
        chosen = sock.getsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, _NAME_BYTES_MAX)
        if chosen.startswith(_PACING):
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, _NOT_PACING)
