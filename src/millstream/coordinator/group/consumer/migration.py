"""A group changes its protocol while it has members: the records that make it so.

Rule 11 of section 6.9 of the facts. A classic group becomes a consumer group when the first member
of the consumer protocol joins it, and a classic group again when the last of them is gone. Either
is one batch: the tombstones of the group as it was, and the records of the group as it will be.
Functions only; `ConsumerGroups` says when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.group.classic.group import CONSUMER_PROTOCOL, ClassicGroup
from millstream.coordinator.group.classic.member import ClassicMember
from millstream.coordinator.group.classic.records import group_record as classic_record
from millstream.coordinator.group.consumer.group import ConsumerGroup
from millstream.coordinator.group.consumer.member import ClassicProtocols, Progress, Subscription
from millstream.coordinator.group.consumer.records import (
    group_record,
    member_record,
    progress_record,
    target_epoch_record,
    target_record,
)
from millstream.errors import DecodeError, GroupIdNotFound
from millstream.protocol.messages import ConsumerProtocolAssignment
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignmentTopicPartition,
)
from millstream.protocol.records_framing import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.coordinator.decision import CoordinatorRecord
    from millstream.coordinator.group.assignors.problem import Assignment
    from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
    from millstream.coordinator.group.consumer.member import ConsumerMember
    from millstream.coordinator.group.consumer.plan import GroupPlan
    from millstream.coordinator.group.ports import TopicsView
    from millstream.protocol.messages import ConsumerProtocolSubscription
    from millstream.types import Uuid

_KNOWN_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""What these add to an assignment only says again who has what; librdkafka's do so."""


def upgraded(
    group: ClassicGroup, topics: TopicsView, config: ConsumerGroupConfig
) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
    """A classic group as a consumer group, and its records; raises GroupIdNotFound if it may not.

    Its members stay, with what they were last assigned; the generation is their epoch.
    """
    group_id = group.group_id
    _require_upgradable(group, config)
    try:
        given = _assigned(group, topics)
        members = [_upgraded_member(group, each, given, topics) for each in group.members.values()]
    except DecodeError as error:
        raise GroupIdNotFound(
            f"{group_id} stays a classic group: what its members say cannot be read ({error})"
        ) from error
    found = ConsumerGroup(group_id)
    found.epoch = found.assignment_epoch = group.generation
    records: list[CoordinatorRecord] = list(group.tombstones())
    for member_id, asked, progress in members:
        found.put_subscription(member_id, asked)
        found.put_progress(member_id, progress)
        found.targets[member_id] = progress.assignment
        records.append(member_record(group_id, member_id, asked))
        records.append(target_record(group_id, member_id, progress.assignment))
        records.append(progress_record(group_id, member_id, progress))
    records.append(group_record(group_id, group.generation, 0))
    records.append(target_epoch_record(group_id, group.generation, 0))
    return found, records


def _require_upgradable(group: ClassicGroup, config: ConsumerGroupConfig) -> None:
    reason = None
    if not config.can_upgrade:
        reason = f"group.consumer.migration.policy is {config.migration_policy}"
    elif group.protocol_type != CONSUMER_PROTOCOL:
        reason = f"its members speak {group.protocol_type}"
    elif len(group.members) > config.size_max:
        reason = f"it has {len(group.members)} members"
    if reason is not None:
        raise GroupIdNotFound(f"{group.group_id} stays a classic group: {reason}")


def _assigned(group: ClassicGroup, topics: TopicsView) -> dict[str, Assignment]:
    """What the members were assigned in this generation."""
    found: dict[str, Assignment] = {}
    for member in group.members.values():
        said = decode_assignment(member.assignment) if member.assignment else None
        if said is not None and said.user_data and group.protocol not in _KNOWN_ASSIGNORS:
            raise GroupIdNotFound(
                f"{group.group_id} stays a classic group: its assignor keeps data of its own, "
                "which would be lost"
            )
        given = () if said is None else said.assigned_partitions
        found[member.member_id] = by_id(((each.topic, each.partitions) for each in given), topics)
    return found


def _upgraded_member(
    group: ClassicGroup,
    member: ClassicMember,
    assignments: Mapping[str, Assignment],
    topics: TopicsView,
) -> tuple[str, Subscription, Progress]:
    said = decode_subscription(member.metadata(group.protocol) or member.protocols[0][1])
    # What a cooperative member had when it joined, it has until it joins again.
    had = by_id(((each.topic, each.partitions) for each in said.owned_partitions), topics)
    may_have: dict[Uuid, dict[int, int]] = {}
    for topic in sorted({*had, *assignments[member.member_id]}):
        others = frozenset[int]().union(
            *(each.get(topic, ()) for name, each in assignments.items() if name != member.member_id)
        )
        own = assignments[member.member_id].get(topic, frozenset())
        partitions = own | (had.get(topic, frozenset()) - others)
        may_have[topic] = dict.fromkeys(sorted(partitions), group.generation)
    asked = subscription_of_classic(
        said,
        Subscription(member.client_id, member.client_host, member.instance_id),
        ClassicProtocols(member.session_timeout_ms, member.protocols),
        member.rebalance_timeout_ms,
    )
    progress = Progress(group.generation, group.generation, assigned=may_have)
    return member.member_id, asked, progress


def subscription_of_classic(
    said: ConsumerProtocolSubscription,
    who: Subscription,
    classic: ClassicProtocols,
    rebalance_timeout_ms: int,
) -> Subscription:
    """What a classic member asks for, as a member of a consumer group."""
    return who._replace(
        rack=said.rack_id,
        topics=tuple(sorted(set(said.topics))),
        regex=None,
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=None,
        classic=classic,
    )


def by_id(partitions: Iterable[tuple[str, Iterable[int]]], topics: TopicsView) -> Assignment:
    """Partitions by topic id; those of topics that are gone are left out."""
    found: dict[Uuid, frozenset[int]] = {}
    for name, numbers in partitions:
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found[topic_id] = found.get(topic_id, frozenset()) | frozenset(numbers)
    return found


def is_to_downgrade(plan: GroupPlan, config: ConsumerGroupConfig, size_max: int) -> bool:
    """Whether only classic members are left, and the group may be theirs again."""
    return (
        config.can_downgrade
        and 0 < len(plan.members) <= size_max
        and all(each.subscription.classic is not None for each in plan.members.values())
    )


def downgrade(plan: GroupPlan, topics: TopicsView, wall_ms: int) -> list[CoordinatorRecord]:
    """The records that make a consumer group whose members are all classic a classic group.

    The record names no leader: whoever reads it knows that a rebalance must follow.
    """
    group = ClassicGroup(plan.group.group_id, wall_ms)
    # Members that are up to date are told to join again, and not that their generation is wrong.
    group.generation = plan.group.epoch
    for member in plan.members.values():
        group.add(_downgraded_member(member), CONSUMER_PROTOCOL, None)
    group.protocol = group.select_protocol()
    group.leader_id = None
    assignments = {
        member_id: encoded_assignment(member, topics) for member_id, member in plan.members.items()
    }
    return [*plan.group.tombstones(), classic_record(group, assignments)]


def _downgraded_member(member: ConsumerMember) -> ClassicMember:
    asked = member.subscription
    assert asked.classic is not None
    return ClassicMember(
        member.member_id,
        asked.instance_id,
        asked.client_id,
        asked.client_host,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        session_timeout_ms=asked.classic.session_timeout_ms,
        protocols=asked.classic.protocols,
    )


def encoded_assignment(member: ConsumerMember, topics: TopicsView) -> bytes:
    """What a classic member may read, as its assignor would have said it, in its version."""
    classic = member.subscription.classic
    assert classic is not None
    version = int.from_bytes(classic.protocols[0][1][:2], "big", signed=True)
    newest = ConsumerProtocolAssignment.VERSIONS.highest
    return encode_assignment(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=sorted(partitions))
                for topic, partitions in sorted(member.progress.assignment.items())
                if (name := topics.topic_name(topic)) is not None
            ],
            user_data=None,
        ),
        max(0, min(version, newest)),
    )
