"""Who leads a partition, for askers that came to the wrong broker (KIP-951).

The Produce and Fetch handlers put it into their answers, so that a client need not ask for
metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import FencedLeaderEpoch, NotLeaderOrFollower

if TYPE_CHECKING:
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.types import Uuid

STALE_LEADER_CODES: Final = frozenset({NotLeaderOrFollower.code, FencedLeaderEpoch.code})
"""The errors that tell a client that another broker leads."""


class KnownLeader(NamedTuple):
    """The leader of a partition and where it can be reached."""

    leader_id: int
    leader_epoch: int
    host: str
    port: int
    rack: str | None


def find_leader(
    metadata: KRaftMetadataCache, topic: str | Uuid, index: int, listener: str
) -> KnownLeader | None:
    """The leader as the metadata has it; None if there is none, or none that can be reached."""
    found = metadata.topic(topic) if isinstance(topic, str) else metadata.topic_by_id(topic)
    partition = None if found is None else found.partitions.get(index)
    if partition is None:
        return None
    endpoint = metadata.broker_endpoint(partition.leader, listener)
    broker = metadata.broker(partition.leader)
    if endpoint is None or broker is None:
        return None
    return KnownLeader(
        partition.leader, partition.leader_epoch, endpoint.host, endpoint.port, broker.rack
    )
