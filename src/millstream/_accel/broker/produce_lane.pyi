from collections.abc import Callable
from typing import Any

from millstream._accel.broker.fast_path import FastHandler

def bind(
    table: type,
    purgatory: type,
    partition: type,
    log: type,
    local: type,
    producers: type,
    news: type,
) -> None: ...

class ProduceLane(FastHandler):
    def __init__(
        self,
        table: Any,
        purgatory: Any,
        changed: Callable[[Any], None],
        failure: Callable[[Exception, Any], Any],
        wall_ms: Callable[[], int],
    ) -> None: ...
