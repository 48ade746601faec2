from collections.abc import Sequence
from typing import Any

class Deferred:
    answer: bytes | None
    def complete(self, answer: bytes) -> None: ...

class ExpressReader:
    def answer(self, frame: bytes) -> list[Any] | None: ...

class ExpressHandler:
    reader: ExpressReader | None
    may_defer: bool
    def answer_all(
        self, frames: Sequence[bytearray], *, are_checked: bool = False
    ) -> list[Any]: ...
