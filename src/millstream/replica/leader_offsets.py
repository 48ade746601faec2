"""What a follower asks when its end is out of the leader's range: where the log ends and begins.

`ReplicaFetcher` sends it in the place of a fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.network.client.broker_link import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.replica.followed_partition import FollowState
from millstream.storage.log.log_results import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.replica.followed_partition import FollowedPartition
    from millstream.types import TopicPartition


def ask_offsets(
    broker_id: int, asking: Mapping[TopicPartition, FollowedPartition]
) -> VersionedRequest:
    """The end or the beginning of each, by what it waits for; as a replica sees them."""
    topics: dict[str, ListOffsetsTopic] = {}
    for name, followed in asking.items():
        topic = topics.setdefault(name.topic, ListOffsetsTopic(name=name.topic))
        asks_end = followed.state is FollowState.ASKING_END
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=name.partition,
                current_leader_epoch=followed.leader_epoch,
                timestamp=LATEST_TIMESTAMP if asks_end else EARLIEST_TIMESTAMP,
            )
        )
    request = ListOffsetsRequest(replica_id=broker_id, topics=list(topics.values()))
    return VersionedRequest(ApiKey.LIST_OFFSETS, lambda version: request)
