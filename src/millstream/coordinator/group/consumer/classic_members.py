"""Members of the classic protocol in a consumer group: they are served as if it was a classic one.

While a group moves from one protocol to the other it has members of both. A classic member joins,
syncs and sends heartbeats; its generation is its epoch, and the coordinator assigns. It is told
REBALANCE_IN_PROGRESS whenever there is a step for it to take: it takes it by joining again, where
it says what it has. Nobody waits for anybody here: what others have not let go of comes later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.decision import Decision
from millstream.coordinator.group.classic.joining import (
    MEMBER_ID_REQUIRED_SINCE,
    protocols_of,
    rebalance_timeout_of,
)
from millstream.coordinator.group.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from millstream.coordinator.group.consumer.member import (
    ClassicProtocols,
    MemberState,
    Subscription,
)
from millstream.coordinator.group.consumer.migration import (
    by_id,
    encoded_assignment,
    subscription_of_classic,
)
from millstream.coordinator.group.consumer.plan import GroupPlan
from millstream.errors import (
    ApiError,
    DecodeError,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from millstream.protocol.messages.heartbeat import HeartbeatResponse
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse
from millstream.protocol.records_framing import decode_subscription

if TYPE_CHECKING:
    from millstream.coordinator.decision import Caller, Moment
    from millstream.coordinator.group.calls import JoinAnswer, SyncAnswer
    from millstream.coordinator.group.classic.manager import ClassicGroups
    from millstream.coordinator.group.consumer.manager import ConsumerGroups
    from millstream.coordinator.group.consumer.member import ConsumerMember
    from millstream.coordinator.group.consumer.ports import SubscribableTopics
    from millstream.protocol.messages import ConsumerProtocolSubscription
    from millstream.protocol.messages.heartbeat import HeartbeatRequest
    from millstream.protocol.messages.join_group import JoinGroupRequest
    from millstream.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
    from millstream.protocol.messages.sync_group import SyncGroupRequest


class ClassicMembers:
    """The `ClassicCalls` of one shard's consumer groups."""

    def __init__(
        self, owner: ConsumerGroups, classic: ClassicGroups, topics: SubscribableTopics
    ) -> None:
        self._owner = owner
        self._classic = classic
        self._topics = topics

    # Joining.

    def join(
        self, request: JoinGroupRequest, caller: Caller, respond: JoinAnswer, now: Moment
    ) -> Decision[JoinGroupResponse | None]:
        """A member enters, or takes its next step; it never waits."""
        group = self._owner.require(request.group_id)
        if group.is_empty:
            return self._classic.replace_empty(group, request, caller, respond, now)
        member_id = request.member_id or self._owner.new_id()
        known = _known(group, request)
        self._owner.require_room(group, known)
        _require_supported(group, request)
        is_nobody = not request.member_id and request.group_instance_id is None
        if is_nobody and caller.version >= MEMBER_ID_REQUIRED_SINCE:
            return Decision(
                JoinGroupResponse(member_id=member_id, error_code=MemberIdRequired.code)
            )
        said = _said(request)
        if known is None and request.member_id and said.owned_partitions:
            # It was a member: what it had is somebody else's by now, and it must learn that.
            raise UnknownMemberId(f"{group.group_id} has no member {member_id}")
        plan = GroupPlan(group, self._topics)
        has = by_id(((each.topic, each.partitions) for each in said.owned_partitions), self._topics)
        asked = _asked(said, request, caller)
        self._owner.follow(plan, known, member_id, asked, has, now)
        member = plan.members[member_id]
        self._owner.deadlines.must_sync(group.group_id, member, now.now_ms)
        response = JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=_protocol(member),
            member_id=member_id,
        )
        return self._owner.decided(plan, response, now)

    # Following.

    def sync(
        self, request: SyncGroupRequest, respond: SyncAnswer, now: Moment
    ) -> Decision[SyncGroupResponse | None]:
        """A member wants to know what it has."""
        group = self._owner.require(request.group_id)
        member = _classic(group.identified(request.member_id, request.group_instance_id))
        _require_generation(member, request.generation_id)
        for given, expected in (
            (request.protocol_type, PROTOCOL_TYPE),
            (request.protocol_name, _protocol(member)),
        ):
            if given is not None and given != expected:
                raise InconsistentGroupProtocol(f"{member.member_id} speaks {expected}")
        is_unrevoked = member.progress.state is MemberState.UNREVOKED_PARTITIONS
        if group.epoch > member.epoch and not is_unrevoked:
            self._owner.deadlines.must_join(group.group_id, member, now.now_ms)
            raise RebalanceInProgress(f"{group.group_id} is in epoch {group.epoch}")
        self._owner.deadlines.synced(group.group_id, member.member_id)
        self._owner.deadlines.heard_of(group.group_id, member, now.now_ms)
        return Decision(
            SyncGroupResponse(
                protocol_type=PROTOCOL_TYPE,
                protocol_name=_protocol(member),
                assignment=encoded_assignment(member, self._topics),
            )
        )

    def heartbeat(self, request: HeartbeatRequest, now: Moment) -> Decision[HeartbeatResponse]:
        """A member is alive; it learns whether there is a step to take."""
        group = self._owner.require(request.group_id)
        member = _classic(group.identified(request.member_id, request.group_instance_id))
        _require_generation(member, request.generation_id)
        self._owner.deadlines.heard_of(group.group_id, member, now.now_ms)
        if not _has_step(group, member):
            return Decision(HeartbeatResponse())
        self._owner.deadlines.must_join(group.group_id, member, now.now_ms)
        return Decision(HeartbeatResponse(error_code=RebalanceInProgress.code))

    # Leaving.

    def leave(self, request: LeaveGroupRequest, now: Moment) -> Decision[LeaveGroupResponse]:
        """Members go; an operator may send static ones of either protocol away."""
        group = self._owner.require(request.group_id)
        gone: dict[str, None] = {}
        answers = []
        for identity in request.members:
            code = 0
            try:
                gone[_leaving(group, identity).member_id] = None
            except ApiError as error:
                code = error.code
            answers.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=code,
                )
            )
        return self._owner.remove(group, gone, LeaveGroupResponse(members=answers), now)


def _known(group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerMember | None:
    """Who joins: None if it is new; a static member that has no id takes the place of its like."""
    instance_id = request.group_instance_id
    if instance_id is not None:
        if request.member_id:
            return _classic(group.identified(request.member_id, instance_id))
        return group.static_member(instance_id)
    found = group.members.get(request.member_id)
    return None if found is None else _classic(found)


def _classic(member: ConsumerMember) -> ConsumerMember:
    if member.subscription.classic is None:
        raise UnknownMemberId(f"{member.member_id} is no member of the classic protocol")
    return member


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if instance_id is not None and not member_id:
        return group.identified(group.static_ids.get(instance_id, ""), instance_id)
    return _classic(group.identified(member_id, instance_id))


def _require_supported(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    if request.protocol_type != PROTOCOL_TYPE or not group.supports(
        each.name for each in request.protocols
    ):
        raise InconsistentGroupProtocol(f"not what the members of {group.group_id} speak")


def _require_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise IllegalGeneration(f"{member.member_id} is in epoch {member.epoch}, not {generation}")


def _said(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """What a member is subscribed to: it says that for each of its assignors alike."""
    try:
        return decode_subscription(request.protocols[0].metadata)
    except DecodeError as error:
        raise InconsistentGroupProtocol(
            f"{request.group_id} is a consumer group, and the subscription cannot be read: {error}"
        ) from error


def _asked(
    said: ConsumerProtocolSubscription, request: JoinGroupRequest, caller: Caller
) -> Subscription:
    return subscription_of_classic(
        said,
        Subscription(caller.client_id, caller.client_host, request.group_instance_id),
        ClassicProtocols(request.session_timeout_ms, protocols_of(request)),
        rebalance_timeout_of(request),
    )


def _protocol(member: ConsumerMember) -> str:
    """The assignor that a member is told: it is not asked to assign anything."""
    classic = member.subscription.classic
    assert classic is not None
    return classic.protocols[0][0]


def _has_step(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a member would come further if it joined again."""
    progress = member.progress
    if member.epoch < group.epoch or progress.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if progress.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    return all(
        partition in progress.assigned.get(topic, {}) or group.is_free(topic, partition)
        for topic, partitions in group.targets.get(member.member_id, {}).items()
        for partition in partitions
    )
