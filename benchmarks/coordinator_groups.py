"""Many members that enter one group at once: the rows `join-*` of `benchmarks.coordinator`.

Each member is a connection that speaks the protocol as a consumer does, without its pauses: what
it has to say it says at once, and else it sends a heartbeat every `HEARTBEAT_SECONDS`. All members
live in one loop here, whose share of the time is in the result as `client_busy`.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from benchmarks.coordinator_crowd import Crowd, M, Member
from benchmarks.coordinator_scripts import GROUP, await_coordinator, await_groups
from benchmarks.load import cpu_seconds
from millstream.protocol.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
    consumer_group_describe,
    describe_groups,
    join_group,
    leave_group,
    sync_group,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from millstream.protocol.messages.heartbeat import HeartbeatResponse
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.broker_processes import BrokerProcess
    from benchmarks.broker_rows import Effort, Figures
    from millstream.protocol.message import Message
    from millstream.types import Uuid

SESSION_MS, REBALANCE_MS = 45_000, 60_000
REBALANCE_IN_PROGRESS: Final = 27
MEMBER_ID_REQUIRED: Final = 79
_METADATA = bytes(40)
_names = itertools.count()


# The classic protocol.


class ClassicMember(Member):
    """Joins, syncs, beats; the leader assigns to everybody the name of its member."""

    def __init__(self, group_id: str, port: int) -> None:
        super().__init__(group_id, port)
        self._generation = -1

    def begin(self) -> None:
        """Enter the group, or its next generation."""
        self.place = None
        protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=_METADATA)
        self.send(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
        )

    def take(self, answer: Message) -> bool:
        """Go on."""
        if isinstance(answer, JoinGroupResponse):
            self._joined(answer)
            return True
        assert isinstance(answer, SyncGroupResponse | HeartbeatResponse)
        if answer.error_code == REBALANCE_IN_PROGRESS:
            self.begin()
            return True
        assert not answer.error_code, f"error {answer.error_code}"
        if isinstance(answer, SyncGroupResponse):
            assert bytes(answer.assignment) == self.member_id.encode()
            self.place = self._generation, self.member_id
        return False

    def _joined(self, answer: JoinGroupResponse) -> None:
        self.member_id = answer.member_id
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.begin()
            return
        assert not answer.error_code, f"error {answer.error_code}"
        self._generation = answer.generation_id
        self.send(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    sync_group.SyncGroupRequestAssignment(
                        member_id=each.member_id, assignment=each.member_id.encode()
                    )
                    for each in answer.members  # Only the leader is told them.
                ],
            )
        )

    def beat(self) -> None:
        """Say that one is there."""
        self.send(
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self.member_id,
            )
        )


@dataclass(frozen=True, slots=True)
class JoinClassicRow:
    """Members that choose a leader which assigns."""

    members: int
    name: str = "join-classic"

    def round(self, broker: BrokerProcess, effort: Effort) -> Figures:
        """Measure once."""
        group_id = new_group(broker)
        crowd = Crowd([ClassicMember(group_id, broker.port) for _ in range(self.members)])
        figures = settled(broker, crowd)
        with broker.client() as client:
            request = DescribeGroupsRequest(groups=[group_id])
            (found,) = client.ask(request, 6, describe_groups.DescribeGroupsResponse).groups
            assert found.group_state == "Stable", f"{broker.name}: {found.group_state}"
            assert len(found.members) == self.members
            gone = [leave_group.MemberIdentity(member_id=each.member_id) for each in crowd.members]
            left = client.ask(
                LeaveGroupRequest(group_id=group_id, members=gone),
                5,
                leave_group.LeaveGroupResponse,
            )
            assert not left.error_code, f"{broker.name}: error {left.error_code}"
        crowd.close()
        return figures


# The consumer protocol.


class ConsumerMember(Member):
    """Sends heartbeats, and takes and gives up partitions as it is told."""

    def __init__(self, group_id: str, port: int, topic: str) -> None:
        super().__init__(group_id, port)
        self.member_id = str(uuid4())
        self.epoch = 0
        self._topic = topic
        self._owned: dict[Uuid, list[int]] = {}

    def begin(self) -> None:
        """Enter the group."""
        self.send(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch,
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=[self._topic],
                topic_partitions=[],
            )
        )

    def take(self, answer: Message) -> bool:
        """Follow the assignment, and say so if it has changed."""
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert not answer.error_code, f"{answer.error_code}: {answer.error_message}"
        self.epoch = answer.member_epoch
        is_changed = False
        if answer.assignment is not None:
            given = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
            is_changed = given != self._owned
            self._owned = given
        owned = [each for partitions in self._owned.values() for each in partitions]
        # There is one partition for each member.
        self.place = (self.epoch, owned[0]) if len(owned) == 1 else None
        if is_changed:
            self._confirm()
        return is_changed

    def _confirm(self) -> None:
        self.send(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch,
                topic_partitions=[
                    ConsumerGroupHeartbeatRequestTopicPartitions(
                        topic_id=topic, partitions=partitions
                    )
                    for topic, partitions in self._owned.items()
                ],
            )
        )

    def beat(self) -> None:
        """Say that one is there."""
        self.send(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
            )
        )


@dataclass(frozen=True, slots=True)
class JoinConsumerRow:
    """Members to which the broker assigns (KIP-848); as many partitions as members."""

    members: int
    name: str = "join-consumer"

    def round(self, broker: BrokerProcess, effort: Effort) -> Figures:
        """Measure once."""
        group_id = new_group(broker)
        topic = f"topic-of-{group_id}"
        broker.create_topic(topic, self.members)
        members = [ConsumerMember(group_id, broker.port, topic) for _ in range(self.members)]
        crowd = Crowd(members)
        figures = settled(broker, crowd)
        assert len({each.place for each in members}) == self.members, "a partition with two members"
        self._check(broker, group_id)
        leave(broker, group_id, members)
        crowd.close()
        broker.delete_topic(topic)
        return figures

    def _check(self, broker: BrokerProcess, group_id: str) -> None:
        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        with broker.client() as client:
            answer = client.ask(request, 1, consumer_group_describe.ConsumerGroupDescribeResponse)
        (found,) = answer.groups
        assert found.group_state == "Stable", f"{broker.name}: {found.group_state}"
        assert len(found.members) == self.members
        assert all(each.assignment == each.target_assignment for each in found.members)


def leave(broker: BrokerProcess, group_id: str, members: Sequence[Member]) -> None:
    """Let all members leave, or their sessions would end in the middle of other rounds."""
    with broker.client() as client:
        for member in members:
            request = ConsumerGroupHeartbeatRequest(
                group_id=group_id, member_id=member.member_id, member_epoch=-1
            )
            answer = client.ask(request, 1, ConsumerGroupHeartbeatResponse)
            assert not answer.error_code, f"{broker.name}: {answer.error_message}"


# Both.


def new_group(broker: BrokerProcess) -> str:
    """The id of a group whose coordinator is there."""
    group_id = f"crowd-{next(_names)}"
    await_coordinator(broker, GROUP, [group_id])
    await_groups(broker, [group_id])
    return group_id


def settled(broker: BrokerProcess, crowd: Crowd[M]) -> Figures:
    """How long it takes until all members have what they should have."""
    used, busy, started = cpu_seconds(broker.pid), time.process_time(), time.perf_counter()
    crowd.settle()
    seconds = time.perf_counter() - started
    return {
        "stable_ms": seconds * 1e3,
        "cpu_ms": (cpu_seconds(broker.pid) - used) * 1e3,
        "client_busy": (time.process_time() - busy) / seconds,
    }
