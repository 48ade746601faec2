"""What the thread of a client's sockets asks of the scheduler."""

from __future__ import annotations

import ctypes
import platform
import socket
import struct
import sys
import threading

import pytest

from millstream import _accel
from millstream.network.client.selector import Connected

if not _accel.COMPILED or sys.platform != "linux":
    pytest.skip("the compiled selector is not built (make build)", allow_module_level=True)

from millstream.network.client.native_selector import NativeSelector

SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
if platform.machine() not in SCHED_GETATTR:
    pytest.skip("the system call has another number here", allow_module_level=True)


def turn_ns(thread_id: int) -> int:
    """How long a turn of the processor a thread has asked for; 0 where none can be asked for."""
    told = ctypes.create_string_buffer(48)
    number = SCHED_GETATTR[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, thread_id, told, len(told), 0) == 0
    return int(struct.unpack_from("@Q", told, 24)[0])


def test_the_sockets_thread_asks_for_shorter_turns_than_python() -> None:
    if turn_ns(0) == 0:
        pytest.skip("turns of a length of one's own came with Linux 6.12")
    others = set(threading.enumerate())
    selector = NativeSelector(frame_bytes_max=1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as server:
        selector.connect(1, *server.getsockname())
        assert selector.poll(10_000) == [Connected(1)]  # So its thread has run.
    (sockets,) = (
        each
        for each in threading.enumerate()
        if each not in others and each.name == "millstream-sockets"
    )

    assert sockets.native_id is not None
    assert 0 < turn_ns(sockets.native_id) < turn_ns(0)
    selector.shutdown()
