"""`ClassicGroups`: the calls of members, and replay and description of classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import Decision
from millstream.coordinator.group.classic.answers import Answers
from millstream.coordinator.group.classic.group import ClassicGroup
from millstream.coordinator.group.classic.joining import Joins
from millstream.coordinator.group.classic.member import ClassicMember
from millstream.coordinator.group.classic.rebalance import Rebalancer
from millstream.coordinator.group.classic.records import group_record
from millstream.coordinator.group.classic.state import ClassicState
from millstream.errors import (
    ApiError,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from millstream.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from millstream.protocol.messages.heartbeat import HeartbeatResponse
from millstream.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from random import Random

    from millstream.coordinator.decision import Caller, Moment, ProducerStamp
    from millstream.coordinator.group.calls import JoinAnswer, SyncAnswer
    from millstream.coordinator.group.classic.rebalance import Records
    from millstream.coordinator.group.config import GroupConfig
    from millstream.coordinator.group.group import Group
    from millstream.coordinator.timers import TimerQueue
    from millstream.protocol.messages.classic_group_records import (
        GroupMetadataKey,
        GroupMetadataValue,
    )
    from millstream.protocol.messages.heartbeat import HeartbeatRequest
    from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from millstream.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
    from millstream.protocol.messages.sync_group import SyncGroupRequest

NOT_FOUND_SINCE: Final = 6
"""The version of DescribeGroups that knows GROUP_ID_NOT_FOUND."""


class ClassicGroups:
    """The `ClassicCalls` of one shard's classic groups."""

    def __init__(
        self,
        config: GroupConfig,
        groups: MutableMapping[str, Group],
        timers: TimerQueue,
        random: Random,
    ) -> None:
        """`groups` are those of every kind, shared with the shard."""
        self._config = config
        self._groups = groups
        self._timers = timers
        self._answers = Answers()
        self._rebalancer = Rebalancer(config, timers, self._answers)
        self._joins = Joins(config, self._rebalancer, self._answers, random)

    @property
    def size_max(self) -> int:
        """How many members a classic group may have."""
        return self._config.group_max_size

    def create(self, group_id: str, since_ms: int | None = None) -> ClassicGroup:
        """A group without members: of offsets only, or for somebody who is about to join."""
        group = ClassicGroup(group_id, since_ms)
        self._groups[group_id] = group
        return group

    # Calls of members.

    def join(
        self, request: JoinGroupRequest, caller: Caller, respond: JoinAnswer, now: Moment
    ) -> Decision[JoinGroupResponse | None]:
        """A member enters; no response if it must wait, then `respond` gets it."""
        group = self._find(request.group_id)
        if group is not None:
            return self._joins.join(group, request, caller, respond, now)
        if request.member_id:
            raise UnknownMemberId(f"there is no group {request.group_id}")
        group = ClassicGroup(request.group_id, now.wall_ms)
        # Before the join: what is written is a group in which nobody is yet.
        record = group_record(group, {})
        decision = self._joins.join(group, request, caller, respond, now)
        self._groups[request.group_id] = group
        assert not decision.records
        return Decision(decision.response, (record,), decision.on_committed, is_replayed=False)

    def replace_empty(
        self,
        old: Group,
        request: JoinGroupRequest,
        caller: Caller,
        respond: JoinAnswer,
        now: Moment,
    ) -> Decision[JoinGroupResponse | None]:
        """A member enters a group of another kind in which nobody is: it becomes a classic one."""
        group_id = request.group_id
        del self._groups[group_id]
        try:
            decision = self.join(request, caller, respond, now)
        except ApiError:
            self._groups[group_id] = old
            raise
        new = self._groups[group_id]

        def committed(error: ApiError | None) -> None:
            if decision.on_committed is not None:
                decision.on_committed(error)
            if error is not None and self._groups.get(group_id) is new:
                new.close(self._timers, error)
                self._groups[group_id] = old

        records = (*old.tombstones(), *decision.records)
        return Decision(decision.response, records, committed, is_replayed=False)

    def sync(
        self, request: SyncGroupRequest, respond: SyncAnswer, now: Moment
    ) -> Decision[SyncGroupResponse | None]:
        """A member gives or wants the assignment; no response if it must wait."""
        group = self._group_of_members(request.group_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        _require_same(request.protocol_type, group.protocol_type)
        _require_same(request.protocol_name, group.protocol)
        if group.state is ClassicState.PREPARING_REBALANCE:
            raise RebalanceInProgress(f"{group.group_id} is rebalancing")
        self._rebalancer.synced(group, member.member_id)
        if group.state is ClassicState.STABLE:
            return self._answers.decision(group.sync_response(member))
        # Its request from before, if it waits: the client has given that up.
        self._answers.sync(member, SyncGroupResponse(error_code=RebalanceInProgress.code))
        member.awaiting_sync = respond
        if not group.is_leader(member.member_id):
            return self._answers.decision(None)
        return self._assign(group, request, now)

    def _assign(
        self, group: ClassicGroup, request: SyncGroupRequest, now: Moment
    ) -> Decision[SyncGroupResponse | None]:
        """The leader says who reads what: true when it is written."""
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        generation = group.generation

        def committed(error: ApiError | None) -> None:
            is_current = (
                group.state is ClassicState.COMPLETING_REBALANCE and group.generation == generation
            )
            if is_current and error is None:
                for member in group.members.values():
                    member.assignment = given.get(member.member_id, b"")
                group.transition_to(ClassicState.STABLE, now.wall_ms)
                self._rebalancer.propagate(group, now.now_ms)
            elif is_current and error is not None:
                self._rebalancer.propagate(group, now.now_ms, error.code)
                self._rebalancer.prepare(group, now)
            self._answers.send()

        return Decision(None, (group_record(group, given),), committed, is_replayed=False)

    def heartbeat(self, request: HeartbeatRequest, now: Moment) -> Decision[HeartbeatResponse]:
        """A member is alive; it learns whether it must join again."""
        group = self._group_of_members(request.group_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        self._rebalancer.watch(group, member, now.now_ms)
        if group.state is ClassicState.PREPARING_REBALANCE:
            return Decision(HeartbeatResponse(error_code=RebalanceInProgress.code))
        return Decision(HeartbeatResponse())

    def leave(self, request: LeaveGroupRequest, now: Moment) -> Decision[LeaveGroupResponse]:
        """Members go."""
        group = self._group_of_members(request.group_id)
        answers = [self._leave_one(group, identity) for identity in request.members]
        records: Records = ()
        if any(not each.error_code for each in answers) and group.state is not ClassicState.EMPTY:
            records = self._rebalancer.prepare_or_complete(group, now)
        return self._answers.decision(LeaveGroupResponse(members=answers), records)

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity) -> MemberResponse:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        code = 0
        try:
            if member_id in group.pending_ids:
                self._rebalancer.forget_pending(group, member_id)
            else:
                # Without its id, as an operator does it.
                found_id = member_id or group.static_ids.get(instance_id or "", "")
                self._rebalancer.remove(group, group.validate_member(found_id, instance_id))
        except ApiError as error:
            code = error.code
        return MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """State, members and assignments."""
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup) or group.state is ClassicState.DEAD:
            if version < NOT_FOUND_SINCE:
                return DescribedGroup(group_id=group_id, group_state=ClassicState.DEAD.value)
            error = GroupIdNotFound(f"there is no classic group {group_id}")
            return DescribedGroup(
                group_id=group_id,
                group_state=ClassicState.DEAD.value,
                error_code=error.code,
                error_message=str(error),
            )
        protocol = group.protocol if group.state is ClassicState.STABLE else None
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol or "",
            members=[_describe(each, protocol) for each in group.members.values()],
        )

    # Loading.

    def replay(
        self, key: GroupMetadataKey, value: GroupMetadataValue | None, stamp: ProducerStamp | None
    ) -> None:
        """A generation of a group, or its deletion, is in the log."""
        known = self._groups.get(key.group)
        if isinstance(known, ClassicGroup):
            # Only who becomes a member of a consumer group can be waiting: it stays a member.
            known.close(self._timers, RebalanceInProgress(f"{key.group} is not as it was"))
            del self._groups[key.group]
        if value is not None:
            self._groups[key.group] = _restore(key.group, value)

    def loaded(self, now_ms: int) -> None:
        """All groups are there: begin to watch their members."""
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                self._watch(group, now_ms)

    def take_over(self, group_id: str, now: Moment) -> None:
        """A group with members has become a classic one by its records, unless these failed."""
        group = self._find(group_id)
        if group is not None:
            self._watch(group, now.now_ms)

    def _watch(self, group: ClassicGroup, now_ms: int) -> None:
        for member in group.members.values():
            self._rebalancer.watch(group, member, now_ms)
        # Too many: everybody may commit before some are told so. Nobody leads: it was a consumer
        # group, and what its last member of that protocol had is nobody's.
        if len(group.members) > self.size_max or group.is_without_leader:
            self._rebalancer.rebalance_soon(group, now_ms)

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _group_of_members(self, group_id: str) -> ClassicGroup:
        group = self._find(group_id)
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id}")
        if group.state is ClassicState.DEAD:
            raise CoordinatorNotAvailable(f"{group_id} is gone")
        return group


def _require_same(given: str | None, expected: str | None) -> None:
    if given is not None and expected is not None and given != expected:
        raise InconsistentGroupProtocol(f"the group speaks {expected}, not {given}")


def _describe(member: ClassicMember, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )


def _restore(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group of a record: what it does not say has not happened."""
    since_ms = value.current_state_timestamp
    group = ClassicGroup(group_id, None if since_ms < 0 else since_ms)
    group.generation = value.generation
    group.protocol = value.protocol
    group.leader_id = value.leader
    for each in value.members:
        timeout_ms = each.rebalance_timeout
        member = ClassicMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            rebalance_timeout_ms=each.session_timeout if timeout_ms < 0 else timeout_ms,
            session_timeout_ms=each.session_timeout,
            protocols=((value.protocol or "", bytes(each.subscription)),),
            assignment=bytes(each.assignment),
        )
        group.add(member, value.protocol_type, None)
    if group.members:
        group.state = ClassicState.STABLE
        group.is_without_leader = value.leader is None
    group.protocol_type = value.protocol_type or None
    group.find_topics()
    return group
