"""Moving replicas and naming directories: facts 6.6(14)."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.metadata.cluster import DIRECTORY_LOST, DIRECTORY_UNASSIGNED
from millstream.protocol.messages import alter_partition_reassignments as alter
from millstream.protocol.messages import assign_replicas_to_dirs as assign
from millstream.protocol.messages import list_partition_reassignments as listing
from millstream.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from millstream.types import Uuid
from tests.unit.controller.rig import Rig, directory


def reassign(rig: Rig, replicas: list[int] | None, topic: str = "t", **fields: Any) -> int:
    partition = alter.ReassignablePartition(partition_index=0, replicas=replicas)
    response = rig.ask(
        alter.AlterPartitionReassignmentsRequest(
            topics=[alter.ReassignableTopic(name=topic, partitions=[partition])], **fields
        )
    )
    assert response.error_code == 0
    code: int = response.responses[0].partitions[0].error_code
    return code


def report_isr(rig: Rig, isr: list[int]) -> int:
    partition = rig.partition("t")
    data = AlterPartitionRequestPartitionData(
        partition_index=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=each) for each in isr],
    )
    response = rig.ask(
        AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=rig.epoch_of(partition.leader),
            topics=[AlterPartitionRequestTopicData(topic_id=rig.topic_id("t"), partitions=[data])],
        )
    )
    code: int = response.topics[0].partitions[0].error_code
    return code


@pytest.fixture
def rig() -> Rig:
    rig = Rig([0, 1, 2, 3, 4])
    rig.create("t", [[0, 1, 2]])
    return rig


def test_rule_14_replicas_are_target_and_removing_until_all_adding_are_in_sync(rig: Rig) -> None:
    assert reassign(rig, [0, 3, 4]) == 0
    moving = rig.partition("t")
    assert (moving.replicas, moving.adding_replicas) == ((0, 3, 4, 1, 2), (3, 4))
    assert moving.removing_replicas == (1, 2)
    epoch = moving.leader_epoch

    assert report_isr(rig, [0, 1, 2, 3]) == 0
    assert rig.partition("t").is_reassigning
    assert report_isr(rig, [0, 1, 3, 4]) == 0

    done = rig.partition("t")
    assert (done.replicas, done.isr, done.is_reassigning) == ((0, 3, 4), (0, 3, 4), False)
    assert done.leader_epoch == epoch + 1  # replicas were removed
    assert done.directories == (directory(0), directory(3), directory(4))


def test_rule_14_with_fewer_replicas_each_that_stays_must_be_in_sync(rig: Rig) -> None:
    report_isr(rig, [0, 2])
    assert reassign(rig, [0, 1]) == 0
    assert rig.partition("t").removing_replicas == (2,)

    assert report_isr(rig, [0, 1, 2]) == 0

    assert (rig.partition("t").replicas, rig.partition("t").isr) == ((0, 1), (0, 1))


def test_rule_14_only_the_order_changes_at_once(rig: Rig) -> None:
    assert reassign(rig, [2, 1, 0]) == 0

    after = rig.partition("t")
    assert (after.replicas, after.leader, after.is_reassigning) == ((2, 1, 0), 0, False)


def test_rule_14_a_reassignment_is_cancelled(rig: Rig) -> None:
    reassign(rig, [0, 3, 4])

    assert reassign(rig, None) == 0

    after = rig.partition("t")
    assert (after.replicas, after.isr, after.is_reassigning) == ((0, 1, 2), (0, 1, 2), False)
    assert reassign(rig, None) == 85


def test_rule_14_cancelling_must_leave_somebody_in_sync(rig: Rig) -> None:
    reassign(rig, [3])
    rig.force("t", isr=[3], leader=3)

    assert reassign(rig, None) == 39


def test_rule_c100_the_same_target_again_does_not_end_a_reassignment(rig: Rig) -> None:
    reassign(rig, [0, 3, 4])
    before = rig.partition("t")

    assert reassign(rig, [0, 3, 4]) == 0

    after = rig.partition("t")
    assert after.is_reassigning
    assert (after.adding_replicas, after.removing_replicas) == ((3, 4), (1, 2))
    assert after.partition_epoch == before.partition_epoch


def test_rule_14_another_target_replaces_the_first(rig: Rig) -> None:
    reassign(rig, [0, 3, 4])

    assert reassign(rig, [0, 1, 4]) == 0

    after = rig.partition("t")
    assert (after.replicas, after.adding_replicas) == ((0, 1, 4, 2, 3), (4,))
    assert set(after.removing_replicas) == {2, 3}


@pytest.mark.parametrize("target", [[], [0, 0], [0, 9]])
def test_rule_14_a_target_that_cannot_be_is_refused(rig: Rig, target: list[int]) -> None:
    assert reassign(rig, target) == 39


def test_rule_14_unknown_partitions_are_refused(rig: Rig) -> None:
    assert reassign(rig, [0], topic="nope") == 3


def test_rule_14_the_replication_factor_may_be_kept(rig: Rig) -> None:
    assert reassign(rig, [3, 4], allow_replication_factor_change=False) == 38
    assert reassign(rig, [0, 3, 4], allow_replication_factor_change=False) == 0
    assert reassign(rig, [0, 1, 3], allow_replication_factor_change=False) == 0


def test_ongoing_reassignments_are_listed(rig: Rig) -> None:
    rig.create("quiet", [[0]])
    reassign(rig, [0, 3, 4])

    everything = rig.ask(listing.ListPartitionReassignmentsRequest(topics=None))
    named = rig.ask(
        listing.ListPartitionReassignmentsRequest(
            topics=[
                listing.ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 7]),
                listing.ListPartitionReassignmentsTopics(name="quiet", partition_indexes=[0]),
                listing.ListPartitionReassignmentsTopics(name="nope", partition_indexes=[0]),
            ]
        )
    )

    assert everything == named
    assert [each.name for each in everything.topics] == ["t"]
    found = everything.topics[0].partitions[0]
    assert (found.replicas, found.adding_replicas) == ([0, 3, 4, 1, 2], [3, 4])


def place(rig: Rig, broker_id: int, target: Uuid, partition: int = 0, **fields: Any) -> int:
    request = assign.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=fields.get("broker_epoch", rig.epoch_of(broker_id)),
        directories=[
            assign.AssignReplicasToDirsRequestDirectoryData(
                id=target,
                topics=[
                    assign.AssignReplicasToDirsRequestTopicData(
                        topic_id=fields.get("topic_id", rig.topic_id("t")),
                        partitions=[
                            assign.AssignReplicasToDirsRequestPartitionData(
                                partition_index=partition
                            )
                        ],
                    )
                ],
            )
        ],
    )
    response = rig.ask(request)
    if response.error_code:
        return int(response.error_code)
    return int(response.directories[0].topics[0].partitions[0].error_code)


@pytest.fixture
def directories() -> Rig:
    rig = Rig([1])
    rig.register(0, log_dirs=[directory(0, 0), directory(0, 1)])
    rig.beat(0)
    rig.create("t", [[0, 1]])
    return rig


def test_a_broker_says_in_which_directory_its_replica_is(directories: Rig) -> None:
    assert directories.partition("t").directories == (DIRECTORY_UNASSIGNED, directory(1))

    assert place(directories, 0, directory(0, 1)) == 0

    assert directories.partition("t").directories == (directory(0, 1), directory(1))


def test_a_replica_in_a_directory_that_is_gone_leads_no_more(directories: Rig) -> None:
    assert place(directories, 0, DIRECTORY_LOST) == 0

    after = directories.partition("t")
    assert (after.leader, after.isr) == (1, (1,))


def test_assignments_that_cannot_be_are_refused(directories: Rig) -> None:
    target = directory(0, 1)
    assert place(directories, 0, target, partition=5) == 3
    assert place(directories, 0, target, topic_id=Uuid(b"9" * 16)) == 100
    assert place(directories, 0, target, broker_epoch=12345) == 77
    directories.register(2)
    directories.beat(2)
    assert place(directories, 2, directory(2)) == 6


def test_directories_have_no_ids_before_metadata_version_17() -> None:
    rig = Rig([0], metadata_version=16)
    rig.create("t", [[0]])

    assert place(rig, 0, directory(0)) == 35
