from socket import socket
from typing import Any, Final

from millstream._accel.broker.express import ExpressHandler
from millstream._accel.broker.frame_stage import FrameStage

IS_SUPPORTED: Final[bool]

class Selector(FrameStage):
    answered: Final[int]
    def use_buffer(self, buffer: memoryview) -> None: ...
    def open(self, channel: Any, connected: socket, express: ExpressHandler | None) -> None: ...
