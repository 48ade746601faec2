"""AlterPartition: facts 6.6(9) and 6.6(10)."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.protocol.messages.unregister_broker import UnregisterBrokerRequest
from millstream.types import Uuid
from tests.unit.controller.rig import Rig


@pytest.fixture
def rig() -> Rig:
    rig = Rig([0, 1, 2, 3])
    rig.create("t", [[0, 1, 2]])
    return rig


def request(rig: Rig, isr: list[int], **changes: Any) -> AlterPartitionRequest:
    partition = rig.partition("t")
    sender = changes.pop("sender", partition.leader)
    topic_id = changes.pop("topic_id", rig.topic_id("t"))
    epochs = changes.pop("epochs", {})
    fields: dict[str, Any] = {
        "partition_index": 0,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "new_isr_with_epochs": [
            BrokerState(broker_id=each, broker_epoch=epochs.get(each, rig.epoch_of(each)))
            for each in isr
        ],
    }
    return AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=changes.pop("broker_epoch", rig.epoch_of(sender)),
        topics=[
            AlterPartitionRequestTopicData(
                topic_id=topic_id,
                partitions=[AlterPartitionRequestPartitionData(**(fields | changes))],
            )
        ],
    )


def alter(rig: Rig, isr: list[int], **changes: Any) -> AlterPartitionResponsePartitionData:
    response = rig.ask(request(rig, isr, **changes))
    assert response.error_code == 0
    answer: AlterPartitionResponsePartitionData = response.topics[0].partitions[0]
    return answer


def test_rule_9_the_new_isr_is_taken_over_and_answered(rig: Rig) -> None:
    answer = alter(rig, [0, 1])

    assert (answer.error_code, answer.isr, answer.leader_id) == (0, [0, 1], 0)
    assert answer.partition_epoch == 1
    assert rig.partition("t").isr == (0, 1)


def test_rule_10_an_isr_change_raises_the_partition_epoch_and_not_the_leader_epoch(
    rig: Rig,
) -> None:
    before = rig.partition("t")

    alter(rig, [0])
    alter(rig, [0, 1, 2])

    after = rig.partition("t")
    assert after.partition_epoch == before.partition_epoch + 2
    assert after.leader_epoch == before.leader_epoch


def test_rule_10_before_metadata_version_12_a_shrink_raises_the_leader_epoch() -> None:
    rig = Rig([0, 1, 2], metadata_version=11)
    rig.create("t", [[0, 1, 2]])

    alter(rig, [0, 1])

    assert rig.partition("t").leader_epoch == 1


def test_an_unchanged_isr_writes_nothing(rig: Rig) -> None:
    assert rig.records_of(request(rig, [0, 1, 2])) == []


@pytest.mark.parametrize("broker_epoch", [0, 10_000])
def test_a_sender_of_another_epoch_is_stale(rig: Rig, broker_epoch: int) -> None:
    assert rig.ask(request(rig, [0], broker_epoch=broker_epoch)).error_code == 77


def test_a_sender_that_is_not_registered_is_stale(rig: Rig) -> None:
    asked = request(rig, [0])
    asked.broker_id = 99

    assert rig.ask(asked).error_code == 77


def test_rule_9_unknown_topic_id(rig: Rig) -> None:
    assert alter(rig, [0], topic_id=Uuid(b"9" * 16)).error_code == 100


def test_rule_9_unknown_partition(rig: Rig) -> None:
    assert alter(rig, [0], partition_index=7).error_code == 3


def test_rule_9_a_higher_epoch_than_ours_means_we_are_not_the_controller(rig: Rig) -> None:
    assert alter(rig, [0], leader_epoch=5).error_code == 41
    assert alter(rig, [0], partition_epoch=5).error_code == 41


def test_rule_9_a_lower_leader_epoch_is_fenced(rig: Rig) -> None:
    rig.force("t", leader=0)

    assert alter(rig, [0], leader_epoch=0).error_code == 74


def test_rule_9_only_the_leader_may_ask(rig: Rig) -> None:
    assert alter(rig, [0, 1], sender=1).error_code == 42


def test_rule_9_a_lower_partition_epoch_is_an_invalid_update_version(rig: Rig) -> None:
    alter(rig, [0, 1])

    assert alter(rig, [0], partition_epoch=0).error_code == 95


@pytest.mark.parametrize("isr", [[0, 3], [1, 2], [0, 0], []])
def test_rule_9_an_isr_that_cannot_be_is_invalid(rig: Rig, isr: list[int]) -> None:
    assert alter(rig, isr).error_code == 42


def test_rule_9_a_recovering_leader_is_alone(rig: Rig) -> None:
    rig.force("t", leader_recovery_state=1, isr=[0])

    assert alter(rig, [0, 1], leader_recovery_state=1).error_code == 42
    assert alter(rig, [0], leader_recovery_state=7).error_code == 42
    assert alter(rig, [0, 1], leader_recovery_state=0).error_code == 0
    assert rig.partition("t").leader_recovery_state == 0


def test_rule_9_recovery_does_not_begin_by_request(rig: Rig) -> None:
    assert alter(rig, [0], leader_recovery_state=1).error_code == 42


def test_rule_9_a_fenced_member_is_ineligible(rig: Rig) -> None:
    rig.fence(2)

    assert alter(rig, [0, 1, 2]).error_code == 107


def test_rule_9_a_member_that_is_shutting_down_is_ineligible(rig: Rig) -> None:
    rig.create("led-by-2", [[2, 1]])
    assert not rig.beat(2, want_shut_down=True).should_shut_down

    assert alter(rig, [0, 1, 2]).error_code == 107


def test_rule_9_an_unregistered_member_is_ineligible(rig: Rig) -> None:
    rig.create("u", [[0, 3]])
    rig.fence(3)
    epoch = rig.epoch_of(3)
    rig.ask(UnregisterBrokerRequest(broker_id=3))
    partition = rig.partition("u")
    asked = request(rig, [0])
    asked.topics[0].topic_id = rig.topic_id("u")
    data = asked.topics[0].partitions[0]
    data.partition_epoch, data.leader_epoch = partition.partition_epoch, partition.leader_epoch
    data.new_isr_with_epochs.append(BrokerState(broker_id=3, broker_epoch=epoch))

    assert rig.ask(asked).topics[0].partitions[0].error_code == 107


def test_rule_9_a_member_of_another_broker_epoch_is_ineligible(rig: Rig) -> None:
    alter(rig, [0])

    assert alter(rig, [0, 1], epochs={1: 12345}).error_code == 107
    assert alter(rig, [0, 1], epochs={1: -1}).error_code == 0


def test_versions_before_3_name_members_without_epochs(rig: Rig) -> None:
    asked = request(rig, [0])
    asked.topics[0].partitions[0].new_isr_with_epochs = []
    asked.topics[0].partitions[0].new_isr = [0, 2]

    rig.ask(asked, version=2)

    assert rig.partition("t").isr == (0, 2)


def test_rule_9_completing_a_reassignment_that_moves_the_leader_is_done_and_reported(
    rig: Rig,
) -> None:
    rig.ask(
        AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="t",
                    partitions=[ReassignablePartition(partition_index=0, replicas=[3, 1, 2])],
                )
            ]
        )
    )
    assert rig.partition("t").replicas == (3, 1, 2, 0)

    answer = alter(rig, [0, 1, 2, 3])

    assert answer.error_code == 108
    after = rig.partition("t")
    assert (after.leader, after.replicas, after.isr) == (3, (3, 1, 2), (1, 2, 3))
    assert not after.is_reassigning
