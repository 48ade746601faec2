from collections.abc import Sequence
from typing import Any

from millstream.types import ReadableBuffer

class ExpressReader:
    def answer(self, frame: ReadableBuffer) -> list[Any] | None: ...

class ExpressHandler:
    reader: ExpressReader | None
    def answer_all(self, frames: Sequence[bytearray]) -> list[bytes]: ...
