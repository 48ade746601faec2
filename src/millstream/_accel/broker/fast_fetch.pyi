from collections.abc import Callable
from typing import Any

from millstream._accel.broker.fast_path import FastReader

class FastFetch(FastReader):
    def __init__(
        self,
        cache: Any,
        waiting: dict[Any, Any],
        monotonic_ms: Callable[[], int],
        region_of: Callable[[Any, int, int], Any],
        *,
        fetch_max_bytes: int,
        eviction_ms: int,
    ) -> None: ...
    def begin_wait(self, frame: bytes) -> tuple[Any, int, int, bool] | None: ...
    def answer_waiting(self, frame: bytes) -> list[Any] | None: ...
