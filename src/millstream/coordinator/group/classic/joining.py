"""JoinGroup: who enters a classic group, and what that means for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from millstream.coordinator.decision import Decision
from millstream.coordinator.group.classic.member import ClassicMember
from millstream.coordinator.group.classic.records import group_record
from millstream.coordinator.group.classic.state import ClassicState
from millstream.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidRequest,
    MemberIdRequired,
    RebalanceInProgress,
)
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from random import Random

    from millstream.coordinator.decision import Caller, Moment
    from millstream.coordinator.group.calls import JoinAnswer
    from millstream.coordinator.group.classic.answers import Answers
    from millstream.coordinator.group.classic.group import ClassicGroup
    from millstream.coordinator.group.classic.member import Protocols
    from millstream.coordinator.group.classic.rebalance import Rebalancer
    from millstream.coordinator.group.config import GroupConfig
    from millstream.errors import ApiError
    from millstream.protocol.messages.join_group import JoinGroupRequest

    Joined: TypeAlias = Decision[JoinGroupResponse | None]

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60_000
"""How long a new member may wait for its first generation before it is taken for dead."""
MEMBER_ID_REQUIRED_SINCE: Final = 4
_UUID_FREE_BITS: Final = ~((0xF << 76) | (0x3 << 62))
_UUID_VERSION_4: Final = (0x4 << 76) | (0x2 << 62)
"""Random, and laid out as RFC 4122 says."""
SKIP_ASSIGNMENT_SINCE: Final = 9


class Joins:
    """Lets members into the classic groups of one shard."""

    def __init__(
        self, config: GroupConfig, rebalancer: Rebalancer, answers: Answers, random: Random
    ) -> None:
        self._config = config
        self._rebalancer = rebalancer
        self._answers = answers
        self._random = random

    def join(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        respond: JoinAnswer,
        now: Moment,
    ) -> Joined:
        """Let a member in, refuse it, or tell it the generation that it is in already."""
        if group.state is ClassicState.DEAD:
            raise CoordinatorNotAvailable(f"{group.group_id} is gone")
        if not self._has_room(group, request.member_id):
            return self._refuse_as_too_many(group, request.member_id, now)
        if not group.supports(request.protocol_type, [each.name for each in request.protocols]):
            raise InconsistentGroupProtocol(f"not what the members of {group.group_id} speak")
        if request.member_id:
            return self._join_known(group, request, caller, respond, now)
        if request.group_instance_id is not None:
            return self._join_static(group, request, caller, respond, now)
        member_id = f"{caller.client_id}-{self._random_uuid()}"
        if caller.version < MEMBER_ID_REQUIRED_SINCE:
            return self._add(group, request, caller, member_id, respond, now)
        group.pending_ids.add(member_id)
        self._rebalancer.watch_pending(group, member_id, request.session_timeout_ms, now.now_ms)
        return self._answers.decision(
            JoinGroupResponse(member_id=member_id, error_code=MemberIdRequired.code)
        )

    # How many.

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        known = group.members.get(member_id)
        limit = self._config.group_max_size
        if group.state is ClassicState.EMPTY:
            return True
        if group.state is ClassicState.PREPARING_REBALANCE:
            is_parked = known is not None and known.awaiting_join is not None
            return is_parked or group.awaiting_count < limit
        return known is not None or len(group.members) < limit

    def _refuse_as_too_many(self, group: ClassicGroup, member_id: str, now: Moment) -> Joined:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalancer.remove(group, member)
        self._rebalancer.forget_pending(group, member_id)
        records = self._rebalancer.maybe_complete(group, now)
        refusal = JoinGroupResponse(error_code=GroupMaxSizeReached.code)
        return self._answers.decision(refusal, records)

    # Who is new.

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        member_id: str,
        respond: JoinAnswer,
        now: Moment,
    ) -> Joined:
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            rebalance_timeout_ms=rebalance_timeout_of(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols_of(request),
        )
        member.is_new = True
        self._rebalancer.forget_pending(group, member_id)
        is_first_rebalance = group.previous_state is ClassicState.EMPTY
        if group.state is ClassicState.PREPARING_REBALANCE and is_first_rebalance:
            group.has_new_member = True
        group.add(member, request.protocol_type, respond)
        self._rebalancer.watch(group, member, now.now_ms, NEW_MEMBER_TIMEOUT_MS)
        records = self._rebalancer.prepare_or_complete(group, now)
        return self._answers.decision(None, records)

    def _join_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        respond: JoinAnswer,
        now: Moment,
    ) -> Joined:
        """A static member that has no id: a new one, or one that was away."""
        member_id = f"{request.group_instance_id}-{self._random_uuid()}"
        old_id = group.static_ids.get(request.group_instance_id or "")
        if old_id is None:
            return self._add(group, request, caller, member_id, respond, now)
        leader_before = group.leader_id
        old = group.members[old_id]
        member = self._take_place(group, old, member_id, now)
        self._update(group, member, request)
        is_same = group.state is ClassicState.STABLE and group.select_protocol() == group.protocol
        if not is_same:
            group.park(member, respond)
            records = self._rebalancer.prepare_or_complete(group, now)
            return self._answers.decision(None, records)
        return self._return_quietly(group, old, member, caller.version, leader_before, now)

    def _take_place(
        self, group: ClassicGroup, old: ClassicMember, member_id: str, now: Moment
    ) -> ClassicMember:
        """Whoever still speaks with the old id is fenced."""
        code = FencedInstanceId.code
        fenced = JoinGroupResponse(member_id=old.member_id, error_code=code)
        self._answers.join(group, old, fenced)
        self._answers.sync(old, SyncGroupResponse(error_code=code))
        self._rebalancer.release(old)
        member = group.replace_static(old, member_id)
        self._rebalancer.watch(group, member, now.now_ms)
        return member

    def _return_quietly(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        member: ClassicMember,
        version: int,
        leader_before: str | None,
        now: Moment,
    ) -> Joined:
        """A static member is there again and nothing else changes: no rebalance.

        A leader of a new client learns the members, and that it need not assign anew; one of an old
        client must not take itself for the leader.
        """
        member_id = member.member_id
        if version >= SKIP_ASSIGNMENT_SINCE:
            is_leader = group.is_leader(member_id)
            response = group.join_response(member_id, skips_assignment=is_leader)
        else:
            response = group.join_response(member_id, has_members=False)
            response.leader = leader_before or ""
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        decision = self._answers.decision(response, (group_record(group, assignments),))

        def committed(error: ApiError | None) -> None:
            if error is not None and group.members.get(member_id) is member:
                self._rebalancer.release(member)
                again = group.replace_static(member, old.member_id)
                group.update(again, old.protocols, old.session_timeout_ms, old.rebalance_timeout_ms)
                self._rebalancer.watch(group, again, now.now_ms)
            if decision.on_committed is not None:
                decision.on_committed(error)

        return Decision(response, decision.records, committed, is_replayed=False)

    # Who is known.

    def _join_known(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        respond: JoinAnswer,
        now: Moment,
    ) -> Joined:
        member_id = request.member_id
        if member_id in group.pending_ids:
            if request.group_instance_id is not None:
                raise InvalidRequest("the member id was given to a dynamic member")
            return self._add(group, request, caller, member_id, respond, now)
        member = group.validate_member(member_id, request.group_instance_id)
        is_same = member.protocols == protocols_of(request)
        if group.state is ClassicState.STABLE:
            is_same = is_same and not group.is_leader(member_id)
        elif group.state is ClassicState.PREPARING_REBALANCE:
            is_same = False
        if is_same:
            return self._answers.decision(group.join_response(member_id))
        self._update(group, member, request)
        # Its request from before, if it waits: the client has given that up.
        given_up = JoinGroupResponse(member_id=member_id, error_code=RebalanceInProgress.code)
        self._answers.join(group, member, given_up)
        group.park(member, respond)
        records = self._rebalancer.prepare_or_complete(group, now)
        return self._answers.decision(None, records)

    def _update(
        self, group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest
    ) -> None:
        group.update(
            member,
            protocols_of(request),
            request.session_timeout_ms,
            rebalance_timeout_of(request),
        )

    def _random_uuid(self) -> str:
        """As Java's UUID.randomUUID; Python's own class takes three times as long."""
        drawn = self._random.getrandbits(128) & _UUID_FREE_BITS | _UUID_VERSION_4
        text = f"{drawn:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def protocols_of(request: JoinGroupRequest) -> Protocols:
    """What a member supports, the preferred first."""
    return tuple((each.name, bytes(each.metadata)) for each in request.protocols)


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    """How long a member may take; version 0 has only one timeout."""
    timeout_ms = request.rebalance_timeout_ms
    return request.session_timeout_ms if timeout_ms < 0 else timeout_ms
