"""OffsetCommit over the wire, with and without tagged fields that nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    NotEnoughReplicas,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millstream.network.server.request import PENDING
from millstream.protocol.frame import encode_request
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.server.api_server import ApiServer
from millstream.server.group_apis import group_handlers
from millstream.types import Uuid
from tests.unit.coordinator.group.world import GROUP, World
from tests.unit.server.fakes import Call
from tests.unit.server.harness import frame_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.protocol.messages import OffsetCommitResponse

A_TAG = ((9, b"x"),)
"""A field that no version has; there may be some from version 8 on."""


class Groups:
    """A coordinator behind its handlers."""

    def __init__(self) -> None:
        self.world = World()
        self.server = ApiServer(group_handlers(self.world.groups), self.world.clock)

    def call(
        self,
        offsets: dict[tuple[str, int], int],
        version: int = 9,
        *,
        generation: int = -1,
        has_tags: bool = False,
    ) -> Call:
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.world.topics.topic_id(topic) or Uuid.METADATA_TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
            unknown_tags=A_TAG if has_tags else (),
        )
        framed = frame_request(encode_request(request, version, 1, "app"))
        return Call(framed, self.server.handle(framed))


def codes(response: OffsetCommitResponse) -> Sequence[int]:
    return [each.error_code for topic in response.topics for each in topic.partitions]


@pytest.fixture(params=[False, True], ids=["plain", "tagged"])
def has_tags(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_stored_in_every_version(groups: Groups, version: int) -> None:
    call = groups.call({("orders", 1): 5, ("payments", 0): 7}, version)
    groups.world.end_turn()
    assert codes(call.response) == [0, 0]
    found = groups.world.fetch(("orders", 1), ("payments", 0))
    assert [each.committed_offset for each in found.values()] == [5, 7]


def test_the_first_commit_of_a_group_is_answered_at_once(groups: Groups, has_tags: bool) -> None:
    call = groups.call({("orders", 1): 5}, has_tags=has_tags)
    assert codes(call.response) == [0]


def test_commits_of_one_turn_are_answered_together(groups: Groups, has_tags: bool) -> None:
    groups.call({("orders", 1): 5})
    calls = [groups.call({("orders", 1): offset}, has_tags=has_tags) for offset in (6, 7, 8)]
    assert [each.outcome for each in calls] == [PENDING] * 3
    before = len(groups.world.store.batches[0])
    groups.world.end_turn()
    assert [codes(each.response) for each in calls] == [[0]] * 3
    assert len(groups.world.store.batches[0]) == before + 1


def test_what_is_refused_has_its_own_code(groups: Groups, has_tags: bool) -> None:
    groups.call({("orders", 1): 5})
    wanted = {("orders", 9): 1, ("orders", 0): 1, ("nothing", 0): 1}
    call = groups.call(wanted, has_tags=has_tags)
    by_id = groups.call(wanted, 10, has_tags=has_tags)
    groups.world.end_turn()
    unknown = UnknownTopicOrPartition.code
    assert codes(call.response) == [unknown, 0, unknown]
    assert codes(by_id.response) == [unknown, 0, UnknownTopicId.code]


@pytest.mark.parametrize(("version", "error"), [(9, GroupIdNotFound), (8, IllegalGeneration)])
def test_a_commit_of_no_member_is_refused_as_a_whole(
    groups: Groups, has_tags: bool, version: int, error: type[UnknownServerError]
) -> None:
    call = groups.call(
        {("orders", 0): 1, ("payments", 1): 2}, version, generation=3, has_tags=has_tags
    )
    assert codes(call.response) == [error.code] * 2


def test_a_failed_write_is_told_for_every_partition(groups: Groups, has_tags: bool) -> None:
    groups.call({("orders", 0): 1})
    call = groups.call({("orders", 0): 2, ("payments", 1): 2}, has_tags=has_tags)
    groups.world.store.failure = NotEnoughReplicas("one is missing")
    groups.world.end_turn()
    assert codes(call.response) == [CoordinatorNotAvailable.code] * 2


def test_a_coordinator_that_fails_is_an_answer_too(
    groups: Groups,
    has_tags: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(groups.world.runtime, "gather", fail)
    call = groups.call({("orders", 0): 1}, has_tags=has_tags)
    assert codes(call.response) == [UnknownServerError.code]
    assert "OffsetCommit could not be answered" in caplog.text


def test_what_is_waited_for_is_told_when_the_broker_stops(groups: Groups, has_tags: bool) -> None:
    groups.call({("orders", 0): 1})
    call = groups.call({("orders", 0): 2}, has_tags=has_tags)
    groups.world.runtime.close()
    assert codes(call.response) != [0]
