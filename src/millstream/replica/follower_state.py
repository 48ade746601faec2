"""What a leader knows about one follower: how far it is and when it was last at the end.

`Partition` has one per follower. A follower fetches from its own log end, so the fetch itself is
the acknowledgement: there is no other message for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from millstream.replica.isr import IsrProposal

UNKNOWN_OFFSET: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1
NEVER_CAUGHT_UP_MS: Final = -(1 << 62)


class FollowerState:
    """One follower, seen by the leader."""

    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        """Everything before it is in the follower's log."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end = 0
        """Where the leader's log ended when the follower last fetched."""
        self.last_fetch_ms = NEVER_CAUGHT_UP_MS
        self.last_caught_up_ms = NEVER_CAUGHT_UP_MS
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    def begin_epoch(self, now_ms: int, leader_end: int, *, is_in_sync: bool, is_new: bool) -> None:
        """A leader epoch begins. Members of the ISR get a full lag time to show up.

        `is_new`: this broker did not lead before, so where the follower is has to be learnt.
        """
        if is_new:
            self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
            self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_CAUGHT_UP_MS
        self.last_fetch_ms = now_ms if is_in_sync else NEVER_CAUGHT_UP_MS
        self.last_fetch_leader_end = leader_end

    def note_fetch(
        self,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        leader_end: int,
        now_ms: int,
    ) -> None:
        """It has everything before `fetch_offset`.

        One that is at the leader's end now is caught up now; one that has reached where the end was
        at its last fetch was caught up then, however fast the leader writes.
        """
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        # An unclean election elsewhere may cut this log; what the follower had to reach stays.
        self.last_fetch_leader_end = max(self.last_fetch_leader_end, leader_end)
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it counts as in sync as far as its progress goes."""
        return (
            self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )


class FollowerProgress(NamedTuple):
    """What a follower's fetch has moved."""

    is_high_watermark_raised: bool
    is_low_watermark_raised: bool
    proposal: IsrProposal | None
    """The follower may join the ISR: to be sent to the controller."""
