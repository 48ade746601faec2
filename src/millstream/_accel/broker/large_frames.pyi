from typing import Any

class LargeFrames:
    def __init__(self, epoll: int, read_bytes_max: int, requests: Any) -> None: ...
