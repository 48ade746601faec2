"""The sockets of clients: the compiled selector or the plain one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import _accel
from millstream.network.client.selector import FRAME_BYTES_MAX, SocketSelector

if TYPE_CHECKING:
    from millstream.network.client.selector import ClientSelector


def open_client_selector(*, frame_bytes_max: int = FRAME_BYTES_MAX) -> ClientSelector:
    """The compiled one where the kernel runs, else the plain one."""
    if _accel.find("client.client_selector"):
        from millstream.network.client.native_selector import NativeSelector

        return NativeSelector(frame_bytes_max=frame_bytes_max)
    return SocketSelector(frame_bytes_max=frame_bytes_max)
