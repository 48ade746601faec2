"""The APIs of groups and offsets over the wire: what differs by version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InconsistentGroupProtocol,
    NotCoordinator,
    UnknownMemberId,
)
from millstream.protocol.frame import encode_request
from millstream.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from millstream.protocol.messages.join_group import JoinGroupRequestProtocol
from millstream.protocol.messages.leave_group import MemberIdentity
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millstream.server.api_server import ApiServer
from millstream.server.group_apis import group_handlers
from millstream.server.handlers.txn_offset_commit import fail_txn_offset_commit
from tests.unit.coordinator.group.members import Member, stable
from tests.unit.coordinator.group.world import GROUP, World
from tests.unit.server.fakes import Call
from tests.unit.server.harness import frame_request

if TYPE_CHECKING:
    from millstream.protocol.message import Message


class Groups:
    """A coordinator behind its handlers."""

    def __init__(self) -> None:
        self.world = World()
        self.server = ApiServer(group_handlers(self.world.groups), self.world.clock)

    def call(self, message: Message, version: int) -> Call:
        frame = encode_request(message, version, 1, "app")
        request = frame_request(frame)
        return Call(request, self.server.handle(request))

    def ask(self, message: Message, version: int) -> Any:
        return self.call(message, version).response


@pytest.fixture
def groups() -> Groups:
    return Groups()


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"what I read")],
    )


@pytest.mark.parametrize("version", range(10))
def test_a_member_enters_in_every_version(groups: Groups, version: int) -> None:
    call = groups.call(join_request(), version)
    if version >= 4:
        call = groups.call(join_request(call.response.member_id), version)
    assert call.is_pending

    groups.world.pass_ms(3_000)

    answer = call.response
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.member_id.startswith("app-")
    assert answer.members[0].metadata == b"what I read"
    (member,) = groups.world.classic().members.values()
    assert member.client_host.startswith("/")


@pytest.mark.parametrize("version", range(10))
def test_a_refused_member_is_told_why_in_every_version(groups: Groups, version: int) -> None:
    answer = groups.ask(join_request("stranger"), version)

    assert (answer.error_code, answer.member_id) == (UnknownMemberId.code, "stranger")


def test_a_sync_of_version_5_must_say_its_protocol(groups: Groups) -> None:
    request = SyncGroupRequest(group_id=GROUP, member_id="m")

    assert groups.ask(request, 5).error_code == InconsistentGroupProtocol.code
    assert groups.ask(request, 4).error_code == UnknownMemberId.code


def test_heartbeats_go_through(groups: Groups) -> None:
    member = Member(groups.world)
    stable(groups.world, member)
    request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member.member_id)

    assert groups.ask(request, 4).error_code == 0
    assert groups.ask(HeartbeatRequest(group_id=GROUP), 4).error_code == UnknownMemberId.code


@pytest.mark.parametrize("version", range(6))
def test_members_leave_in_every_version(groups: Groups, version: int) -> None:
    member = Member(groups.world)
    stable(groups.world, member)
    request = LeaveGroupRequest(group_id=GROUP)
    if version < 3:
        request.member_id = member.member_id
    else:
        request.members = [MemberIdentity(member_id=member.member_id)]

    first, again = groups.ask(request, version), groups.ask(request, version)

    assert first.error_code == 0
    if version < 3:
        assert again.error_code == UnknownMemberId.code
    else:
        assert [each.error_code for each in again.members] == [UnknownMemberId.code]


def test_members_of_an_unknown_group_are_each_unknown(groups: Groups) -> None:
    request = LeaveGroupRequest(group_id="nobody", members=[MemberIdentity(member_id="m")])

    answer = groups.ask(request, 5)

    assert (answer.error_code, answer.members[0].error_code) == (0, UnknownMemberId.code)
    old = LeaveGroupRequest(group_id="nobody", member_id="m")
    assert groups.ask(old, 2).error_code == UnknownMemberId.code


def test_who_leaves_elsewhere_is_sent_away(groups: Groups) -> None:
    groups.world.runtime.close()
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")])

    assert groups.ask(request, 5).error_code == NotCoordinator.code


def old_fetch(*partitions: int) -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopic(name="orders", partition_indexes=list(partitions))
    return OffsetFetchRequest(group_id=GROUP, topics=[topic])


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_fetched_in_every_version(groups: Groups, version: int) -> None:
    groups.world.commit({("orders", 0): 5}, metadata="note")
    if version < 8:
        (topic,) = groups.ask(old_fetch(0), version).topics
    else:
        asked = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
        (group,) = groups.ask(OffsetFetchRequest(groups=[asked]), version).groups
        (topic,) = group.topics

    (partition,) = topic.partitions
    assert (partition.committed_offset, partition.metadata) == (5, "note")
    assert partition.committed_leader_epoch == (4 if version >= 5 else -1)


def test_all_offsets_of_a_group_are_fetched_by_old_clients(groups: Groups) -> None:
    groups.world.commit({("orders", 0): 5, ("payments", 1): 6})

    answer = groups.ask(OffsetFetchRequest(group_id=GROUP, topics=None), 7)

    assert {topic.name for topic in answer.topics} == {"orders", "payments"}


def test_an_error_of_a_group_is_where_its_version_has_room_for_it(groups: Groups) -> None:
    groups.world.runtime.close()
    code = NotCoordinator.code

    assert groups.ask(old_fetch(0), 1).topics[0].partitions[0].error_code == code
    assert groups.ask(old_fetch(0), 7).error_code == code
    asked = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    assert groups.ask(OffsetFetchRequest(groups=[asked]), 8).groups[0].error_code == code


def test_groups_are_not_listed_by_a_coordinator_that_loads(groups: Groups) -> None:
    groups.world.commit({("orders", 0): 5})
    groups.world.runtime.close()
    groups.world.runtime.elected(0, 99)

    assert groups.ask(ListGroupsRequest(), 5).error_code == CoordinatorLoadInProgress.code


@pytest.mark.parametrize(
    ("version", "error"), [(1, CoordinatorNotAvailable), (2, CoordinatorLoadInProgress)]
)
def test_old_producers_are_not_told_that_a_coordinator_loads(
    version: int, error: type[ApiError]
) -> None:
    request = TxnOffsetCommitRequest(
        topics=[
            TxnOffsetCommitRequestTopic(
                name="orders", partitions=[TxnOffsetCommitRequestPartition(partition_index=0)]
            )
        ]
    )

    answer = fail_txn_offset_commit(request, CoordinatorLoadInProgress(), version)

    assert answer.topics[0].partitions[0].error_code == error.code
