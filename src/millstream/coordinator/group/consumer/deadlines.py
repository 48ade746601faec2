"""By when members of consumer groups must be heard of, let go, join again or fetch what they got.

`ConsumerGroups` and `ClassicMembers` set these; who misses one is fenced. A deadline looks again at
the group when it comes, since the decision that set it may not have been written.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from millstream.coordinator.group.consumer.group import DEADLINES, JOIN, REBALANCE, SESSION, SYNC
from millstream.coordinator.group.consumer.member import MemberState

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.decision import Decision, Moment
    from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
    from millstream.coordinator.group.consumer.member import ConsumerMember, Progress
    from millstream.coordinator.group.consumer.ports import SubscribableTopics
    from millstream.coordinator.timers import TimerQueue

_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
_HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


class Fence(Protocol):
    """Removes a member that is still there and of whom a condition still holds."""

    def __call__(
        self, group_id: str, member_id: str, now: Moment, is_due: Callable[[ConsumerMember], bool]
    ) -> Decision[None]: ...


class Deadlines:
    """The timers of the members of one shard's consumer groups."""

    def __init__(
        self,
        config: ConsumerGroupConfig,
        timers: TimerQueue,
        topics: SubscribableTopics,
        fence: Fence,
    ) -> None:
        self._config = config
        self._timers = timers
        self._topics = topics
        self._fence = fence

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members of a group are to be heard of."""
        return self._own(group_id, _HEARTBEAT_INTERVAL, self._config.heartbeat_interval_ms)

    def heard_of(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """A member is alive: its session begins anew."""
        classic = member.subscription.classic
        timeout_ms = (
            self._own(group_id, _SESSION_TIMEOUT, self._config.session_timeout_ms)
            if classic is None
            else classic.session_timeout_ms
        )
        action = partial(self._fence, group_id, member.member_id, is_due=lambda _: True)
        self._timers.set(
            (group_id, member.member_id, SESSION),
            now_ms + timeout_ms,
            lambda now: action(now=now),
        )

    def must_let_go(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """A member has to give partitions back, or has done so.

        Once for each time that it must, however often it is heard of meanwhile.
        """
        key = (group_id, member.member_id, REBALANCE)
        if member.progress.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.cancel(key)
            return
        epoch = member.epoch
        action = partial(
            self._fence,
            group_id,
            member.member_id,
            is_due=lambda each: _is_unrevoked_in(each.progress, epoch),
        )
        timeout_ms = member.subscription.rebalance_timeout_ms
        self._timers.set_if_absent(key, now_ms + timeout_ms, lambda now: action(now=now))

    def must_join(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """A classic member is told to join again."""
        key = (group_id, member.member_id, JOIN)
        self._timers.set_if_absent(key, *self._of_classic(group_id, member, now_ms))

    def must_sync(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """A classic member has joined, and is to ask for its assignment."""
        self._timers.cancel((group_id, member.member_id, JOIN))
        key = (group_id, member.member_id, SYNC)
        self._timers.set(key, *self._of_classic(group_id, member, now_ms))

    def synced(self, group_id: str, member_id: str) -> None:
        """A classic member has asked for its assignment."""
        self._timers.cancel((group_id, member_id, SYNC))

    def _of_classic(
        self, group_id: str, member: ConsumerMember, now_ms: int
    ) -> tuple[int, Callable[[Moment], Decision[None]]]:
        action = partial(
            self._fence,
            group_id,
            member.member_id,
            is_due=lambda each: each.subscription.classic is not None,
        )
        deadline_ms = now_ms + member.subscription.rebalance_timeout_ms
        return deadline_ms, lambda now: action(now=now)

    def forget(self, group_id: str, member_id: str) -> None:
        """A member is gone."""
        for name in DEADLINES:
            self._timers.cancel((group_id, member_id, name))

    def _own(self, group_id: str, name: str, default: int) -> int:
        text = self._topics.group_config(group_id).get(name)
        return default if text is None else int(text)


def _is_unrevoked_in(progress: Progress, epoch: int) -> bool:
    return progress.epoch == epoch and progress.state is MemberState.UNREVOKED_PARTITIONS
