"""Members of groups, of either protocol: how they join, stay, and follow their assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from millstream.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscriptionTopicPartition,
)
from millstream.protocol.messages.join_group import JoinGroupRequestProtocol
from millstream.protocol.messages.leave_group import MemberIdentity
from millstream.protocol.messages.sync_group import SyncGroupRequestAssignment
from millstream.protocol.records_framing import (
    decode_assignment,
    decode_subscription,
    encode_subscription,
)
from tests.simulation.coordinator.broker import SESSION_MS
from tests.simulation.coordinator.client import Client
from tests.simulation.coordinator.network import Ask
from tests.unit.coordinator.group.consumer.movers import encoded, shared_out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.coordinator.client import Script
    from tests.simulation.coordinator.world import World

TOPIC = "input"
REBALANCE_MS = 15_000
_LOST = (
    UnknownMemberId.code,
    FencedMemberEpoch.code,
    FencedInstanceId.code,
    GroupIdNotFound.code,
)


class Member(Client):
    """A member of a group that reads the input."""

    def __init__(
        self, world: World, name: str, group: str, kind: str, instance: str | None = None
    ) -> None:
        self.group = group
        self.instance = instance
        """Its name if it is a static member."""
        self.kind = kind
        self.member_id = ""
        self.generation = -1
        """Or its epoch."""
        self.positions: dict[int, int | None] = {}
        """The partitions that it has; None if it does not know yet where to go on."""
        self.membership = _MEMBERSHIPS[kind](self)
        super().__init__(world, name)

    def follow(self, partitions: Iterable[int]) -> bool:
        """Have these partitions and no others; whether it had to let go of one."""
        wanted = set(partitions)
        gone = self.positions.keys() - wanted
        self.positions = {each: self.positions.get(each) for each in sorted(wanted)}
        return bool(gone)

    def lose_everything(self) -> None:
        """It is no member any more."""
        self.positions = {}


class ConsumerMembership:
    """The consumer protocol: one heartbeat for everything."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._is_joined = False
        self._is_unsure = True

    def keep_up(self) -> Script:
        """One heartbeat."""
        member = self._member
        if not self._is_joined:
            member.lose_everything()
            member.member_id = f"{member.name}-{member.random.getrandbits(40):x}"
            member.generation = 0
        answer = yield Ask(self._request(), 1)
        if answer is None:
            self._is_unsure = True
        elif answer.error_code:
            self._is_unsure = True
            if answer.error_code in _LOST:
                self._is_joined = False
                member.lose_everything()
        else:
            self._is_joined, self._is_unsure = True, False
            member.generation = answer.member_epoch
            if answer.assignment is not None:
                topics = answer.assignment.topic_partitions
                member.follow(each for topic in topics for each in topic.partitions)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        member = self._member
        topic_id = member.world.broker.metadata.topic_id(TOPIC)
        assert topic_id is not None
        owned = [
            ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=topic_id, partitions=sorted(member.positions)
            )
        ]
        says_all = self._is_unsure or not self._is_joined
        return ConsumerGroupHeartbeatRequest(
            group_id=member.group,
            member_id=member.member_id,
            member_epoch=member.generation,
            instance_id=member.instance,
            rebalance_timeout_ms=REBALANCE_MS if says_all else -1,
            subscribed_topic_names=[TOPIC] if says_all else None,
            topic_partitions=owned if member.positions else [],
        )

    def leave(self) -> Script:
        """Go for good; nobody waits for the answer."""
        member = self._member
        member.lose_everything()
        yield Ask(
            ConsumerGroupHeartbeatRequest(
                group_id=member.group,
                member_id=member.member_id,
                member_epoch=-1,
                instance_id=member.instance,
            ),
            1,
        )
        self._is_joined = False


class ClassicMembership:
    """The classic protocol, with an assignor that takes everything away first, or does not."""

    is_eager = True
    protocol = "range"

    def __init__(self, member: Member) -> None:
        self._member = member
        self._is_joined = False

    def keep_up(self) -> Script:
        """Join, or one heartbeat."""
        if not self._is_joined:
            yield from self._join()
            return
        member = self._member
        answer = yield Ask(
            HeartbeatRequest(
                group_id=member.group,
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance,
            ),
            4,
        )
        if answer is not None and answer.error_code:
            self._refused(answer.error_code)

    def _refused(self, code: int) -> None:
        member = self._member
        if code == RebalanceInProgress.code:
            self._is_joined = False
        elif code == IllegalGeneration.code:
            self._is_joined = False
            member.generation = -1
            member.lose_everything()
        elif code in (UnknownMemberId.code, FencedInstanceId.code):
            self._is_joined = False
            member.member_id, member.generation = "", -1
            member.lose_everything()

    def _join(self) -> Script:
        member = self._member
        if self.is_eager:
            member.lose_everything()
        joined = yield Ask(self._join_request(), 9)
        if joined is None:
            return
        if joined.error_code == MemberIdRequired.code:
            member.member_id = joined.member_id
        elif joined.error_code:
            self._refused(joined.error_code)
        else:
            member.member_id, member.generation = joined.member_id, joined.generation_id
            yield from self._sync(joined)

    def _sync(self, joined: Any) -> Script:
        member = self._member
        # A static leader that came back finds the assignment as it was.
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        synced = yield Ask(
            SyncGroupRequest(
                group_id=member.group,
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=member.instance,
                protocol_type="consumer",
                protocol_name=joined.protocol_name,
                assignments=self._assignments(joined) if is_leader else [],
            ),
            5,
        )
        if synced is None:
            return
        if synced.error_code:
            self._refused(synced.error_code)
            return
        given = decode_assignment(synced.assignment).assigned_partitions
        has_let_go = member.follow(each for topic in given for each in topic.partitions)
        # What it let go of is for somebody else: a cooperative member joins again to say so.
        self._is_joined = self.is_eager or not has_let_go

    def _assignments(self, joined: Any) -> list[SyncGroupRequestAssignment]:
        owned = {
            each.member_id: {
                (topic.topic, partition)
                for topic in decode_subscription(each.metadata).owned_partitions
                for partition in topic.partitions
            }
            for each in joined.members
        }
        places = [(TOPIC, partition) for partition in range(4)]
        given = shared_out(owned, places, is_eager=self.is_eager)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=encoded(each))
            for member_id, each in given.items()
        ]

    def _join_request(self) -> JoinGroupRequest:
        member = self._member
        owned = [
            ConsumerProtocolSubscriptionTopicPartition(
                topic=TOPIC, partitions=sorted(member.positions)
            )
        ]
        said = ConsumerProtocolSubscription(
            topics=[TOPIC],
            owned_partitions=owned if member.positions else [],
            generation_id=member.generation,
        )
        return JoinGroupRequest(
            group_id=member.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member.member_id,
            group_instance_id=member.instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=self.protocol, metadata=encode_subscription(said, 3))
            ],
        )

    def leave(self) -> Script:
        """Go for good; nobody waits for the answer."""
        member = self._member
        member.lose_everything()
        yield Ask(
            LeaveGroupRequest(
                group_id=member.group,
                members=[
                    MemberIdentity(member_id=member.member_id, group_instance_id=member.instance)
                ],
            ),
            5,
        )
        self._is_joined = False
        member.member_id, member.generation = "", -1


class CooperativeMembership(ClassicMembership):
    """The same, and what it may keep it keeps."""

    is_eager = False
    protocol = "cooperative-sticky"


_MEMBERSHIPS: dict[str, type[ConsumerMembership | ClassicMembership]] = {
    "consumer": ConsumerMembership,
    "eager": ClassicMembership,
    "cooperative": CooperativeMembership,
}
