"""`GroupShard`: the groups and offsets of one partition of `__consumer_offsets`.

The runtime makes it, replays into it and fires its timers; `GroupCoordinator` asks it to decide.
Each kind of group lives in a package of its own and is entered here: the records it replays, and
how it answers the calls of classic members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.coordinator.decision import Decision
from millstream.coordinator.group.classic.manager import ClassicGroups
from millstream.coordinator.group.consumer.manager import ConsumerGroups
from millstream.coordinator.group.group import GroupType
from millstream.coordinator.group.offsets.fetching import OffsetFetcher
from millstream.coordinator.group.offsets.manager import OffsetManager
from millstream.coordinator.group.share.config import ShareGroupConfig
from millstream.coordinator.group.share.manager import ShareGroups
from millstream.coordinator.group.share.states import ShareStates
from millstream.coordinator.timers import TimerQueue
from millstream.errors import ApiError, GroupIdNotFound, InconsistentGroupProtocol, UnknownMemberId
from millstream.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from millstream.protocol.messages.list_groups import ListedGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set
    from random import Random

    from millstream.coordinator.decision import Caller, CoordinatorRecord, Moment, ProducerStamp
    from millstream.coordinator.group.calls import ClassicCalls, JoinAnswer, SyncAnswer
    from millstream.coordinator.group.config import GroupConfig
    from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
    from millstream.coordinator.group.consumer.ports import SubscribableTopics
    from millstream.coordinator.group.group import Group
    from millstream.coordinator.group.share.manager import SettingsOf
    from millstream.protocol.message import Message
    from millstream.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from millstream.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from millstream.types import Uuid

_EXPIRY: Final = "offset expiry"
"""The key of the timer that looks for what is kept for nobody."""


class GroupShard:
    """A `CoordinatorShard` of groups."""

    def __init__(
        self,
        config: GroupConfig,
        consumer_config: ConsumerGroupConfig,
        topics: SubscribableTopics,
        random: Random,
        share_settings: SettingsOf | None = None,
    ) -> None:
        """Without `share_settings` every share group has Kafka's defaults."""
        self._config = config
        self.timers = TimerQueue()
        """What it wants to decide when."""
        self.groups: dict[str, Group] = {}
        """The groups of every kind, by id."""
        self.classic = ClassicGroups(config, self.groups, self.timers, random)
        self.consumer = ConsumerGroups(
            consumer_config, self.groups, self.timers, topics, random, self.classic
        )
        self.offsets = OffsetManager(config, topics, self.groups, self.classic.create)
        self.fetcher = OffsetFetcher(self.offsets, topics, self.groups)
        defaults = ShareGroupConfig().settings({})
        self.shares = ShareGroups(
            self.groups, self.timers, topics, share_settings or (lambda _: defaults)
        )
        self.share_states = ShareStates(self.shares, topics)
        self._calls: dict[GroupType, ClassicCalls] = {
            GroupType.CLASSIC: self.classic,
            GroupType.CONSUMER: self.consumer.classic_members,
        }
        self._replay: dict[type[Message], Callable[[Any, Any, ProducerStamp | None], None]] = {
            OffsetCommitKey: self.offsets.replay,
            LegacyOffsetCommitKey: self.offsets.replay_legacy,
            GroupMetadataKey: self.classic.replay,
            **self.shares.replays,
            **self.consumer.replays,
        }

    # What the runtime calls.

    def replay(self, key: Message, value: Message | None, stamp: ProducerStamp | None) -> None:
        """A record is in the log: make it true. Records of kinds we do not have are passed over."""
        replay = self._replay.get(type(key))
        if replay is not None:
            replay(key, value, stamp)

    def replay_end_of_transaction(self, stamp: ProducerStamp, *, is_committed: bool) -> None:
        """A producer's transaction in this partition has ended."""
        self.offsets.replay_end_of_transaction(stamp, is_committed=is_committed)

    def loaded(self, now_ms: int) -> None:
        """All that was in the log is replayed: begin to watch the time."""
        self.classic.loaded(now_ms)
        self.shares.loaded(now_ms)
        self.consumer.loaded(now_ms)
        if self.groups:
            self.watch_expiry(now_ms)

    def unloaded(self, error: ApiError) -> None:
        """Another broker coordinates from now on: tell everybody who waits."""
        for group in self.groups.values():
            group.close(self.timers, error)

    # Members of classic groups, and those who behave like them.

    def join_group(
        self, request: JoinGroupRequest, caller: Caller, respond: JoinAnswer, now: Moment
    ) -> Decision[JoinGroupResponse | None]:
        """A member enters; no response if it must wait, then `respond` gets it."""
        calls = self._calls_for(request.group_id) or self.classic
        decision = calls.join(request, caller, respond, now)
        self.watch_expiry(now.now_ms)
        return decision

    def sync_group(
        self, request: SyncGroupRequest, respond: SyncAnswer, now: Moment
    ) -> Decision[SyncGroupResponse | None]:
        """A member gives or wants the assignment; no response if it must wait."""
        return self._calls_of_members(request.group_id).sync(request, respond, now)

    def heartbeat(self, request: HeartbeatRequest, now: Moment) -> Decision[HeartbeatResponse]:
        """A member is alive."""
        return self._calls_of_members(request.group_id).heartbeat(request, now)

    def leave_group(self, request: LeaveGroupRequest, now: Moment) -> Decision[LeaveGroupResponse]:
        """Members go."""
        return self._calls_of_members(request.group_id).leave(request, now)

    def _calls_for(self, group_id: str) -> ClassicCalls | None:
        group = self.groups.get(group_id)
        if group is None:
            return None
        calls = self._calls.get(group.type)
        if calls is None:
            raise InconsistentGroupProtocol(f"{group_id} is a {group.type.value} group")
        return calls

    def _calls_of_members(self, group_id: str) -> ClassicCalls:
        group = self.groups.get(group_id)
        calls = None if group is None else self._calls.get(group.type)
        if calls is None:
            raise UnknownMemberId(f"{group_id} is no group with classic members")
        return calls

    # Members of consumer groups.

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: Moment
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """A member joins, lives or leaves."""
        decision = self.consumer.heartbeat(request, caller, now)
        self.watch_expiry(now.now_ms)
        return decision

    # Groups of any kind.

    def listed(self, states: Set[str], types: Set[str]) -> list[ListedGroup]:
        """The groups in some states and of some types, in lower case; all if none are given."""
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.type.value,
            )
            for group in self.groups.values()
            if (not states or group.state_name.lower() in states)
            and (not types or group.type.value in types)
        ]

    def delete_group(self, group_id: str) -> Decision[None]:
        """Delete an empty group with all its offsets."""
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        group.validate_delete()
        return Decision(None, [*self.offsets.tombstones_of(group_id), *group.tombstones()])

    def delete_topics(self, deleted: Mapping[str, Uuid]) -> Decision[None]:
        """Delete the offsets in topics that are gone."""
        return Decision(None, self.offsets.tombstones_in(deleted), is_atomic=False)

    # Expiry.

    def watch_expiry(self, now_ms: int) -> None:
        """Something that can expire is there, or about to be: look for it in time."""
        if _EXPIRY not in self.timers:
            interval_ms = self._config.offsets_retention_check_interval_ms
            self.timers.set(_EXPIRY, now_ms + interval_ms, self._expire)

    def _expire(self, now: Moment) -> Decision[None]:
        """Delete what is kept for nobody, and groups that have nothing left."""
        records: list[CoordinatorRecord] = []
        for group in self.groups.values():
            tombstones, is_all = self.offsets.expired(group, now.wall_ms)
            records += tombstones
            if is_all and group.is_empty and group.is_expirable:
                records += group.tombstones()
        if self.groups:
            self.watch_expiry(now.now_ms)
        return Decision(None, records, is_atomic=False)
