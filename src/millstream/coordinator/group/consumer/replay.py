"""From the records of consumer groups to the groups: `ConsumerReplay`. It decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.coordinator.group.consumer.group import ConsumerGroup
from millstream.coordinator.group.consumer.records import progress_of, subscription_of, target_of
from millstream.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from millstream.coordinator.group.group import Group
    from millstream.protocol.message import Message


class ConsumerReplay:
    """Makes the records of consumer groups true."""

    def __init__(
        self, groups: MutableMapping[str, Group], forget: Callable[[str, str], None]
    ) -> None:
        """`forget` lets go of the deadlines of a member: of a group, by its id."""
        self._groups = groups
        self._forget = forget

    @property
    def by_key(self) -> dict[type[Message], Callable[[Any, Any, object], None]]:
        """By the type of a record's key: who makes it true."""
        return {
            ConsumerGroupMetadataKey: self._replay_group,
            ConsumerGroupPartitionMetadataKey: lambda key, value, _: None,
            ConsumerGroupMemberMetadataKey: self._replay_member,
            ConsumerGroupTargetAssignmentMetadataKey: self._replay_target_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._replay_target,
            ConsumerGroupCurrentMemberAssignmentKey: self._replay_progress,
            ConsumerGroupRegularExpressionKey: self._replay_regex,
        }

    def _replay_group(self, key: Any, value: Any, _: object) -> None:
        if value is None:
            if isinstance(self._groups.get(key.group_id), ConsumerGroup):
                del self._groups[key.group_id]
            return
        group = self._replayed(key.group_id)
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash

    def _replay_member(self, key: Any, value: Any, _: object) -> None:
        if value is not None:
            group = self._replayed(key.group_id)
            group.put_subscription(key.member_id, subscription_of(value))
        elif (known := self._known(key.group_id)) is not None:
            known.drop(key.member_id)
            self._forget(key.group_id, key.member_id)

    def _replay_target_epoch(self, key: Any, value: Any, _: object) -> None:
        if value is not None:
            group = self._replayed(key.group_id)
            group.assignment_epoch = value.assignment_epoch
        elif (known := self._known(key.group_id)) is not None:
            known.assignment_epoch = 0

    def _replay_target(self, key: Any, value: Any, _: object) -> None:
        if value is not None:
            self._replayed(key.group_id).targets[key.member_id] = target_of(value)
        elif (known := self._known(key.group_id)) is not None:
            known.targets.pop(key.member_id, None)

    def _replay_progress(self, key: Any, value: Any, _: object) -> None:
        if value is not None:
            self._replayed(key.group_id).put_progress(key.member_id, progress_of(value))
        elif (known := self._known(key.group_id)) is not None:
            known.drop_progress(key.member_id)

    def _replay_regex(self, key: Any, value: Any, _: object) -> None:
        if value is not None:
            group = self._replayed(key.group_id)
            group.regexes[key.regular_expression] = frozenset(value.topics)
        elif (known := self._known(key.group_id)) is not None:
            known.regexes.pop(key.regular_expression, None)

    def _replayed(self, group_id: str) -> ConsumerGroup:
        """The group that a record is about. Compaction may leave the first of its records out."""
        found = self._known(group_id)
        if found is None:
            found = self._groups[group_id] = ConsumerGroup(group_id)
        return found

    def _known(self, group_id: str) -> ConsumerGroup | None:
        found = self._groups.get(group_id)
        return found if isinstance(found, ConsumerGroup) else None
