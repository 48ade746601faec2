"""What a heartbeat must look like, and what it changes of what a member asks for.

Rules 1 to 3 and 9 of section 6.9 of the facts. Functions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Subscription,
)
from millstream.errors import (
    FencedMemberEpoch,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.coordinator.decision import Caller
    from millstream.coordinator.group.assignors.problem import Assignment
    from millstream.coordinator.group.consumer.group import ConsumerGroup
    from millstream.coordinator.group.consumer.member import ConsumerMember
    from millstream.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
    )

MEMBER_IDS_OF_CLIENTS_SINCE = 1
"""The version since which members choose their ids themselves."""


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]
) -> None:
    """Raise if a heartbeat makes no sense, whatever the state."""
    _refuse_blank(request)
    epoch = request.member_epoch
    if epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest(f"the member epoch is {epoch}")
    if epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidRequest("only a static member leaves for a while")
    is_id_needed = version >= MEMBER_IDS_OF_CLIENTS_SINCE or epoch != JOIN_EPOCH
    if is_id_needed and not request.member_id:
        raise InvalidRequest("the member id is empty")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"there is no assignor {request.server_assignor!r}; known are {', '.join(assignors)}"
        )


def _refuse_blank(request: ConsumerGroupHeartbeatRequest) -> None:
    for name, value in (
        ("group id", request.group_id),
        ("instance id", request.instance_id),
        ("rack", request.rack_id),
        ("assignor", request.server_assignor),
    ):
        if value is not None and not value.strip():
            raise InvalidRequest(f"the {name} is empty")


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequest("a member that joins says its rebalance timeout")
    if request.topic_partitions is None or request.topic_partitions:
        raise InvalidRequest("a member that joins owns no partitions, and says so")
    if not request.subscribed_topic_names and not request.subscribed_topic_regex:
        raise InvalidRequest("a member that joins is subscribed to topics")


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether a member says everything: then it is told everything."""
    return (
        request.rebalance_timeout_ms != -1
        and (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        and request.topic_partitions is not None
    )


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    """What a member says it has; None if that has not changed."""
    if request.topic_partitions is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in request.topic_partitions}


def updated(
    known: Subscription | None, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> Subscription:
    """What a member asks for now; what it leaves out stays."""
    base = known or Subscription(caller.client_id, caller.client_host)
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return base._replace(
        client_id=caller.client_id,
        client_host=caller.client_host,
        instance_id=base.instance_id if request.instance_id is None else request.instance_id,
        rack=base.rack if request.rack_id is None else request.rack_id,
        topics=base.topics if names is None else tuple(sorted(set(names))),
        regex=base.regex if regex is None else regex or None,
        rebalance_timeout_ms=base.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        assignor=base.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def require_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Raise unless a member is in the epoch that it says, or has just missed its last answer."""
    if epoch == member.epoch:
        return
    if epoch == member.progress.previous_epoch and epoch < member.epoch:
        assigned = member.progress.assignment
        if owned is not None and all(
            partitions <= assigned.get(topic, frozenset()) for topic, partitions in owned.items()
        ):
            return
    raise FencedMemberEpoch(f"{member.member_id} is in epoch {member.epoch}, not {epoch}")


def known_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str
) -> ConsumerMember | None:
    """The member that a heartbeat is of: None if it is new.

    The member may have another id: a static one that was away and comes back as a new process.
    """
    is_join = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        found = group.members.get(member_id)
        if found is None and not is_join:
            raise UnknownMemberId(f"{group.group_id} has no member {member_id}")
        if found is not None and not is_join:
            require_epoch(found, request.member_epoch, owned_partitions(request))
        return found
    found = group.static_member(request.instance_id)
    if is_join:
        if found is not None and found.member_id != member_id and _is_in_use(found):
            raise UnreleasedInstanceId(f"{request.instance_id} is still in use")
        return found
    found = group.identified(member_id, request.instance_id)
    require_epoch(found, request.member_epoch, owned_partitions(request))
    return found


def _is_in_use(member: ConsumerMember) -> bool:
    """Whether a static member is there; one of the classic protocol gives way to its successor."""
    return member.subscription.classic is None and member.epoch != LEAVE_STATIC_EPOCH


def leaving_member(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """The member that leaves, for good or for a while."""
    assert request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)
    return group.identified(request.member_id, request.instance_id)
