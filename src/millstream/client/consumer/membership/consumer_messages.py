"""Heartbeats of a member of a consumer group: the full one, the steady one and the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from millstream.client.consumer.config import ConsumerConfig
    from millstream.protocol.message import Message
    from millstream.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequestTopicPartitions,
    )

LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2


def full_heartbeat(
    config: ConsumerConfig,
    member_id: str,
    epoch: int,
    topics: frozenset[str],
    regex: str | None,
    owned: list[ConsumerGroupHeartbeatRequestTopicPartitions],
) -> Message:
    """Join, or say everything anew; answered with the whole assignment."""
    return ConsumerGroupHeartbeatRequest(
        group_id=config.wire_group_id,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=config.group_instance_id,
        rack_id=config.client_rack or None,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        subscribed_topic_names=sorted(topics),
        subscribed_topic_regex=regex,
        server_assignor=config.group_remote_assignor,
        topic_partitions=owned,
    )


def steady_heartbeat(
    config: ConsumerConfig,
    member_id: str,
    epoch: int,
    owned: list[ConsumerGroupHeartbeatRequestTopicPartitions],
) -> Message:
    """Stay in the group; all else is as before."""
    return ConsumerGroupHeartbeatRequest(
        group_id=config.wire_group_id,
        member_id=member_id,
        member_epoch=epoch,
        topic_partitions=owned,
    )


def leave_heartbeat(config: ConsumerConfig, member_id: str, *, keeps_slot: bool) -> Message:
    """Leave; a static member may keep its slot until its session is over."""
    stays = keeps_slot and config.group_instance_id is not None
    return ConsumerGroupHeartbeatRequest(
        group_id=config.wire_group_id,
        member_id=member_id,
        member_epoch=STATIC_LEAVING_EPOCH if stays else LEAVING_EPOCH,
        instance_id=config.group_instance_id,
    )
