from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from millstream._accel.client.client_selector import SelectorCore
from millstream._accel.client.delivery import BatchOutcome
from millstream.types import ReadableBuffer

class AccumulatorLock:
    dispatched: deque[tuple[int, int, list[tuple[PartitionQueue, Any, int]]]]
    def __enter__(self) -> None: ...
    def __exit__(self, *failure: object) -> None: ...
    def send_here(self, queue: PartitionQueue | None = None, batch: object = None) -> None: ...
    def hasten(self, queue: PartitionQueue, batch: BatchOutcome) -> None: ...
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

def read_produced(frame: ReadableBuffer, version: int) -> list[tuple[int, int, int]] | None: ...
def is_lent(writer: Any) -> bool: ...
