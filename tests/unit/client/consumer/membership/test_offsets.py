"""Committing and asking for committed offsets, call by call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.client.consumer.membership.commits import OffsetCommits
from millstream.client.consumer.membership.offset_fetches import OffsetFetches
from millstream.client.groups import ConsumerGroupMetadata, OffsetAndMetadata
from millstream.client.router import Coordinator
from millstream.errors import (
    CommitFailed,
    IllegalGeneration,
    MillstreamError,
    NotCoordinator,
    OffsetMetadataTooLarge,
    OperationTimeout,
    RebalanceInProgress,
    StaleMemberEpoch,
    TopicAuthorizationFailed,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from millstream.types import TopicPartition, Uuid
from tests.unit.client.consumer.membership.group_world import (
    GROUP,
    FakeRouter,
    World,
    partitions,
    topic_id,
)

if TYPE_CHECKING:
    from millstream.client.consumer.membership.offset_fetches import CommittedOffsets

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Offsets:
    """Commits and fetches of one member."""

    def __init__(self, **sizes: int) -> None:
        self.world = World(**(sizes or {"t": 2}))
        self.router = FakeRouter()
        self.identity = ConsumerGroupMetadata(GROUP, 3, "m", "one")
        self.refusals: list[int] = []
        self.outcomes: list[object] = []
        self.commits = OffsetCommits(
            self.router,  # type: ignore[arg-type]  # a stand-in
            self.world.view,
            GROUP,
            lambda: self.identity,
            lambda code, now_ms: self.refusals.append(code),
        )
        self.fetches = OffsetFetches(
            self.router,  # type: ignore[arg-type]  # a stand-in
            self.world.view,
            GROUP,
            lambda: self.identity,
        )

    def commit(self, *, deadline_ms: int = 60_000, now_ms: int = 0, **offsets: int) -> None:
        """`t_0=5`."""
        wanted = {
            TopicPartition(name.rpartition("_")[0], int(name.rpartition("_")[2])): (
                OffsetAndMetadata(offset, "note", 4)
            )
            for name, offset in offsets.items()
        }
        self.commits.commit(wanted, now_ms, self.outcomes.append, deadline_ms)

    def fetch(self, text: str, deadline_ms: int = 60_000) -> None:
        def on_done(found: CommittedOffsets | MillstreamError) -> None:
            self.outcomes.append(found)

        self.fetches.fetch(partitions(text), 0, on_done, deadline_ms)

    def committed(self, **codes: int) -> None:
        """Answer the commit, with codes for partitions that have one."""
        asked = self.router.request(OffsetCommitRequest)
        answer = OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=each.partition_index,
                            error_code=codes.get(f"{topic.name}_{each.partition_index}", 0),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in asked.topics
            ]
        )
        self.router.answer(answer)


def test_a_commit_says_who_commits_what() -> None:
    offsets = Offsets()

    offsets.commit(t_1=7, t_0=5)

    assert offsets.router.target == Coordinator("group", GROUP)
    asked = offsets.router.request(OffsetCommitRequest)
    assert (asked.generation_id_or_member_epoch, asked.member_id) == (3, "m")
    assert asked.group_instance_id == "one"
    (topic,) = asked.topics
    assert (topic.name, topic.topic_id) == ("t", topic_id("t"))
    assert [
        (each.partition_index, each.committed_offset, each.committed_leader_epoch)
        for each in topic.partitions
    ] == [(0, 5, 4), (1, 7, 4)]
    assert topic.partitions[0].committed_metadata == "note"
    offsets.committed()
    assert offsets.outcomes == [None]


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_can_be_sent_in_every_version(version: int) -> None:
    offsets = Offsets()

    offsets.commit(t_0=5)

    asked = offsets.router.request(OffsetCommitRequest, version)
    assert asked.group_instance_id == ("one" if version >= 7 else None)


def test_topics_without_a_known_id_are_committed_by_name() -> None:
    offsets = Offsets(u=1)

    offsets.commit(t_0=5)

    assert offsets.router.highest == 9
    assert offsets.router.request(OffsetCommitRequest, 9).topics[0].name == "t"


def test_nothing_to_commit_is_committed_at_once() -> None:
    offsets = Offsets()

    offsets.commit()

    assert offsets.outcomes == [None]
    assert offsets.commits.is_idle


def test_commits_gather_while_one_is_under_way_and_the_later_offset_wins() -> None:
    offsets = Offsets()
    offsets.commit(t_0=5)

    offsets.commit(t_0=6)
    offsets.commit(t_0=7, t_1=1)
    assert not offsets.commits.is_idle
    offsets.committed()
    assert offsets.outcomes == [None]

    (topic,) = offsets.router.request(OffsetCommitRequest).topics
    assert [each.committed_offset for each in topic.partitions] == [7, 1]
    offsets.committed(t_1=OffsetMetadataTooLarge.code)
    assert offsets.outcomes[1] is None
    assert isinstance(offsets.outcomes[2], OffsetMetadataTooLarge)
    assert offsets.commits.is_idle


@pytest.mark.parametrize("code", [UnknownMemberId.code, IllegalGeneration.code])
def test_a_member_that_was_put_out_is_told_what_to_do(code: int) -> None:
    offsets = Offsets()
    offsets.commit(t_0=5)

    offsets.committed(t_0=code)

    (error,) = offsets.outcomes
    assert isinstance(error, CommitFailed)
    assert "t-0 may be read by another one" in str(error)
    assert "max_poll_interval" in str(error)
    assert offsets.refusals == [code]


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (RebalanceInProgress.code, RebalanceInProgress, r"call poll\(\)"),
        (TopicAuthorizationFailed.code, TopicAuthorizationFailed, "not allowed to read topic 't'"),
        (OffsetMetadataTooLarge.code, OffsetMetadataTooLarge, "^t-0: "),
    ],
)
def test_other_refusals_are_raised_as_they_are(
    code: int, kind: type[MillstreamError], said: str
) -> None:
    offsets = Offsets()
    offsets.commit(t_0=5)

    offsets.committed(t_0=code)

    (error,) = offsets.outcomes
    with pytest.raises(kind, match=said):
        raise error  # type: ignore[misc]  # it is an error


def test_codes_that_may_go_away_have_the_router_try_again() -> None:
    offsets = Offsets()
    offsets.commit(t_0=5)
    answer = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name="t",
                partitions=[OffsetCommitResponsePartition(error_code=NotCoordinator.code)],
            )
        ]
    )

    assert offsets.router.error_of(answer) == NotCoordinator.code


def test_a_commit_without_an_answer_fails_with_the_routers_error() -> None:
    offsets = Offsets()
    offsets.commit(t_0=5)

    offsets.router.answer(OperationTimeout("no answer"))

    assert isinstance(offsets.outcomes[0], OperationTimeout)


def test_a_commit_with_an_old_epoch_is_sent_again_with_the_new_one() -> None:
    offsets = Offsets()
    offsets.commit(t_0=5)
    offsets.committed(t_0=StaleMemberEpoch.code)
    assert offsets.outcomes == []

    offsets.commit(t_1=1)
    offsets.identity = ConsumerGroupMetadata(GROUP, 4, "m")
    assert offsets.commits.poll(50) == 100
    assert offsets.commits.poll(100) is None

    asked = offsets.router.request(OffsetCommitRequest)
    assert asked.generation_id_or_member_epoch == 4
    assert len(asked.topics[0].partitions) == 2
    offsets.committed()
    assert offsets.outcomes == [None, None]


def test_an_old_epoch_is_an_error_when_the_time_is_over() -> None:
    offsets = Offsets()
    offsets.commit(t_0=5, deadline_ms=0)

    offsets.committed(t_0=StaleMemberEpoch.code)

    assert isinstance(offsets.outcomes[0], StaleMemberEpoch)


# Asking.


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_can_be_asked_for_in_every_version(version: int) -> None:
    offsets = Offsets()

    offsets.fetch("t-0 t-1")

    asked = offsets.router.request(OffsetFetchRequest, version)
    assert asked.require_stable == (version >= 7)
    if version >= 8:
        assert (asked.groups[0].member_id, asked.groups[0].member_epoch) == ("m", 3)
    else:
        assert asked.topics is not None
        assert asked.topics[0].partition_indexes == [0, 1]


def test_committed_offsets_come_by_topic_id() -> None:
    offsets = Offsets()
    offsets.fetch("t-0 t-1")

    offsets.router.answer(
        OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    topics=[
                        OffsetFetchResponseTopics(
                            topic_id=topic_id("t"),
                            partitions=[
                                OffsetFetchResponsePartitions(
                                    partition_index=0,
                                    committed_offset=5,
                                    committed_leader_epoch=2,
                                    metadata="x",
                                ),
                                OffsetFetchResponsePartitions(
                                    partition_index=1, committed_offset=-1
                                ),
                            ],
                        ),
                        OffsetFetchResponseTopics(topic_id=Uuid(bytes(15) + b"\7")),
                    ]
                )
            ]
        )
    )

    assert offsets.outcomes == [{T0: OffsetAndMetadata(5, "x", 2), T1: None}]


def old_answer(code: int = 0, group_code: int = 0) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartition(
        partition_index=0, committed_offset=5, metadata=None, error_code=code
    )
    topic = OffsetFetchResponseTopic(name="t", partitions=[partition])
    return OffsetFetchResponse(topics=[topic], error_code=group_code)


def test_committed_offsets_come_by_name_from_older_brokers() -> None:
    offsets = Offsets()
    offsets.fetch("t-0")

    offsets.router.answer(old_answer())

    assert offsets.outcomes == [{T0: OffsetAndMetadata(5)}]


def test_an_undecided_transaction_is_waited_for() -> None:
    offsets = Offsets()
    offsets.fetch("t-0")

    assert offsets.router.error_of(old_answer(UnstableOffsetCommit.code)) == 88
    assert offsets.router.error_of(old_answer(group_code=NotCoordinator.code)) == 16
    assert offsets.router.error_of(old_answer()) == 0


def test_a_member_whose_epoch_went_on_asks_again() -> None:
    offsets = Offsets()
    offsets.fetch("t-0")

    offsets.router.answer(old_answer(group_code=StaleMemberEpoch.code))
    assert offsets.outcomes == []
    assert offsets.fetches.poll(99) == 100
    offsets.fetches.poll(100)
    offsets.router.answer(old_answer())

    assert offsets.outcomes == [{T0: OffsetAndMetadata(5)}]


def test_errors_of_the_group_and_of_a_partition_are_raised() -> None:
    offsets = Offsets()
    for answer in (
        old_answer(group_code=30),
        old_answer(TopicAuthorizationFailed.code),
        OperationTimeout("late"),
    ):
        offsets.fetch("t-0")
        offsets.router.answer(answer)

    group, topic, late = offsets.outcomes
    assert type(group).__name__ == "GroupAuthorizationFailed"
    assert str(topic).startswith("t-0: ")
    assert isinstance(late, OperationTimeout)


def test_asking_for_nothing_is_answered_at_once() -> None:
    offsets = Offsets()

    offsets.fetch("")

    assert offsets.outcomes == [{}]
