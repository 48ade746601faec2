"""The records of classic groups, in the versions that Kafka 4.3 writes, and back into a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import CoordinatorRecord
from millstream.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.coordinator.group.classic.group import ClassicGroup

_VERSION: Final = 3
_UNKNOWN_MS: Final = -1


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """A generation of a group with what its members are assigned."""
    return CoordinatorRecord(
        GroupMetadataKey(group=group.group_id),
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol,
            leader=group.leader_id,
            current_state_timestamp=_UNKNOWN_MS if group.since_ms is None else group.since_ms,
            members=[
                MemberMetadata(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    rebalance_timeout=each.rebalance_timeout_ms,
                    session_timeout=each.session_timeout_ms,
                    subscription=each.metadata(group.protocol),
                    assignment=assignments.get(each.member_id, b""),
                )
                for each in group.members.values()
            ],
        ),
        _VERSION,
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """A group is deleted."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None)
