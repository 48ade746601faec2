from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

class AccumulatorLock:
    def __enter__(self) -> None: ...
    def __exit__(self, *failure: object) -> None: ...

class TopicQueues:
    name: str
    count: int
    partitions: list[PartitionQueue]
    available: Sequence[int]
    sticky: int
    sticky_bytes: int
    def __init__(self, name: str) -> None: ...

class PartitionQueue:
    topic: TopicQueues
    index: int
    batches: deque[Any]
    expected_size: int
    lane: Any
    open: Any
    def __init__(self, topic: TopicQueues, index: int, expected_size: int) -> None: ...
    def add(self, batch: Any) -> None: ...
    def take_first(self) -> None: ...
    def remove(self, batch: Any) -> None: ...

class Delivery:
    topic: str
    partition: int
    def __init__(self, batch: Any, index: int, timestamp: int) -> None: ...
    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> Any: ...
    def exception(self, timeout: float | None = None) -> Any: ...
    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None: ...
    def mark_seen(self) -> None: ...
    def __await__(self) -> Generator[Any, None, Any]: ...

class RecordAppender:
    def bind(
        self,
        topics: dict[str, Any],
        lock: AccumulatorLock,
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

def bind_results(wait: Callable[[Any], Generator[Any, None, None]], metadata: type[Any]) -> None: ...
