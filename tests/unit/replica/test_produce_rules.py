"""The rules of Produce (facts 6.1), each by its number."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import (
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    TransactionAbortable,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from millstream.metadata.topics import NO_LEADER
from millstream.storage.log.config import LogConfig
from millstream.types import TopicPartition
from tests.unit.replica.fakes import FakeVerifier
from tests.unit.replica.harness import (
    LOCAL,
    World,
    asked,
    codes,
    error_codes,
    sizes,
    topic_id,
)
from tests.unit.storage.batches import batch_bytes

DISK = LogConfig(durability="disk")


@pytest.fixture
def world() -> World:
    """A broker that leads t-0 and t-1 alone."""
    world = World()
    world.create(partitions=2)
    return world


@pytest.fixture
def replicated() -> World:
    """A broker that leads t-0, with a follower in sync and min.insync.replicas=2."""
    world = World()
    world.register(2)
    world.create(replicas=(LOCAL, 2), config=LogConfig(min_insync_replicas=2))
    return world


@pytest.mark.parametrize("acks", [-2, 2, 100])
def test_rule_1_other_acks_fail_every_partition(world: World, acks: int) -> None:
    reply = world.produce(batch_bytes(), batch_bytes(), acks=acks)

    assert codes(reply.value) == [InvalidRequiredAcks.code] * 2
    assert world.partition().log.log_end_offset == 0


def test_rule_2_without_acks_nothing_is_waited_for(replicated: World) -> None:
    reply = replicated.produce(acks=0)

    assert reply.value[0].base_offset == 0
    assert replicated.partition().log.high_watermark == 0


def test_rule_3_acks_all_is_refused_before_the_append_below_min_isr(replicated: World) -> None:
    replicated.change(isr=[LOCAL])

    refused = replicated.produce(acks=-1)

    assert codes(refused.value) == [NotEnoughReplicas.code]
    assert replicated.partition().log.log_end_offset == 0


@pytest.mark.parametrize("acks", [0, 1])
def test_rule_3_other_acks_are_accepted_below_min_isr(replicated: World, acks: int) -> None:
    replicated.change(isr=[LOCAL])

    assert codes(replicated.produce(acks=acks).value) == [0]


def test_rule_3_min_isr_is_at_most_the_replication_factor() -> None:
    world = World()
    world.create(config=LogConfig(min_insync_replicas=3))

    assert codes(world.produce(acks=-1).value) == [0]


def test_rule_4_acks_all_completes_when_the_high_watermark_passes_the_records(
    replicated: World,
) -> None:
    reply = replicated.produce(batch_bytes(records=3))
    replicated.follow(2)
    replicated.settle()
    assert reply.is_pending

    replicated.follow(3)
    replicated.settle()

    assert [result.base_offset for result in reply.value] == [0]


def test_rule_4_committed_with_too_few_replicas_is_an_error_and_the_records_stay(
    replicated: World,
) -> None:
    reply = replicated.produce()
    replicated.configure("t", LogConfig(min_insync_replicas=1))
    replicated.fence(2)
    replicated.change(isr=[LOCAL])
    # Committed by the leader alone, and in the same breath the topic asks for two again.
    replicated.configure("t", LogConfig(min_insync_replicas=2))

    replicated.settle()

    assert codes(reply.value) == [NotEnoughReplicasAfterAppend.code]
    assert replicated.partition().log.log_end_offset == 1


def test_rule_4_a_timeout_is_exact_and_the_records_stay(replicated: World) -> None:
    reply = replicated.produce(timeout_ms=1000)
    replicated.pass_time(999)
    assert reply.is_pending

    replicated.pass_time(1)

    assert codes(reply.value) == [RequestTimedOut.code]
    assert replicated.partition().log.log_end_offset == 1


def test_rule_4_lost_leadership_ends_the_wait(replicated: World) -> None:
    reply = replicated.produce()

    replicated.change(leader=2)
    replicated.settle()

    assert codes(reply.value) == [NotLeaderOrFollower.code]


def test_rule_4_leadership_lost_and_won_again_meanwhile_ends_the_wait_too(
    replicated: World,
) -> None:
    reply = replicated.produce()

    replicated.change(leader=2)
    replicated.change(leader=LOCAL)
    replicated.settle()

    assert codes(reply.value) == [NotLeaderOrFollower.code]


def test_rule_4_a_new_epoch_of_the_same_leader_does_not_end_the_wait(replicated: World) -> None:
    reply = replicated.produce()
    replicated.change(leader=LOCAL)
    replicated.settle()
    assert reply.is_pending

    replicated.follow(1)
    replicated.settle()

    assert codes(reply.value) == [0]


def test_rule_4_a_deleted_topic_ends_the_wait(replicated: World) -> None:
    reply = replicated.produce()

    replicated.remove()
    replicated.settle()

    assert codes(reply.value) == [NotLeaderOrFollower.code]


def test_rule_5_the_high_watermark_stands_still_below_min_isr(replicated: World) -> None:
    replicated.change(isr=[LOCAL])

    replicated.produce(acks=1)
    seen = replicated.fetch(asked(0))

    assert sizes(seen.value) == [0]
    assert replicated.partition().log.high_watermark == 0


def test_rule_6_a_failing_partition_does_not_affect_others(world: World) -> None:
    broken = bytearray(batch_bytes())
    broken[70] ^= 1

    results = world.produce(bytes(broken), batch_bytes(), batch_bytes()).value

    assert [result.base_offset for result in results] == [-1, 0, -1]
    assert codes(results)[1] == 0
    assert codes(results)[2] == UnknownTopicOrPartition.code


def test_rule_6_a_partition_that_failed_is_not_waited_for(replicated: World) -> None:
    reply = replicated.produce(batch_bytes(), batch_bytes())
    replicated.follow(1)
    replicated.settle()

    assert codes(reply.value) == [0, UnknownTopicOrPartition.code]


def test_rule_6_null_records_are_refused(world: World) -> None:
    results = world.manager.append([("t", 0, None), ("t", 1, batch_bytes())], 1, 0, print)

    assert results is not None
    assert codes(results) == [InvalidRecord.code, 0]


def test_rule_7_unknown_names_and_ids_have_errors_of_their_own(world: World) -> None:
    by_name = world.produce(topic="nobody").value
    by_id = world.produce(topic=topic_id("nobody")).value
    no_partition = world.produce(topic=topic_id("t"), index=7).value

    assert codes(by_name) == [UnknownTopicOrPartition.code]
    assert codes(by_id) == [UnknownTopicId.code]
    assert codes(no_partition) == [UnknownTopicOrPartition.code]


def test_rule_7_topics_are_found_by_id(world: World) -> None:
    assert codes(world.produce(topic=topic_id("t")).value) == [0]


def test_rule_7_a_partition_led_elsewhere_says_so(world: World) -> None:
    world.register(2)
    world.create("elsewhere", replicas=(2,))
    world.create("follows", replicas=(2, LOCAL))

    assert codes(world.produce(topic="elsewhere").value) == [NotLeaderOrFollower.code]
    assert codes(world.produce(topic="follows").value) == [NotLeaderOrFollower.code]
    assert world.partition("follows").leader_id == 2


def test_rule_8_internal_topics_are_for_the_broker_and_its_admin_client(world: World) -> None:
    world.create("__consumer_offsets")

    refused = world.produce(topic="__consumer_offsets").value
    allowed = world.produce(topic="__consumer_offsets", allows_internal=True).value

    assert codes(refused) == [InvalidTopic.code]
    assert codes(allowed) == [0]


def transactional(pid: int, sequence: int = 0) -> bytes:
    """A batch of a transaction."""
    return batch_bytes(pid=pid, epoch=0, sequence=sequence, is_transactional=True)


def test_rule_9_transactional_batches_of_two_producers_fail_the_request() -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.create(partitions=2)

    reply = world.produce(transactional(1), transactional(2), transactional_id="x")

    assert codes(reply.value) == [InvalidProducerIdMapping.code] * 2
    assert verifier.questions == []


# Transactions are verified before they begin here (6.3, rules 7 and 8).


def test_the_first_batch_of_a_transaction_waits_for_its_coordinators_word() -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.create(partitions=2)

    reply = world.produce(transactional(7), batch_bytes(), transactional_id="x")
    assert reply.is_pending
    assert verifier.questions == [("x", 7, 0, [TopicPartition("t", 0)], True)]
    verifier.answers[0]({})

    assert codes(reply.value) == [0, 0]


def test_later_batches_of_an_open_transaction_are_not_verified_again() -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.create()
    world.produce(transactional(7), transactional_id="x")
    verifier.answers[0]({})

    reply = world.produce(transactional(7, sequence=1), transactional_id="x")

    assert codes(reply.value) == [0]
    assert len(verifier.questions) == 1


def test_a_partition_that_is_not_in_the_transaction_is_refused_alone() -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.create(partitions=2)

    reply = world.produce(
        transactional(7), transactional(7), transactional_id="x", adds_partitions=False
    )
    verifier.answers[0]({TopicPartition("t", 0): TransactionAbortable()})

    assert codes(reply.value) == [TransactionAbortable.code, 0]
    assert verifier.questions[0][4] is False


# Durability on disk (DESIGN D8).


@pytest.mark.parametrize("acks", [1, -1])
def test_on_a_disk_topic_an_acknowledgement_waits_for_the_disk(acks: int) -> None:
    world = World()
    world.create(config=DISK)

    reply = world.produce(acks=acks)
    assert reply.is_pending
    assert sizes(world.fetch(asked(0)).value) == [0]
    world.settle()

    assert codes(reply.value) == [0]
    assert sizes(world.fetch(asked(0)).value) != [0]


@pytest.mark.parametrize("leads_again", [False, True])
@pytest.mark.parametrize("in_sync", [{}, {"isr": [], "eligible_leader_replicas": [LOCAL]}])
@pytest.mark.parametrize("acks", [1, -1])
def test_on_a_disk_topic_the_wait_survives_that_nobody_leads(
    acks: int, in_sync: dict[str, Any], leads_again: bool
) -> None:
    world = World()
    world.create(config=DISK)
    reply = world.produce(acks=acks)

    # As the controller does when the broker of the only replica in sync stops.
    world.change(leader=NO_LEADER, **in_sync)
    world.settle_wakes()
    assert codes(world.produce(acks=acks).value) == [NotLeaderOrFollower.code]
    if leads_again:
        world.change(leader=LOCAL, isr=[LOCAL])
    world.settle()

    assert codes(reply.value) == [0]


@pytest.mark.parametrize("then", ["deleted", "led elsewhere"])
def test_on_a_disk_topic_the_wait_ends_when_the_log_may_be_cut(then: str) -> None:
    world = World()
    world.register(2)
    world.create(config=DISK, replicas=(LOCAL, 2), isr=[LOCAL])
    reply = world.produce()

    world.change(leader=NO_LEADER)
    if then == "deleted":
        world.remove()
    else:
        world.change(leader=2, isr=[2])
    world.settle()

    assert codes(reply.value) == [NotLeaderOrFollower.code]


def test_on_a_disk_topic_a_failed_sync_is_a_storage_error_for_who_waits() -> None:
    world = World()
    world.create(config=DISK)
    reply = world.produce()

    world.filesystem.fail_directory("/disk1")
    world.settle()

    assert codes(reply.value) == [KafkaStorageError.code]
    assert error_codes(world.fetch(asked(0)).value) == [KafkaStorageError.code]


def test_a_topic_whose_durability_is_lowered_commits_what_is_there() -> None:
    world = World()
    world.create(config=DISK)
    reply = world.produce()

    world.configure("t", LogConfig())
    world.settle_wakes()

    assert codes(reply.value) == [0]


def test_a_storage_error_takes_the_partition_offline(world: World) -> None:
    world.filesystem.fail_directory("/disk1")

    first = world.produce().value
    second = world.produce().value

    assert codes(first) == [KafkaStorageError.code]
    assert codes(second) == [KafkaStorageError.code]
