from collections.abc import Callable
from typing import Any

from millstream._accel.broker.express import ExpressHandler
from millstream.clock import Clock

class FastProduce(ExpressHandler):
    def __init__(
        self,
        by_name: dict[str, Any],
        by_id: dict[Any, Any],
        failure: Callable[[Exception, Any], Any],
        clock: Clock,
    ) -> None: ...
