"""A classic group in a test's hands: its coordinator's answers."""

from __future__ import annotations

from millstream.client.consumer.membership.assignors import resolve
from millstream.client.consumer.membership.classic import ClassicMember
from millstream.protocol.messages import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupResponse,
)
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from millstream.protocol.messages.join_group import JoinGroupResponseMember
from millstream.protocol.records_framing import (
    encode_assignment,
)
from tests.unit.client.consumer.membership.group_world import (
    World,
    partitions,
    settings,
    to,
)

STICKY = resolve(["cooperative-sticky"])


def member(world: World, **changes: object) -> ClassicMember:
    return ClassicMember(
        settings(**changes), world.link, world.handover, world.view, world.host, world.random
    )


def assignment(text: str) -> bytes:
    found: dict[str, list[int]] = {}
    for each in sorted(partitions(text)):
        found.setdefault(each.topic, []).append(each.partition)
    return encode_assignment(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
                for topic, indexes in found.items()
            ]
        ),
        3,
    )


def let_in(
    world: World, generation: int = 1, *, me: str = "m", leader: str = "other", name: str = "range"
) -> None:
    """Answer JoinGroup: we are in."""
    world.link.answer(
        JoinGroupResponse(generation_id=generation, protocol_name=name, leader=leader, member_id=me)
    )


def let_lead(
    world: World, generation: int = 1, *, name: str = "range", skips: bool = False
) -> None:
    """Answer JoinGroup: we lead, and are alone."""
    asked = world.link.request(JoinGroupRequest)
    (chosen,) = (each for each in asked.protocols if each.name == name)
    world.link.answer(
        JoinGroupResponse(
            generation_id=generation,
            protocol_name=name,
            leader="m",
            member_id="m",
            skip_assignment=skips,
            members=[JoinGroupResponseMember(member_id="m", metadata=chosen.metadata)],
        )
    )


def give(world: World, text: str) -> None:
    """Answer SyncGroup."""
    world.link.answer(SyncGroupResponse(assignment=assignment(text)))


def joined(world: World, owned: str = "t-0 t-1", **changes: object) -> ClassicMember:
    """A member in generation 1."""
    found = member(world, **changes)
    found.subscribe(to("t"), 0)
    found.poll(0)
    cooperative = "assignors" in changes
    let_in(world, name="cooperative-sticky" if cooperative else "range")
    give(world, owned)
    world.acknowledge()
    return found


def beat(world: World, code: int = 0) -> None:
    """The answer to a heartbeat of the periodic request."""
    world.link.order.on_response(HeartbeatResponse(error_code=code), 5_000)
