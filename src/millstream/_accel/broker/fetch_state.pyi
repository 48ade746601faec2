from typing import Any

class SessionWatcher:
    @property
    def changed(self) -> dict[Any, None]: ...

class FetchSessionState(SessionWatcher):
    epoch: int
    last_used_ms: int
    last_rank: int
    ranked_size: int
    ranked_as_established: bool
    def __init__(
        self,
        session_id: int,
        epoch: int,
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None: ...
    @property
    def id(self) -> int: ...
    @property
    def is_follower(self) -> bool: ...
    @property
    def uses_topic_ids(self) -> bool: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def partitions(self) -> dict[Any, Any]: ...

class FetchPartitionState:
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    partition: Any
    start: Any
    watcher: SessionWatcher | None
    rank: int
    sent_high_watermark: int
    sent_log_start_offset: int
    def __init__(
        self,
        topic: Any,
        index: int,
        fetch_offset: int,
        partition_max_bytes: int,
        current_leader_epoch: int = ...,
        last_fetched_epoch: int = ...,
        log_start_offset: int = ...,
    ) -> None: ...
    @property
    def topic(self) -> Any: ...
    @property
    def index(self) -> int: ...
