"""What a partition is to its clients, and the one place that moves a leader's high watermark.

`Partition` inherits from it. Where the kernel was built the base is the one of
`_accel.broker.partition_state`, with typed fields that the fast path reads; otherwise it is the
plain one here. The full path and the fast path both end here when the log has grown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream import _accel

if TYPE_CHECKING:
    from millstream.replica.change_notifier import ChangeNotifier
    from millstream.replica.fetch_partition import FetchPartition
    from millstream.replica.follower_state import FollowerState
    from millstream.storage.log.log_tail import LogTail

__all__ = ["PartitionState"]


class PartitionState:
    """The role of a replica, and what of its log is committed."""

    __slots__ = (
        "_followers",
        "has_acks",
        "is_internal",
        "is_leader",
        "is_under_min_isr",
        "leader_epoch",
        "notifier",
        "tail",
        "waiting",
        "waits_for_disk",
        "watchers",
    )

    def __init__(self, tail: LogTail) -> None:
        self.tail = tail
        self.is_internal = False
        """Whether only the broker itself writes to it."""
        self.is_leader = False
        self.leader_epoch = -1
        self.is_under_min_isr = False
        """Whether too few replicas are in sync for `acks=all`."""
        self.waits_for_disk = False
        """Whether a record counts as written only when it is on disk."""
        self.has_acks = False
        """Whether answers wait for the high watermark or for the disk."""
        self._followers: dict[int, FollowerState] = {}
        self.watchers: dict[FetchPartition, None] = {}
        """Fetches and fetch sessions to be told of every change."""
        self.waiting: dict[Any, Any] = {}
        """The operations that wait in the purgatory, by what they wait for."""
        self.notifier: ChangeNotifier | None = None
        """Who tells all of these."""

    def advance_high_watermark(self, now_ms: int) -> bool:
        """Move it as far as the rule of replicas allows; whether it has risen."""
        is_raised = self._advance(now_ms)
        if is_raised:
            self.changed()
        return is_raised

    def on_append(self, now_ms: int) -> None:
        """The log has grown: commit what may be committed, and tell everybody who waits."""
        self._advance(now_ms)
        self.changed()

    def changed(self) -> None:
        """Something that others wait for has changed: records, offsets, the leader, a fault."""
        if self.notifier is not None and (self.watchers or self.has_acks or self in self.waiting):
            self.notifier.changed(self)  # type: ignore[arg-type]  # every one is a Partition

    def least_end_offset(self, offset: int, now_ms: int) -> int:
        """The least of an offset and the log ends of the followers that count."""
        raise NotImplementedError

    def _advance(self, now_ms: int) -> bool:
        """The rule: what this replica has, or has on disk; with followers, what all have."""
        if not self.is_leader or self.is_under_min_isr:
            return False
        offset = self.tail.recovery_point if self.waits_for_disk else self.tail.log_end_offset
        if self._followers:
            offset = self.least_end_offset(offset, now_ms)
        return self.tail.raise_high_watermark(offset)


if not TYPE_CHECKING and _accel.find("broker.partition_state"):
    from millstream._accel.broker.partition_state import PartitionState
