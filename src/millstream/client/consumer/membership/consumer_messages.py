"""What a member of a consumer group says: everything, the steady heartbeat, and goodbye."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from millstream.client.consumer.membership.settings import MembershipSettings
    from millstream.protocol.message import Message
    from millstream.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequestTopicPartitions,
    )

LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2


def full_heartbeat(
    settings: MembershipSettings,
    member_id: str,
    epoch: int,
    topics: frozenset[str],
    regex: str | None,
    owned: list[ConsumerGroupHeartbeatRequestTopicPartitions],
) -> Message:
    """Join, or say everything anew; answered with the whole assignment."""
    return ConsumerGroupHeartbeatRequest(
        group_id=settings.group_id,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=settings.group_instance_id,
        rack_id=settings.client_rack or None,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
        subscribed_topic_names=sorted(topics),
        subscribed_topic_regex=regex,
        server_assignor=settings.remote_assignor,
        topic_partitions=owned,
    )


def steady_heartbeat(
    settings: MembershipSettings,
    member_id: str,
    epoch: int,
    owned: list[ConsumerGroupHeartbeatRequestTopicPartitions],
) -> Message:
    """Stay in the group; all else is as before."""
    return ConsumerGroupHeartbeatRequest(
        group_id=settings.group_id, member_id=member_id, member_epoch=epoch, topic_partitions=owned
    )


def goodbye(settings: MembershipSettings, member_id: str, *, keeps_slot: bool) -> Message:
    """Leave; a static member may keep its slot until its session is over."""
    stays = keeps_slot and settings.group_instance_id is not None
    return ConsumerGroupHeartbeatRequest(
        group_id=settings.group_id,
        member_id=member_id,
        member_epoch=STATIC_LEAVING_EPOCH if stays else LEAVING_EPOCH,
        instance_id=settings.group_instance_id,
    )
