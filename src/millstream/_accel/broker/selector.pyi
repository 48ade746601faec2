from asyncio import AbstractEventLoop
from socket import socket
from typing import Any, Final

from millstream._accel.broker.fast_path import FastHandler

IS_SUPPORTED: Final[bool]

class Selector:
    answered: Final[int]
    handed_off: Final[int]
    def __init__(self, loop: AbstractEventLoop, processor: Any) -> None: ...
    def close(self) -> None: ...
    def use_buffer(self, buffer: memoryview) -> None: ...
    def open(self, channel: Any, connected: socket, fast_path: FastHandler | None) -> None: ...
