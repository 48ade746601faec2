from socket import socket
from typing import Any, Final

from millstream._accel.express import ExpressHandler
from millstream._accel.poller import Poller

IS_SUPPORTED: Final[bool]

class Selector(Poller):
    def use_buffer(self, buffer: memoryview) -> None: ...
    def open(self, channel: Any, connected: socket, express: ExpressHandler | None) -> None: ...
