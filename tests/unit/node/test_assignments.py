"""Telling the controller where replicas are."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidRequest, KafkaStorageError, NotController
from millstream.node.assignments import (
    PARTITIONS_PER_REQUEST_MAX,
    RETRY_MS,
    AssignmentsManager,
)
from millstream.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from millstream.types import Uuid

TOPIC = Uuid(bytes([1]) * 16)
FIRST, SECOND = Uuid(bytes([2]) * 16), Uuid(bytes([3]) * 16)


def manager_of(name: str | None = "orders") -> AssignmentsManager:
    return AssignmentsManager(1, lambda _: name)


def assigned(request: AssignReplicasToDirsRequest | None) -> dict[tuple[Uuid, int], Uuid]:
    assert request is not None
    return {
        (topic.topic_id, partition.partition_index): directory.id
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }


def response_with(error_code: int, partition: int = 0) -> AssignReplicasToDirsResponse:
    data = AssignReplicasToDirsResponsePartitionData(
        partition_index=partition, error_code=error_code
    )
    topic = AssignReplicasToDirsResponseTopicData(topic_id=TOPIC, partitions=[data])
    directory = AssignReplicasToDirsResponseDirectoryData(id=FIRST, topics=[topic])
    return AssignReplicasToDirsResponse(directories=[directory])


def test_assignments_are_sent_together_and_at_once() -> None:
    manager = manager_of()
    manager.assign(TOPIC, 0, FIRST, 5)
    manager.assign(TOPIC, 1, SECOND, 6)
    manager.assign(TOPIC, 0, SECOND, 7)

    assert manager.next_deadline_ms == 5
    request = manager.take_request(44, 7)

    assert assigned(request) == {(TOPIC, 0): SECOND, (TOPIC, 1): SECOND}
    assert request is not None
    assert request.broker_epoch == 44


def test_what_comes_meanwhile_waits_for_the_answer() -> None:
    manager = manager_of()
    manager.assign(TOPIC, 0, FIRST, 0)
    manager.take_request(1, 0)
    manager.assign(TOPIC, 1, FIRST, 0)
    assert manager.take_request(1, 0) is None
    assert manager.next_deadline_ms is None

    manager.answered(AssignReplicasToDirsResponse(), 10)

    assert assigned(manager.take_request(1, 10)) == {(TOPIC, 1): FIRST}


def test_a_request_has_a_limit() -> None:
    manager = manager_of()
    for partition in range(PARTITIONS_PER_REQUEST_MAX + 1):
        manager.assign(TOPIC, partition, FIRST, 0)

    assert len(assigned(manager.take_request(1, 0))) == PARTITIONS_PER_REQUEST_MAX
    manager.answered(AssignReplicasToDirsResponse(), 0)
    assert len(assigned(manager.take_request(1, 0))) == 1


def test_a_request_that_failed_is_repeated_unless_it_is_outdated() -> None:
    manager = manager_of()
    manager.assign(TOPIC, 0, FIRST, 0)
    manager.assign(TOPIC, 1, FIRST, 0)
    manager.take_request(1, 0)
    manager.assign(TOPIC, 1, SECOND, 0)

    manager.answered(AssignReplicasToDirsResponse(error_code=NotController.code), 10)

    assert manager.next_deadline_ms == 10 + RETRY_MS
    assert manager.take_request(1, 10) is None
    assert assigned(manager.take_request(1, 10 + RETRY_MS)) == {
        (TOPIC, 0): FIRST,
        (TOPIC, 1): SECOND,
    }


@pytest.mark.parametrize(
    ("error_code", "retry_ms"), [(KafkaStorageError.code, RETRY_MS), (InvalidRequest.code, None)]
)
def test_a_replica_that_is_refused_for_good_is_not_tried_again(
    error_code: int, retry_ms: int | None
) -> None:
    manager = manager_of()
    manager.assign(TOPIC, 0, FIRST, 0)
    manager.take_request(1, 0)

    manager.answered(response_with(error_code), 0)

    assert manager.next_deadline_ms == retry_ms


def test_a_replica_that_is_gone_is_not_reported() -> None:
    manager = manager_of()
    manager.assign(TOPIC, 0, FIRST, 0)

    manager.forget(TOPIC, 0)

    assert manager.next_deadline_ms is None
    assert manager.take_request(1, 0) is None


def test_a_refusal_is_told_with_the_name_of_the_topic(caplog: pytest.LogCaptureFixture) -> None:
    manager = manager_of("orders")
    manager.assign(TOPIC, 0, FIRST, 0)
    manager.take_request(1, 0)

    manager.answered(response_with(InvalidRequest.code), 0)

    assert "orders-0 could not be assigned" in caplog.text
    assert str(TOPIC) not in caplog.text


def test_a_topic_that_was_deleted_meanwhile_needs_no_directory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager = manager_of(None)
    manager.assign(TOPIC, 0, FIRST, 0)
    manager.take_request(1, 0)

    manager.answered(response_with(KafkaStorageError.code), 0)

    assert caplog.text == ""
    assert manager.next_deadline_ms is None
