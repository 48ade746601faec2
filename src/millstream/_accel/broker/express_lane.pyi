from collections.abc import Callable
from typing import Any

from millstream.types import ReadableBuffer

def bind(
    local: type,
    segments: type,
    segment: type,
    indexes: type,
    producers: type,
    entry: type,
    verifications: type,
    epochs: type,
    file: type,
    limits_of_config: Callable[[Any], tuple[int, int, int]],
    storage_error: Callable[[str, str, OSError], Exception],
) -> None: ...

class ExpressLane:
    def __init__(self, local: Any, producers: Any, epochs: Any) -> None: ...
    def update_config(self, config: Any) -> None: ...
    def append(
        self, records: ReadableBuffer, leader_epoch: int, now_ms: int, *, is_own: bool = False
    ) -> int | None: ...
