from collections.abc import Callable
from typing import Any

from millstream._accel.broker.fast_path import FastReader

def bind(session: type, target: type) -> None: ...

class FetchLane(FastReader):
    def __init__(
        self,
        cache: Any,
        monotonic_ms: Callable[[], int],
        region_of: Callable[[Any, int, int], Any],
        *,
        fetch_max_bytes: int,
        eviction_ms: int,
    ) -> None: ...
