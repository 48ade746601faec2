from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

from millstream._accel.client_selector import SelectorCore

class AccumulatorLock:
    dispatched: dict[int, tuple[int, list[tuple[PartitionQueue, Any, int]]]]
    def __enter__(self) -> None: ...
    def __exit__(self, *failure: object) -> None: ...
    def take_alarm(self) -> bool: ...
    def attach(
        self,
        selector: SelectorCore,
        hurries: Callable[[], bool],
        *,
        linger_ms: int,
        request_size_max: int,
        max_in_flight: int,
    ) -> bool: ...
    def open_lane(
        self,
        queue: PartitionQueue,
        connection_id: int,
        version: int,
        topic: int,
        head: bytes,
        *,
        producer_id: int,
        producer_epoch: int,
        sequence: int,
    ) -> bool: ...
    def close_lane(self, queue: PartitionQueue) -> int: ...

class TopicQueues:
    name: str
    count: int
    partitions: list[PartitionQueue]
    available: Sequence[int]
    sticky: int
    sticky_bytes: int
    def __init__(self, name: str, lock: AccumulatorLock | None = None) -> None: ...

class PartitionQueue:
    topic: TopicQueues
    index: int
    batches: deque[Any]
    expected_size: int
    lane: Any
    open: Any
    is_express: bool
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
    def observe(self, callback: Callable[[Delivery], object]) -> None: ...
    def outcome(self) -> Any: ...
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

def bind_results(wait: Callable[[Any], Generator[Any]], metadata: type[Any]) -> None: ...
