"""Many items: each to its broker, each with an end of its own."""

from __future__ import annotations

import pytest

from millstream.client.admin.outcomes import Outcomes
from millstream.client.admin.tasks import Step, start
from millstream.client.admin.topics import NewTopic
from millstream.client.futures import Waiter
from millstream.errors import (
    ClientClosed,
    InvalidArgument,
    OperationTimeout,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import CreateTopicsResponse, DeleteRecordsResponse
from millstream.protocol.messages.create_topics import CreatableTopicResult
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopicResult,
)
from millstream.protocol.notation import VersionRange
from millstream.types import TopicPartition
from tests.unit.client.admin.office import Office


def deleted(request: DeleteRecordsRequest, code: int = 0) -> DeleteRecordsResponse:
    """Every partition that was asked for, at its offset."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index,
                        low_watermark=each.offset,
                        error_code=code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_items_are_grouped_by_the_broker_that_is_responsible() -> None:
    office = Office()
    office.cluster.add_topic("a", leaders=[1, 2, 2])
    office.cluster.add_topic("b", leaders=[2])
    office.answers(ApiKey.DELETE_RECORDS, deleted)
    before = {TopicPartition("a", i): i for i in range(3)} | {TopicPartition("b", 0): 9}

    found = office.run(office.operations.delete_records(before))

    assert dict(found) == before
    assert sorted(office.nodes(ApiKey.DELETE_RECORDS)) == [1, 2]


def test_an_item_whose_leader_moved_is_tried_again_and_the_others_are_not() -> None:
    office = Office()
    topic = office.cluster.add_topic("a", leaders=[1, 2])

    def moved(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        topic.leaders[1], topic.epochs[1] = 1, 1
        return deleted(request, 6 if request.topics[0].partitions[0].partition_index == 1 else 0)

    office.answers(ApiKey.DELETE_RECORDS, moved, moved, deleted)
    before = {TopicPartition("a", 0): 5, TopicPartition("a", 1): 5}

    found = office.run(office.operations.delete_records(before))

    assert dict(found) == before
    assert sorted(office.nodes(ApiKey.DELETE_RECORDS)) == [1, 1, 2]


def test_one_items_failure_is_its_own() -> None:
    office = Office()
    office.cluster.add_topic("a")
    office.cluster.add_topic("secret").error_code = 29
    office.cluster.topics["secret"].leaders.clear()
    office.answers(ApiKey.DELETE_RECORDS, deleted)
    good, bad = TopicPartition("a", 0), TopicPartition("secret", 0)
    nowhere = TopicPartition("nowhere", 0)

    found = office.run(office.operations.delete_records({good: 1, bad: 1, nowhere: 1}))

    assert dict(found.results) == {good: 1}
    assert isinstance(found.errors[bad], TopicAuthorizationFailed)
    assert isinstance(found.errors[nowhere], UnknownTopicOrPartition)
    assert list(found) == [good, bad, nowhere]
    with pytest.raises(TopicAuthorizationFailed):
        found[bad]


def test_what_the_deadline_finds_undone_is_timed_out() -> None:
    office = Office()
    office.cluster.add_topic("a", leaders=[1, 2])
    office.answers(
        ApiKey.DELETE_RECORDS,
        lambda request: (
            deleted(request) if request.topics[0].partitions[0].partition_index == 0 else None
        ),
    )
    done, open_ = TopicPartition("a", 0), TopicPartition("a", 1)

    found = office.run(office.operations.delete_records({done: 1, open_: 1}, timeout=3))

    assert dict(found.results) == {done: 1}
    assert isinstance(found.errors[open_], OperationTimeout)
    assert office.done_ms == 3_000


def test_an_error_that_does_not_go_away_is_named_when_time_is_up() -> None:
    office = Office()
    office.cluster.add_topic("a")
    office.answers(ApiKey.DELETE_RECORDS, lambda request: deleted(request, 56))
    item = TopicPartition("a", 0)

    found = office.run(office.operations.delete_records({item: 1}, timeout=5))

    assert "no answer within 5 s: " in str(found.errors[item])
    assert len(office.requests(ApiKey.DELETE_RECORDS)) < 12


def test_an_item_that_the_answer_lacks_has_failed() -> None:
    office = Office()
    office.cluster.add_topic("a")
    office.answers(ApiKey.DELETE_RECORDS, DeleteRecordsResponse())
    item = TopicPartition("a", 0)

    found = office.run(office.operations.delete_records({item: 1}))

    assert isinstance(found.errors[item], UnknownServerError)


def test_a_broker_that_goes_down_is_waited_for() -> None:
    office = Office()
    topic = office.cluster.add_topic("a", leaders=[2])
    item = TopicPartition("a", 0)

    def down(_request: DeleteRecordsRequest) -> None:
        office.cluster.stop("broker2")
        topic.leaders[0], topic.epochs[0] = 3, 1

    office.answers(ApiKey.DELETE_RECORDS, down, deleted)

    found = office.run(office.operations.delete_records({item: 4}))

    assert found[item] == 4
    assert office.nodes(ApiKey.DELETE_RECORDS) == [2, 3]


def test_the_controller_is_followed_and_otherwise_believed() -> None:
    office = Office()

    def not_here(_request: object) -> CreateTopicsResponse:
        office.cluster.controller_id = 2
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=each, error_code=41) for each in ("a", "b")]
        )

    answer = CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name="a", num_partitions=1, replication_factor=1),
            CreatableTopicResult(name="b", error_code=36, error_message="b is there"),
        ]
    )
    office.answers(ApiKey.CREATE_TOPICS, not_here, answer)

    found = office.run(office.operations.create_topics([NewTopic("a"), NewTopic("b")]))

    assert found["a"].partitions == 1
    assert isinstance(found.errors["b"], TopicAlreadyExists)
    assert str(found.errors["b"]) == "b is there"
    assert office.nodes(ApiKey.CREATE_TOPICS)[-1] == 2


def test_nothing_to_do_is_done_at_once() -> None:
    office = Office()

    assert len(office.run(office.operations.delete_topics([]))) == 0
    assert not office.cluster.asked


def test_a_wish_that_cannot_be_is_the_callers_error_and_harms_nobody() -> None:
    office = Office()

    with pytest.raises(InvalidArgument, match="give an assignment, or"):
        office.run(
            office.operations.create_topics([NewTopic("a", partitions=1, assignment={0: [1]})])
        )
    office.answers(ApiKey.CREATE_TOPICS, CreateTopicsResponse())
    found = office.run(office.operations.create_topics([NewTopic("a", partitions="x")]))  # type: ignore[arg-type]  # The fault.

    assert "no int32" in str(found.errors["a"])


def test_what_a_broker_is_too_old_for_is_said() -> None:
    office = Office(
        versions={ApiKey.METADATA: VersionRange(0, 7), ApiKey.LIST_OFFSETS: VersionRange(0, 4)}
    )
    office.cluster.add_topic("a")
    item = TopicPartition("a", 0)

    found = office.run(office.operations.list_offsets({item: "max_timestamp"}))

    assert isinstance(found.errors[item], UnsupportedVersion)
    assert "upgrade the broker" in str(found.errors[item])


def test_an_outcome_can_be_insisted_on() -> None:
    good: Outcomes[str, int] = Outcomes({"a": 1}, {})
    bad: Outcomes[str, int] = Outcomes({"a": 1}, {"b": OperationTimeout("late")})

    assert good.raise_first() is good
    assert good == {"a": 1}
    assert "late" in repr(bad)
    with pytest.raises(OperationTimeout):
        bad.raise_first()


def test_a_fault_inside_an_operation_reaches_whoever_waits() -> None:
    office = Office()

    async def faulty() -> None:
        step: Step[None] = Step()
        step.set_result(None)
        await step
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        office.run(faulty())


def test_an_operation_cannot_begin_after_the_end() -> None:
    office = Office()
    office.runtime.close()
    operation = office.operations.list_topics()

    with pytest.raises(ClientClosed):
        start(office.runtime, operation, Waiter())


def test_brokers_that_are_never_found_are_told() -> None:
    office = Office()
    office.cluster.stop("broker1")

    with pytest.raises(Exception, match="no broker reachable"):
        office.run(office.operations.list_groups(timeout=1))
