from socket import socket
from typing import Any, Final

from millstream._accel.express import ExpressHandler
from millstream._accel.large_frames import LargeFrames

IS_SUPPORTED: Final[bool]

class Selector(LargeFrames):
    def use_buffer(self, buffer: memoryview) -> None: ...
    def open(self, channel: Any, connected: socket, express: ExpressHandler | None) -> None: ...
