from collections.abc import Callable
from typing import Any

from millstream._accel.broker.fast_path import FastHandler
from millstream.clock import Clock

class FastProduce(FastHandler):
    explain: Callable[[bytes, int, Any, Any], bytes] | None
    def __init__(
        self,
        by_name: dict[str, Any],
        by_id: dict[Any, Any],
        failure: Callable[[Exception, Any], Any],
        wait: Callable[[Any, Any], None],
        clock: Clock,
    ) -> None: ...
