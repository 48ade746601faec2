from asyncio import AbstractEventLoop

class PreparedFrames:
    def __init__(
        self, loop: AbstractEventLoop, request_bytes_max: int, turn_frames_max: int
    ) -> None: ...
