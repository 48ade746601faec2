"""From one generation of a classic group to the next, and the sessions of its members.

Every step changes the group at once and gives the records to write, of which there is at most one:
a group that became empty. What members are told goes to `answers`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from millstream.coordinator.decision import CoordinatorRecord, Decision
from millstream.coordinator.group.classic.group import JOIN, SYNC
from millstream.coordinator.group.classic.records import group_record
from millstream.coordinator.group.classic.state import ClassicState
from millstream.errors import RebalanceInProgress, UnknownMemberId
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from millstream.coordinator.decision import Moment
    from millstream.coordinator.group.classic.answers import Answers
    from millstream.coordinator.group.classic.group import ClassicGroup
    from millstream.coordinator.group.classic.member import ClassicMember
    from millstream.coordinator.group.config import GroupConfig
    from millstream.coordinator.timers import TimerQueue

Records: TypeAlias = tuple[CoordinatorRecord, ...]

_IN_GENERATION = (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE)


class Rebalancer:
    """Moves the classic groups of one shard on."""

    def __init__(self, config: GroupConfig, timers: TimerQueue, answers: Answers) -> None:
        self._config = config
        self._timers = timers
        self._answers = answers

    # Sessions.

    def watch(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        now_ms: int,
        timeout_ms: int | None = None,
    ) -> None:
        """A member was heard of: it is dead if it is not for its session timeout, or another.

        A later deadline does not touch the timer, which looks at the deadline when it is due.
        """
        deadline_ms = now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        member.session_deadline_ms = deadline_ms
        due_ms = self._timers.deadline_ms(member)
        if due_ms is None or due_ms > deadline_ms:
            self._timers.set(member, deadline_ms, partial(self._end_session, group, member))

    def _end_session(
        self, group: ClassicGroup, member: ClassicMember, now: Moment
    ) -> Decision[None]:
        if group.members.get(member.member_id) is not member or member.is_excused:
            return Decision(None)
        if member.session_deadline_ms > now.now_ms:
            action = partial(self._end_session, group, member)
            self._timers.set(member, member.session_deadline_ms, action)
            return Decision(None)
        self.remove(group, member)
        if group.state in _IN_GENERATION:
            return self._answers.decision(None, self.prepare_or_complete(group, now))
        return self._answers.decision(None, self._complete_if_all_joined(group, now))

    def watch_pending(
        self, group: ClassicGroup, member_id: str, timeout_ms: int, now_ms: int
    ) -> None:
        """An id was given out: it is void if nobody joins with it in time."""
        action = partial(self._end_pending, group, member_id)
        self._timers.set((group, member_id), now_ms + timeout_ms, action)

    def _end_pending(self, group: ClassicGroup, member_id: str, now: Moment) -> Decision[None]:
        if member_id not in group.pending_ids:
            return Decision(None)
        group.remove(member_id)
        return self._answers.decision(None, self._complete_if_all_joined(group, now))

    def remove(self, group: ClassicGroup, member: ClassicMember) -> None:
        """A member is gone; whoever still speaks for it is told."""
        code = UnknownMemberId.code
        self._answers.join(group, member, JoinGroupResponse(error_code=code))
        self._answers.sync(member, SyncGroupResponse(error_code=code))
        group.remove(member.member_id)
        self._timers.cancel(member)

    def release(self, member: ClassicMember) -> None:
        """Nobody speaks with a member's id any more: its session is of no interest."""
        self._timers.cancel(member)

    def forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        """An id that was given out is used, or not needed any more."""
        group.pending_ids.discard(member_id)
        self._timers.cancel((group, member_id))

    # Joining.

    def prepare_or_complete(self, group: ClassicGroup, now: Moment) -> Records:
        """Somebody came or went: begin a rebalance, or go on with the one that is under way."""
        if group.can_rebalance:
            return self.prepare(group, now)
        return self.maybe_complete(group, now)

    def prepare(self, group: ClassicGroup, now: Moment) -> Records:
        """Begin a rebalance: everybody must join again."""
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.propagate(group, now.now_ms, RebalanceInProgress.code)
        group.pending_sync_ids.clear()
        self._timers.cancel((group, SYNC))
        is_first = group.state is ClassicState.EMPTY
        group.transition_to(ClassicState.PREPARING_REBALANCE, now.wall_ms)
        if is_first:
            delay_ms = self._config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._put_off_first(group, delay_ms, remaining_ms, now.now_ms)
            return ()
        if group.has_all_joined:
            return self.complete(group, now)
        self._end_joining_in_time(group, now.now_ms)
        return ()

    def rebalance_soon(self, group: ClassicGroup, now_ms: int) -> None:
        """Begin a rebalance with the next look at the time."""

        def begin(now: Moment) -> Decision[None]:
            if group.state is not ClassicState.STABLE:
                return Decision(None)
            return self._answers.decision(None, self.prepare(group, now))

        self._timers.set((group, JOIN), now_ms, begin)

    def maybe_complete(self, group: ClassicGroup, now: Moment) -> Records:
        """End the joining if everybody is there; the first rebalance takes its time."""
        if group.previous_state is ClassicState.EMPTY:
            return ()
        return self._complete_if_all_joined(group, now)

    def _complete_if_all_joined(self, group: ClassicGroup, now: Moment) -> Records:
        if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined:
            return self.complete(group, now)
        return ()

    def _put_off_first(
        self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now_ms: int
    ) -> None:
        group.has_new_member = False
        action = partial(self._end_first, group, delay_ms, remaining_ms)
        self._timers.set((group, JOIN), now_ms + delay_ms, action)

    def _end_first(
        self, group: ClassicGroup, delay_ms: int, remaining_ms: int, now: Moment
    ) -> Decision[None]:
        """The first rebalance ends when for a while nobody new came, or at the latest."""
        if group.state is not ClassicState.PREPARING_REBALANCE:
            return Decision(None)
        if group.has_new_member and remaining_ms:
            again_ms = min(self._config.group_initial_rebalance_delay_ms, remaining_ms)
            self._put_off_first(group, again_ms, max(remaining_ms - delay_ms, 0), now.now_ms)
            return Decision(None)
        return self._end_joining(group, now)

    def _end_joining_in_time(self, group: ClassicGroup, now_ms: int) -> None:
        deadline_ms = now_ms + group.rebalance_timeout_ms
        self._timers.set((group, JOIN), deadline_ms, partial(self._end_joining, group))

    def _end_joining(self, group: ClassicGroup, now: Moment) -> Decision[None]:
        """Once: it comes again if records before it are not committed in time."""
        if group.state is not ClassicState.PREPARING_REBALANCE:
            return Decision(None)
        return self._answers.decision(None, self.complete(group, now))

    def complete(self, group: ClassicGroup, now: Moment) -> Records:
        """The members that joined make the next generation; absent ones go, unless static."""
        self._timers.cancel((group, JOIN))
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.instance_id is None:
                self.remove(group, member)
        if not group.elect_joined_leader() and group.members:
            # Only static members, and all of them away: somebody must come to lead.
            self._end_joining_in_time(group, now.now_ms)
            return ()
        group.begin_generation(now.wall_ms)
        if not group.members:
            return (group_record(group, {}),)
        for member in group.members.values():
            self._answers.join(group, member, group.join_response(member.member_id))
            self.watch(group, member, now.now_ms)
            member.is_new = False
        group.pending_sync_ids.update(group.members)
        self._timers.set(
            (group, SYNC),
            now.now_ms + group.rebalance_timeout_ms,
            partial(self._end_syncing, group, group.generation),
        )
        return ()

    # Syncing.

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """A member has asked for its assignment."""
        group.pending_sync_ids.discard(member_id)
        if not group.pending_sync_ids:
            self._timers.cancel((group, SYNC))

    def _end_syncing(self, group: ClassicGroup, generation: int, now: Moment) -> Decision[None]:
        """Members that did not ask for their assignment are removed, and it begins again."""
        if generation != group.generation or group.state not in _IN_GENERATION:
            return Decision(None)
        if not group.pending_sync_ids:
            return Decision(None)
        for member_id in list(group.pending_sync_ids):
            self.remove(group, group.members[member_id])
        return self._answers.decision(None, self.prepare(group, now))

    def propagate(self, group: ClassicGroup, now_ms: int, error_code: int = 0) -> None:
        """Tell members that wait what they are assigned, or that there is no assignment."""
        for member in group.members.values():
            if error_code:
                member.assignment = b""
                response = SyncGroupResponse(error_code=error_code)
            else:
                response = group.sync_response(member)
            if self._answers.sync(member, response):
                self.watch(group, member, now_ms)
