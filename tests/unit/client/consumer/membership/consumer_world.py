"""A consumer group in a test's hands: its coordinator's answers."""

from __future__ import annotations

from millstream.client.consumer.membership.consumer_protocol import ConsumerMember
from millstream.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from tests.unit.client.consumer.membership.group_world import (
    World,
    partitions,
    settings,
    to,
    topic_id,
)


def member(world: World, **changes: object) -> ConsumerMember:
    return ConsumerMember(
        settings(**changes), world.link, world.handover, world.view, world.host, world.random
    )


def response(
    epoch: int, assigned: str | None = None, code: int = 0
) -> ConsumerGroupHeartbeatResponse:
    found: dict[str, list[int]] = {}
    for each in sorted(partitions(assigned or "")):
        found.setdefault(each.topic, []).append(each.partition)
    topics = [
        ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id(name), partitions=indexes)
        for name, indexes in found.items()
    ]
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        member_id="m",
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=None if assigned is None else Assignment(topic_partitions=topics),
    )


def owned(request: object) -> str:
    """What a heartbeat says that we have."""
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    ids = {topic_id(name): name for name in "tu"}
    return " ".join(
        f"{ids[topic.topic_id]}-{index}"
        for topic in request.topic_partitions or []
        for index in topic.partitions
    )


def asked(world: World, version: int | None = None) -> ConsumerGroupHeartbeatRequest:
    return world.link.request(ConsumerGroupHeartbeatRequest, version)


def joined(world: World, assigned: str = "t-0 t-1", **changes: object) -> ConsumerMember:
    """A stable member at epoch 1 that has told what it owns."""
    found = member(world, **changes)
    found.subscribe(to("t"), 0)
    found.poll(0)
    world.link.answer(response(1, assigned))
    if assigned:
        world.acknowledge()
        found.poll(0)
        world.link.answer(response(1, assigned))
    return found


def beat(world: World, epoch: int, assigned: str | None = None, code: int = 0) -> None:
    """The answer to a heartbeat of the periodic request."""
    world.link.order.on_response(response(epoch, assigned, code), 5_000)
