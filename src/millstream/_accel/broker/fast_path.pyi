from collections.abc import Sequence
from typing import Any, Final

class Deferred:
    connection: Any
    response: Any
    is_retained: Final[bool]
    def complete(self, answer: bytes) -> None: ...

class FastReader:
    def answer(self, frame: bytes) -> list[Any] | None: ...

class FastHandler:
    reader: FastReader | None
    declined_apis: int
    def answer_all(self, frames: Sequence[bytearray]) -> list[bytes | Deferred]: ...
