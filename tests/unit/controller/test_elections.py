"""Elections and eligible leader replicas: facts 6.6(11), 6.6(12) and 6.6(13)."""

from __future__ import annotations

import pytest

from millstream.metadata.cluster import DIRECTORY_LOST
from millstream.metadata.topics import LeaderRecoveryState
from millstream.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from millstream.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.unit.controller.rig import Rig, directory
from tests.unit.controller.test_configuration_control import set_topic

PREFERRED, UNCLEAN = 0, 1
NO_ELR = {"eligible.leader.replicas.version": 0}


def elect(rig: Rig, kind: int, topic: str = "t", partition: int = 0) -> int:
    response = rig.ask(
        ElectLeadersRequest(
            election_type=kind,
            topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])],
        )
    )
    assert response.error_code == 0
    code: int = response.replica_election_results[0].partition_result[0].error_code
    return code


def crash(rig: Rig, broker_id: int) -> None:
    """A broker dies without a word and its session ends; the others go on."""
    others = [each for each in rig.image.cluster.brokers if each != broker_id]
    for _ in range(5):
        rig.tick(2000)
        for other in others:
            if not rig.image.cluster.brokers[other].is_fenced:
                rig.beat(other)
    assert rig.image.cluster.brokers[broker_id].is_fenced


def come_back(rig: Rig, broker_id: int, *, was_clean: bool, number: int = 2) -> None:
    """A broker restarts as another incarnation and is unfenced."""
    previous = rig.epoch_of(broker_id) if was_clean else -1
    rig.register(broker_id, incarnation_number=number, previous_broker_epoch=previous)
    assert not rig.beat(broker_id).is_fenced


def test_rule_12_the_leader_stays_while_it_is_fit() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 1, 2]])

    rig.fence(1)

    assert (rig.partition("t").leader, rig.partition("t").isr) == (0, (0, 2))
    assert rig.partition("t").leader_epoch == 0


def test_rule_12_the_first_fit_replica_in_order_of_assignment_follows() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 2, 1]])

    rig.fence(0)

    assert (rig.partition("t").leader, rig.partition("t").leader_epoch) == (2, 1)


def test_rule_12_without_elr_the_last_member_stays_in_the_isr() -> None:
    rig = Rig([0, 1], features=NO_ELR)
    rig.create("t", [[0, 1]])

    rig.fence(1)
    rig.fence(0)

    assert (rig.partition("t").leader, rig.partition("t").isr) == (-1, (0,))
    rig.beat(1)
    assert rig.partition("t").leader == -1
    rig.beat(0)
    assert rig.partition("t").leader == 0


def test_rule_12_unclean_election_by_topic_setting_picks_the_first_alive_replica() -> None:
    rig = Rig([0, 1], features=NO_ELR)
    rig.create("t", [[0, 1]], unclean_leader_election_enable="true")

    rig.fence(1)
    rig.fence(0)
    rig.beat(1)

    after = rig.partition("t")
    assert (after.leader, after.isr) == (1, (1,))
    assert after.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_rule_12_unclean_election_on_request() -> None:
    rig = Rig([0, 1, 2], features=NO_ELR)
    rig.create("t", [[0, 1]])
    rig.fence(1)
    rig.fence(0)
    assert elect(rig, UNCLEAN) == 83

    rig.beat(1)
    assert elect(rig, UNCLEAN) == 0

    assert rig.partition("t").isr == (1,)
    assert elect(rig, UNCLEAN) == 84


def test_rule_12_preferred_election_on_request() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 1, 2]])
    assert elect(rig, PREFERRED) == 84
    rig.fence(0)

    assert elect(rig, PREFERRED) == 80
    rig.beat(0)
    assert elect(rig, PREFERRED) == 80  # alive, but not in sync
    rig.force("t", isr=[1, 2, 0])

    assert elect(rig, PREFERRED) == 0
    assert rig.partition("t").leader == 0


def test_elections_of_unknown_partitions_and_types_are_refused() -> None:
    rig = Rig([0])

    assert elect(rig, PREFERRED, topic="nope") == 3
    response = rig.ask(
        ElectLeadersRequest(
            election_type=9, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]
        )
    )
    assert response.error_code == 42
    assert response.replica_election_results[0].partition_result[0].error_code == 42


def test_an_election_of_everything_names_only_those_that_were_needed() -> None:
    rig = Rig([0, 1])
    rig.create("a", [[0, 1]])
    rig.create("b", [[1, 0]])
    rig.force("b", leader=0)

    response = rig.ask(ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None))

    assert [each.topic for each in response.replica_election_results] == ["b"]
    assert rig.partition("b").leader == 1


def test_rule_12_leaderships_move_back_every_300_seconds() -> None:
    rig = Rig([0, 1], broker_session_timeout_ms=1_000_000)
    rig.create("t", [[0, 1]])
    rig.force("t", leader=1)

    rig.tick(299_999)
    assert rig.partition("t").leader == 1
    rig.tick(1)
    assert rig.partition("t").leader == 0


def test_rule_12_leaderships_stay_where_rebalancing_is_off() -> None:
    rig = Rig([0, 1], broker_session_timeout_ms=1_000_000, auto_leader_rebalance_enable=False)
    rig.create("t", [[0, 1]])
    rig.force("t", leader=1)

    rig.tick(300_000)

    assert rig.partition("t").leader == 1


def test_rule_12_a_pass_moves_at_most_1000_leaders_and_the_next_follows_at_once() -> None:
    rig = Rig([0, 1], broker_session_timeout_ms=10_000_000, metadata_max_idle_interval_ms=0)
    rig.create("t", [[0, 1]] * 1500)
    term = rig.controller._term
    assert term is not None
    for partition in range(1500):
        rig.force("t", partition, leader=1)

    rig.tick(300_000)
    assert len(term.state.index.imbalanced) == 500
    assert rig.controller.next_deadline_ms == rig.now_ms
    rig.tick(0)
    assert not term.state.index.imbalanced


def test_rule_12_unclean_elections_are_tried_every_5_minutes() -> None:
    rig = Rig([0, 1], features=NO_ELR, broker_session_timeout_ms=1_000_000)
    rig.create("t", [[0, 1]])
    rig.fence(1)
    rig.fence(0)
    rig.beat(1)

    assert set_topic(rig, "t", "unclean.leader.election.enable", "true") == 0

    rig.tick(300_000)

    assert rig.partition("t").leader == 1


def test_rule_11_members_that_leave_an_isr_below_the_minimum_become_eligible() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 1, 2]], min_insync_replicas="2")

    rig.fence(2)
    assert rig.partition("t").elr == ()
    rig.fence(1)

    after = rig.partition("t")
    assert (after.isr, after.elr, after.leader) == ((0,), (1,), 0)


def test_rule_11_an_isr_at_the_minimum_clears_the_eligible() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 1, 2]], min_insync_replicas="2")
    rig.fence(2)
    rig.fence(1)
    rig.beat(2)
    before = rig.partition("t")

    rig.ask(
        AlterPartitionRequest(
            broker_id=0,
            broker_epoch=rig.epoch_of(0),
            topics=[
                AlterPartitionRequestTopicData(
                    topic_id=rig.topic_id("t"),
                    partitions=[
                        AlterPartitionRequestPartitionData(
                            partition_index=0,
                            leader_epoch=before.leader_epoch,
                            partition_epoch=before.partition_epoch,
                            new_isr_with_epochs=[
                                BrokerState(broker_id=0),
                                BrokerState(broker_id=2),
                            ],
                        )
                    ],
                )
            ],
        )
    )

    assert (rig.partition("t").isr, rig.partition("t").elr) == ((0, 2), ())


def test_rule_11_the_isr_may_become_empty_and_an_eligible_replica_is_elected_cleanly() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 1, 2]], min_insync_replicas="2")
    for broker_id in (2, 1, 0):
        rig.fence(broker_id)
    leaderless = rig.partition("t")
    assert (leaderless.leader, leaderless.isr, leaderless.elr) == (-1, (), (0, 1))
    assert leaderless.last_known_elr == (0,)

    rig.beat(1)

    after = rig.partition("t")
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (1, (1,), (0,), ())
    assert after.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_rule_11_a_replica_that_is_not_eligible_is_not_elected() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 1, 2]], min_insync_replicas="2")
    for broker_id in (2, 1, 0):
        rig.fence(broker_id)

    rig.beat(2)

    assert rig.partition("t").leader == -1


def test_rule_11_an_unclean_shutdown_ends_eligibility() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 1, 2]], min_insync_replicas="2")
    crash(rig, 2)
    crash(rig, 1)
    assert rig.partition("t").elr == (1,)

    rig.register(1, incarnation_number=2, previous_broker_epoch=-1)

    assert rig.partition("t").elr == ()


def test_rule_11_a_clean_shutdown_is_proven_by_the_previous_broker_epoch() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 1, 2]], min_insync_replicas="2")
    crash(rig, 2)
    crash(rig, 1)

    come_back(rig, 1, was_clean=True)

    assert rig.partition("t").elr == (1,)


def test_rule_c88_a_leader_that_goes_is_remembered_whatever_becomes_of_the_isr() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[0]])
    rig.force("t", isr=[])
    rig.fence(0)
    term = rig.controller._term
    assert term is not None

    change = term.controls.replication.builder(rig.image.topics.by_name["t"], 0).build()

    assert change is not None
    assert (change.leader, change.isr, change.last_known_elr) == (-1, None, [0])


def test_rule_11_the_last_known_leader_is_elected_when_nobody_else_can_be() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[0, 1]])
    crash(rig, 1)
    crash(rig, 0)
    assert rig.partition("t").elr == (0,)

    come_back(rig, 1, was_clean=False)
    assert rig.partition("t").leader == -1
    come_back(rig, 0, was_clean=False)

    after = rig.partition("t")
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (0, (0,), (), ())
    assert after.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_rule_13_a_leader_must_be_unfenced_and_not_shutting_down() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 1, 2]])
    rig.beat(0, want_shut_down=True)
    assert (rig.partition("t").leader, rig.partition("t").isr) == (1, (1, 2))

    rig.fence(1)

    assert rig.partition("t").leader == 2


def test_rule_13_a_leader_needs_its_directory() -> None:
    rig = Rig([1])
    rig.register(0, log_dirs=[directory(0, 0), directory(0, 1)])
    rig.beat(0)
    rig.create("t", [[0, 1]])
    rig.force("t", directories=[directory(0, 1), directory(1)])

    rig.beat(0, offline_log_dirs=[directory(0, 1)])

    assert (rig.partition("t").leader, rig.partition("t").isr) == (1, (1,))
    assert rig.image.cluster.brokers[0].directories == (directory(0, 0),)
    rig.fence(1)
    assert rig.partition("t").leader == -1


def test_rule_13_a_lost_directory_cannot_lead() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[0, 1]])
    rig.force("t", directories=[directory(0), DIRECTORY_LOST])

    rig.fence(0)

    assert rig.partition("t").leader == -1


@pytest.mark.parametrize("features", [NO_ELR, {}])
def test_a_partition_without_change_makes_no_record(features: dict[str, int]) -> None:
    rig = Rig([0, 1, 2], features=features)
    rig.create("t", [[0, 1]])
    before = len(rig.log.records)

    rig.fence(2)

    assert len(rig.log.records) == before + 1
