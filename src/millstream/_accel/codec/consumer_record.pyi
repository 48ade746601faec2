from typing import Generic, final

from millstream.types import Headers, K, V

@final
class ConsumerRecord(Generic[K, V]):
    __match_args__ = (
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
        "timestamp_type",
        "leader_epoch",
    )
    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: K | None,
        value: V | None,
        headers: Headers = (),
        timestamp_type: int = 0,
        leader_epoch: int = -1,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> K | None: ...
    @property
    def value(self) -> V | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
