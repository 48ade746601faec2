"""The fields of fetch sessions and of the partitions in them, which compiled code works on too.

`FetchSession` and `FetchPartition` add the rules. Where the kernel was built the fields are typed
fields of the compiled classes in `_accel.broker.fetch_state`, so that `FastFetch` reads and sets
them without Python; the classes here have the same fields and run where it was not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream import _accel

if TYPE_CHECKING:
    from millstream.replica.fetch_partition import FetchPartition
    from millstream.replica.partition import Partition
    from millstream.storage.log.log_results import OffsetMetadata
    from millstream.types import Uuid

UNKNOWN: Final = -1
"""An offset, an epoch or a broker that is not known or not given."""


class SessionWatcher:
    """Is told of partitions that change: a session, or a fetch without one while it waits."""

    __slots__ = ("changed",)

    def __init__(self) -> None:
        self.changed: dict[FetchPartition, None] = {}
        """The partitions that may have something to say."""


class FetchSessionState(SessionWatcher):
    """What a session knows besides what has changed."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "is_follower",
        "last_rank",
        "last_used_ms",
        "partitions",
        "ranked_as_established",
        "ranked_size",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        epoch: int,
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        super().__init__()
        self.id = session_id
        self.epoch = epoch
        """What the next request must say."""
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.last_rank = 0
        """The rank that was given last."""
        self.ranked_size = 0
        """What the cache went by when it last decided which session has to go first: the number
        of partitions, and whether the session was old enough."""
        self.ranked_as_established = False
        self.partitions: dict[tuple[str | Uuid, int], FetchPartition] = {}


class FetchPartitionState:
    """What a fetch asks of one partition, and what a session has told of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "rank",
        "sent_high_watermark",
        "sent_log_start_offset",
        "start",
        "topic",
        "watcher",
    )

    def __init__(
        self,
        topic: str | Uuid,
        index: int,
        fetch_offset: int,
        partition_max_bytes: int,
        current_leader_epoch: int = UNKNOWN,
        last_fetched_epoch: int = UNKNOWN,
        log_start_offset: int = UNKNOWN,
    ) -> None:
        """`topic` is a name up to version 12 of Fetch, an id from 13 on."""
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.partition_max_bytes = partition_max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        """Where the log of a follower begins."""
        self.partition: Partition | None = None
        """Found at the first read, and kept as long as this broker has it."""
        self.start: OffsetMetadata | None = None
        """Where the fetch offset is in the files, if it was found."""
        self.watcher: SessionWatcher | None = None
        """The session or the waiting fetch that is told of changes."""
        self.rank = 0
        """The place in the order of a session; a partition that gave records goes to the end."""
        self.sent_high_watermark = UNKNOWN
        self.sent_log_start_offset = UNKNOWN


PLAIN: Final = (SessionWatcher, FetchSessionState, FetchPartitionState)
"""The plain versions, whichever run."""
if not TYPE_CHECKING and _accel.find("broker.fetch_state"):
    from millstream._accel.broker.fetch_state import (
        FetchPartitionState,
        FetchSessionState,
        SessionWatcher,
    )
