"""Members of classic groups, which do only what a test tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.decision import Caller
from millstream.errors import ApiError, class_for_code
from millstream.protocol.messages import (
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from millstream.protocol.messages.join_group import JoinGroupRequestProtocol
from millstream.protocol.messages.leave_group import MemberIdentity
from millstream.protocol.messages.sync_group import SyncGroupRequestAssignment
from millstream.protocol.records_framing import encode_subscription
from tests.unit.coordinator.group.world import GROUP, World, error_of, only

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.protocol.messages import (
        HeartbeatResponse,
        JoinGroupResponse,
        LeaveGroupResponse,
        SyncGroupResponse,
    )

NEWEST_JOIN = 9
SESSION_MS, REBALANCE_MS = 10_000, 60_000


class Member:
    """A client of the classic protocol, which does only what it is told."""

    def __init__(
        self,
        world: World,
        name: str = "c",
        *,
        instance: str | None = None,
        topics: Sequence[str] = ("orders",),
        protocols: Sequence[str] = ("range",),
        group: str = GROUP,
        version: int = NEWEST_JOIN,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.topics = topics
        self.protocols = protocols
        self.protocol_type = "consumer"
        self.group = group
        self.version = version
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.joins: list[JoinGroupResponse | ApiError] = []
        """The answers to the last JoinGroup: none while it waits."""
        self.syncs: list[SyncGroupResponse | ApiError] = []

    def metadata(self) -> bytes:
        """What it is subscribed to."""
        return encode_subscription(ConsumerProtocolSubscription(topics=list(self.topics)), 0)

    def ask_to_join(self, member_id: str | None = None) -> list[JoinGroupResponse | ApiError]:
        """Send JoinGroup once, with the id it has or another."""
        answers: list[JoinGroupResponse | ApiError] = []
        self.joins = answers
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id if member_id is None else member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self.metadata())
                for name in self.protocols
            ],
        )

        def answered(answer: JoinGroupResponse | ApiError) -> None:
            answers.append(answer)
            if not isinstance(answer, ApiError) and answer.error_code in (0, 79):
                self.member_id = answer.member_id
                self.generation = answer.generation_id

        caller = Caller(self.name, "/host", self.version)
        self.world.groups.join_group(request, caller, answered)
        return answers

    def join(self) -> list[JoinGroupResponse | ApiError]:
        """Send JoinGroup, and again with the id if it is told to."""
        answers = self.ask_to_join()
        if answers and error_of(answers) is class_for_code(79):
            answers = self.ask_to_join()
        return answers

    def sync(
        self, assignments: Mapping[str, bytes] | None = None, *, version: int = 5
    ) -> list[SyncGroupResponse | ApiError]:
        """Send SyncGroup, with assignments if it leads."""
        answers: list[SyncGroupResponse | ApiError] = []
        self.syncs = answers
        joined = self.joins[-1] if self.joins else None
        name = None if joined is None or isinstance(joined, ApiError) else joined.protocol_name
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocol_name=name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in (assignments or {}).items()
            ],
        )
        caller = Caller(self.name, "/host", version)
        self.world.groups.sync_group(request, caller, answers.append)
        return answers

    def heartbeat(self, generation: int | None = None) -> list[HeartbeatResponse | ApiError]:
        """Send Heartbeat."""
        answers: list[HeartbeatResponse | ApiError] = []
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        self.world.groups.heartbeat(request, Caller(self.name, "/host", 4), answers.append)
        return answers

    def leave(self) -> list[LeaveGroupResponse | ApiError]:
        """Send LeaveGroup for itself."""
        return leave(self.world, (self.member_id, self.instance), group=self.group)

    def commit(self, topic: str, index: int, offset: int) -> type[ApiError] | None:
        """Commit an offset as a member; the error of the request or of the partition."""
        answers = self.world.commit(
            {(topic, index): offset},
            group=self.group,
            member=self.member_id,
            instance=self.instance,
            generation=self.generation,
        )
        if isinstance(answers[0], ApiError):
            return type(answers[0])
        code = answers[0].topics[0].partitions[0].error_code
        return class_for_code(code) if code else None


def leave(
    world: World, *identities: tuple[str, str | None], group: str = GROUP
) -> list[LeaveGroupResponse | ApiError]:
    """LeaveGroup, for several."""
    answers: list[LeaveGroupResponse | ApiError] = []
    request = LeaveGroupRequest(
        group_id=group,
        members=[
            MemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in identities
        ],
    )
    world.groups.leave_group(request, Caller("c", "/host", 5), answers.append)
    return answers


def stable(world: World, *members: Member) -> None:
    """Let members make a generation: all join, the leader assigns each its own name."""
    for member in members:
        member.join()
    # Those after the first put the rebalance off once more.
    world.pass_ms(2 * world.config.group_initial_rebalance_delay_ms)
    synced(*members)


def synced(*members: Member) -> None:
    """All of a generation ask for their assignment; the leader gives each its own name."""
    assignments = {member.member_id: member.name.encode() for member in members}
    for member in members:
        joined = only(member.joins)
        member.sync(assignments if joined.leader == member.member_id else None)
    for member in members:
        assert error_of(member.syncs) is None
