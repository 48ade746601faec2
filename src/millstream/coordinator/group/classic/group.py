"""`ClassicGroup`: members, leader, protocol and generation of one classic group.

It keeps its own counts right and knows the rules about who may do what in which state. When things
happen is for `rebalance` and `joining` to say; it never sees a timer fire.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from millstream.coordinator.group.classic.member import ClassicMember
from millstream.coordinator.group.classic.records import group_tombstone
from millstream.coordinator.group.classic.state import PREDECESSORS, ClassicState
from millstream.coordinator.group.group import GroupType
from millstream.errors import (
    ApiError,
    CoordinatorNotAvailable,
    DecodeError,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from millstream.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from millstream.protocol.messages.sync_group import SyncGroupResponse
from millstream.protocol.records_framing import decode_subscribed_topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.coordinator.decision import CoordinatorRecord
    from millstream.coordinator.group.calls import JoinAnswer
    from millstream.coordinator.group.classic.member import Protocols
    from millstream.coordinator.group.group import CommitCheck, CommitOrigin
    from millstream.coordinator.timers import TimerQueue

_logger = logging.getLogger(__name__)

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers: the only one whose metadata the coordinator can read."""


class ClassicGroup:
    """A `Group` of the classic protocol."""

    type: Final = GroupType.CLASSIC

    def __init__(self, group_id: str, since_ms: int | None = None) -> None:
        self.group_id: Final = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.DEAD
        self.since_ms = since_ms
        """Since when it is in its state, by the wall clock; None if nobody knows."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        """What all members of the generation understand: an assignor, for consumers."""
        self.leader_id: str | None = None
        self.is_without_leader = False
        """Whether its record names no leader: then no leader has seen this generation."""
        self.members: dict[str, ClassicMember] = {}
        self.static_ids: dict[str, str] = {}
        """The member id of each static member, by its instance id."""
        self.pending_ids: set[str] = set()
        """Member ids that were given out, and with which nobody has joined yet."""
        self.pending_sync_ids: set[str] = set()
        """Members of the generation that have not asked for their assignment."""
        self.has_new_member = False
        """Whether somebody joined since the first rebalance was last put off."""
        self.awaiting_count = 0
        self._supporters: Counter[str] = Counter()
        self._topics: frozenset[str] | None = None
        """What members are subscribed to; None if that cannot be known."""

    # State.

    @property
    def state_name(self) -> str:
        """Its state, as ListGroups spells it."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is ClassicState.EMPTY

    @property
    def is_expirable(self) -> bool:
        """Not while somebody was told to join with an id."""
        return not self.pending_ids

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin."""
        return self.state in PREDECESSORS[ClassicState.PREPARING_REBALANCE]

    @property
    def has_all_joined(self) -> bool:
        """Whether everybody known is there for the next generation."""
        return self.awaiting_count == len(self.members) and not self.pending_ids

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members may take: as long as the slowest asks for."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def transition_to(self, state: ClassicState, wall_ms: int) -> None:
        """Change the state."""
        assert self.state in PREDECESSORS[state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.since_ms = wall_ms

    def is_leader(self, member_id: str) -> bool:
        """Whether a member decides who reads what."""
        return self.leader_id == member_id

    # Members.

    def add(self, member: ClassicMember, protocol_type: str, respond: JoinAnswer | None) -> None:
        """A member joins; the first one decides the protocol type and leads."""
        assert member.instance_id not in self.static_ids
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supporters.update(name for name, _ in member.protocols)
        self.pending_ids.discard(member.member_id)
        self.park(member, respond)

    def remove(self, member_id: str) -> ClassicMember | None:
        """A member, or an id that was given out, is gone; another leads if need be."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supporters.subtract(name for name, _ in member.protocols)
            self.awaiting_count -= member.awaiting_join is not None
            if member.instance_id is not None:
                del self.static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_ids.discard(member_id)
        self.pending_sync_ids.discard(member_id)
        return member

    def update(
        self, member: ClassicMember, protocols: Protocols, session_ms: int, rebalance_ms: int
    ) -> None:
        """A member says anew what it supports and how long it may take."""
        self._supporters.subtract(name for name, _ in member.protocols)
        member.protocols = protocols
        self._supporters.update(name for name, _ in protocols)
        member.session_timeout_ms = session_ms
        member.rebalance_timeout_ms = rebalance_ms

    def replace_static(self, old: ClassicMember, new_id: str) -> ClassicMember:
        """A static member, which waits for nothing, goes on under a new id."""
        assert old.instance_id is not None
        assert old.awaiting_join is None
        old_id = old.member_id
        del self.members[old_id]
        new = ClassicMember(
            new_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members[new_id] = new
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync_ids:
            self.pending_sync_ids.remove(old_id)
            self.pending_sync_ids.add(new_id)
        self.static_ids[old.instance_id] = new_id
        return new

    def elect_joined_leader(self) -> bool:
        """Let somebody lead who is there for the next generation; False if nobody is."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        joined = next((each for each in self.members.values() if each.awaiting_join), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def validate_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member of an id; raises ApiError if there is none, or another has its place."""
        if instance_id is not None:
            holder = self.static_ids.get(instance_id)
            if holder is None:
                raise UnknownMemberId(f"no member of {self.group_id} is {instance_id}")
            if holder != member_id:
                raise FencedInstanceId(f"{instance_id} is another member now")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{self.group_id} has no member {member_id}")
        return member

    def validate_generation(self, generation: int) -> None:
        """Raise ApiError if somebody speaks of another generation."""
        if generation != self.generation:
            raise IllegalGeneration(f"{self.group_id} is at {self.generation}, not {generation}")

    # Waiting.

    def park(self, member: ClassicMember, respond: JoinAnswer | None) -> None:
        """Let a member wait for the next generation, or for nothing."""
        self.awaiting_count += (respond is not None) - (member.awaiting_join is not None)
        member.awaiting_join = respond

    def join_response(
        self, member_id: str, *, has_members: bool | None = None, skips_assignment: bool = False
    ) -> JoinGroupResponse:
        """The current generation, as a member is told; the leader is told all members."""
        if has_members is None:
            has_members = self.is_leader(member_id)
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader_id or "",
            skip_assignment=skips_assignment,
            member_id=member_id,
            members=self._member_list() if has_members else [],
        )

    def _member_list(self) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata(self.protocol),
            )
            for each in self.members.values()
        ]

    def sync_response(self, member: ClassicMember) -> SyncGroupResponse:
        """The assignment of a member."""
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    def close(self, timers: TimerQueue, error: ApiError) -> None:
        """The group is gone from here: tell everybody who waits, and let go of deadlines."""
        self.state = ClassicState.DEAD
        for member in self.members.values():
            timers.cancel(member)
            if member.awaiting_join is not None:
                member.awaiting_join(
                    JoinGroupResponse(member_id=member.member_id, error_code=error.code)
                )
            if member.awaiting_sync is not None:
                member.awaiting_sync(SyncGroupResponse(error_code=error.code))
        for member_id in self.pending_ids:
            timers.cancel((self, member_id))
        timers.cancel((self, JOIN))
        timers.cancel((self, SYNC))

    # Protocols.

    def supports(self, protocol_type: str, names: Sequence[str]) -> bool:
        """Whether a member with these protocols fits to the others."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type and names)
        if self.protocol_type != protocol_type:
            return False
        supporters, count = self._supporters, len(self.members)
        return any(supporters[name] == count for name in names)

    def select_protocol(self) -> str:
        """What most members prefer among what all of them support."""
        count = len(self.members)
        candidates = {name for name, supporters in self._supporters.items() if supporters == count}
        votes = Counter(each.vote(candidates) for each in self.members.values())
        return max(votes, key=votes.__getitem__)

    def begin_generation(self, wall_ms: int) -> None:
        """The members that are there make the next generation; without any the group is empty."""
        self.generation += 1
        self.pending_sync_ids.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.transition_to(ClassicState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol = None
            self.transition_to(ClassicState.EMPTY, wall_ms)
        self.find_topics()

    def find_topics(self) -> None:
        """Read from the members' metadata what they are subscribed to."""
        self._topics = None
        if self.protocol_type != CONSUMER_PROTOCOL:
            return
        topics: set[str] = set()
        try:
            for member in self.members.values():
                topics.update(decode_subscribed_topics(member.metadata(self.protocol)))
        except DecodeError as error:
            _logger.warning("what %s reads is not known: %s", self.group_id, error)
            return
        self._topics = frozenset(topics)

    # Offsets and deletion.

    def validate_offset_commit(self, origin: CommitOrigin, now_ms: int) -> CommitCheck | None:
        """Members of the generation may commit, and anybody while there are no members."""
        if self.state is ClassicState.DEAD:
            raise CoordinatorNotAvailable(f"{self.group_id} is gone")
        is_member = bool(
            origin.generation >= 0 or origin.member_id or origin.instance_id is not None
        )
        if self.state is ClassicState.EMPTY and origin.generation < 0:
            return None
        if not is_member and not origin.is_transactional:
            raise UnknownMemberId(f"{self.group_id} has members; this is none of them")
        if is_member:
            member = self.validate_member(origin.member_id, origin.instance_id)
            self.validate_generation(origin.generation)
            if not origin.is_transactional:
                self._committed_by(member, now_ms)
        return None

    def _committed_by(self, member: ClassicMember, now_ms: int) -> None:
        if self.state is ClassicState.COMPLETING_REBALANCE:
            raise RebalanceInProgress(f"{self.group_id} is rebalancing")
        member.heard_of(now_ms)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Everybody may."""
        if self.state is ClassicState.DEAD:
            raise GroupIdNotFound(f"{self.group_id} is gone")

    def validate_offset_delete(self) -> None:
        """With members, only of those of whom it is known what they read."""
        self.validate_offset_fetch(None, -1)
        if self.state is not ClassicState.EMPTY and self.protocol_type != CONSUMER_PROTOCOL:
            raise NonEmptyGroup(f"{self.group_id} has members")

    def validate_delete(self) -> None:
        """Only without members."""
        self.validate_offset_fetch(None, -1)
        if self.state is not ClassicState.EMPTY:
            raise NonEmptyGroup(f"{self.group_id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read a topic; to be safe, of consumers whose topics are not known."""
        if self._topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self._topics

    def retention_start_ms(self, commit_ms: int) -> int | None:
        """Since it is empty; for a stable group of consumers and a simple group, the commit."""
        if self.protocol_type is None:
            return commit_ms
        if self.state is ClassicState.EMPTY:
            return commit_ms if self.since_ms is None else self.since_ms
        is_known = self.state is ClassicState.STABLE and self._topics is not None
        return commit_ms if is_known else None

    def tombstones(self) -> list[CoordinatorRecord]:
        """The record that deletes the group."""
        return [group_tombstone(self.group_id)]


JOIN: Final = "join"
"""With the group the key of the timer that ends the joining."""
SYNC: Final = "sync"
"""With the group the key of the timer that ends the waiting for assignments."""
