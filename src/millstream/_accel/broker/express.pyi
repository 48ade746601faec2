from collections.abc import Sequence
from typing import Any

class ExpressReader:
    def answer(self, frame: bytes) -> list[Any] | None: ...

class ExpressHandler:
    reader: ExpressReader | None
    declined_apis: int
    def answer_all(
        self, frames: Sequence[bytearray], *, are_checked: bool = False
    ) -> list[bytes]: ...
