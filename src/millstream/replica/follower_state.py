"""What a leader knows about one follower: how far it is and when it was last at the end.

`Partition` has one per follower. A follower fetches from its own log end, so the fetch itself is
the acknowledgement: there is no other message for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from millstream.replica.fetch_session import FetchSession
    from millstream.replica.isr import IsrProposal

UNKNOWN_OFFSET: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1
NEVER_CAUGHT_UP_MS: Final = -(1 << 62)


class FollowerState:
    """One follower, seen by the leader."""

    __slots__ = (
        "_caught_up_ms",
        "_fetch_ms",
        "_quiet_in",
        "broker_epoch",
        "last_fetch_leader_end",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = UNKNOWN_OFFSET
        """Everything before it is in the follower's log."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end = 0
        """Where the leader's log ended when the follower last fetched."""
        self._fetch_ms = NEVER_CAUGHT_UP_MS
        self._caught_up_ms = NEVER_CAUGHT_UP_MS
        self._quiet_in: FetchSession | None = None
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    @property
    def last_caught_up_ms(self) -> int:
        """When it was last at the leader's end."""
        if self._quiet_in is None:
            return self._caught_up_ms
        return max(self._caught_up_ms, self._quiet_in.fetched_ms)

    @property
    def last_fetch_ms(self) -> int:
        """When it last fetched."""
        return self._fetch_ms if self._quiet_in is None else self._quiet_in.fetched_ms

    def be_quiet_in(self, session: FetchSession) -> None:
        """It is at the end, and every fetch of its session that does not name it says so again.

        So a thousand partitions without news need not be looked at one by one.
        """
        self._quiet_in = session

    def settle(self) -> None:
        """Note what the fetches of its session have said meanwhile; the next says more."""
        if self._quiet_in is not None:
            self._caught_up_ms, self._fetch_ms = self.last_caught_up_ms, self.last_fetch_ms
            self._quiet_in = None

    def begin_epoch(self, now_ms: int, leader_end: int, *, is_in_sync: bool, is_new: bool) -> None:
        """A leader epoch begins. Members of the ISR get a full lag time to show up.

        `is_new`: this broker did not lead before, so where the follower is has to be learnt.
        """
        self._quiet_in = None
        if is_new:
            self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
            self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self._caught_up_ms = now_ms if is_in_sync else NEVER_CAUGHT_UP_MS
        self._fetch_ms = now_ms if is_in_sync else NEVER_CAUGHT_UP_MS
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
        self.settle()
        if fetch_offset >= leader_end:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end:
            self._caught_up_ms = max(self._caught_up_ms, self._fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        # An unclean election elsewhere may cut this log; what the follower had to reach stays.
        self.last_fetch_leader_end = max(self.last_fetch_leader_end, leader_end)
        self._fetch_ms = max(self._fetch_ms, now_ms)

    def is_caught_up(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        """Whether it counts as in sync as far as its progress goes."""
        return (
            self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )


class FollowerProgress(NamedTuple):
    """What a follower's fetch has moved."""

    is_high_watermark_raised: bool
    is_low_watermark_raised: bool
    is_quiet: bool
    """It is at the end and in sync: there is nothing to see here before something changes."""
    proposal: IsrProposal | None
    """The follower may join the ISR: to be sent to the controller."""
