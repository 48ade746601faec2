from collections.abc import Callable
from typing import Any

from millstream._accel.client.produce_sink import ProduceSink

class RecordAppender:
    def bind(
        self,
        topics: dict[str, Any],
        sink: ProduceSink,
        append: Callable[..., Any],
        *,
        batch_size: int,
        record_size_max: int,
        ignores_keys: bool,
    ) -> None: ...
    def append(
        self,
        topic: str,
        partition: int,
        key: Any,
        value: Any,
        headers: Any = (),
        timestamp: int | None = None,
        reservation: Any = None,
    ) -> Any: ...
    def scatter(
        self, topic: str, chunk: Any, start: int, stop: int, timestamp: int, size_limit: int
    ) -> tuple[int, int, list[tuple[Any, int, int]]] | None: ...

class RecordSender:
    def send_through(self, appender: RecordAppender) -> None: ...
    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp: Any = None,
        headers: Any = None,
        on_delivery: Callable[[Any], object] | None = None,
    ) -> Any: ...
