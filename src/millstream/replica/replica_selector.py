"""Which replica a consumer should read from: `replica.selector.class`.

The fetch path asks, for leaders only, and tells the consumer to go there. A selector sees the
replicas that have what the consumer wants; it never sees a log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.replica.partition import Partition
    from millstream.replica.ports import BrokerView


class ReplicaView(NamedTuple):
    """A replica that has an offset, as a selector sees it."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    caught_up_ms: int
    """When it was last at the leader's end, on the leader's monotonic clock."""
    is_leader: bool


class ReplicaSelector(Protocol):
    """Chooses among replicas."""

    def select(self, rack_id: str, replicas: Sequence[ReplicaView]) -> int | None:
        """The broker to read from; None is the leader. The leader is always among them."""
        ...


class RackAwareReplicaSelector:
    """A replica in the consumer's own rack, the most caught up of them; otherwise the leader."""

    __slots__ = ()

    def select(self, rack_id: str, replicas: Sequence[ReplicaView]) -> int | None:
        """The leader wins if it is in the rack itself."""
        near = [each for each in replicas if each.rack == rack_id]
        if not near or any(each.is_leader for each in near):
            return None
        return max(near, key=lambda each: (each.log_end_offset, each.caught_up_ms)).broker_id


RACK_AWARE: Final = "RackAwareReplicaSelector"


def make_selector(name: str | None) -> ReplicaSelector | None:
    """The selector that a setting names; None is the leader."""
    return RackAwareReplicaSelector() if name else None


def replicas_with(
    partition: Partition, offset: int, brokers: BrokerView, now_ms: int
) -> list[ReplicaView]:
    """The leader, and the in-sync replicas that have an offset."""
    leader = partition.leader_id
    log = partition.log
    found = [ReplicaView(leader, brokers.rack_of(leader), log.log_end_offset, now_ms, True)]
    for broker_id, state in partition.followers.items():
        has_offset = state.log_start_offset <= offset <= state.log_end_offset
        if broker_id in partition.isr and has_offset and brokers.is_alive(broker_id):
            found.append(
                ReplicaView(
                    broker_id,
                    brokers.rack_of(broker_id),
                    state.log_end_offset,
                    state.last_caught_up_ms,
                    False,
                )
            )
    return found
