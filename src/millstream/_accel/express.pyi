from collections.abc import Sequence

class ExpressHandler:
    def answer_all(self, frames: Sequence[bytearray]) -> list[bytes]: ...
