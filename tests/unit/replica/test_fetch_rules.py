"""The rules of Fetch (facts 6.4), each by its number.

Rule 5 is in test_fetch_waiting, sessions are in test_fetch_sessions.
"""

from __future__ import annotations

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from millstream.replica.replica_selector import RackAwareReplicaSelector
from millstream.storage.log.epoch_cache import EpochEnd
from millstream.storage.log.log_results import FetchIsolation
from millstream.storage.log.producer_entry import AppendOrigin
from tests.unit.replica.fakes import FakeVerifier
from tests.unit.replica.harness import (
    LOCAL,
    World,
    asked,
    error_codes,
    sizes,
    topic_id,
)
from tests.unit.storage.batches import batch_bytes, marker_batch

BATCH = len(batch_bytes())


@pytest.fixture
def world() -> World:
    """A broker that leads three partitions alone; the first two have three batches each."""
    world = World()
    world.create(partitions=3)
    for _ in range(3):
        world.produce(batch_bytes(), batch_bytes())
    return world


@pytest.fixture
def replicated() -> World:
    """A broker that leads t-0 with a follower in sync."""
    world = World()
    world.register(2)
    world.create(replicas=(LOCAL, 2))
    return world


# 1 and 2: limits.


def test_rule_1_the_brokers_own_limit_counts_too() -> None:
    world = World(fetch_max_bytes=1024)
    world.create()
    for _ in range(20):
        world.produce()

    assert sizes(world.fetch(asked(0), max_bytes=1 << 20).value) == [1024]


def test_rule_1_min_bytes_is_capped_to_what_can_be_fetched(world: World) -> None:
    reply = world.fetch(asked(0), max_bytes=BATCH, min_bytes=1 << 30, max_wait_ms=1000)

    assert sizes(reply.value) == [BATCH]


def test_rule_1_partitions_are_read_in_the_order_asked_for(world: World) -> None:
    reply = world.fetch(asked(0, index=1), asked(0, index=0), max_bytes=3 * BATCH)

    assert [(each.index, result.size) for each, result in reply.value.partitions] == [
        (1, 3 * BATCH),
        (0, 0),
    ]


@pytest.mark.parametrize("max_bytes", [0, 1, BATCH - 1])
def test_rule_2_the_first_partition_with_records_gives_a_whole_batch(
    world: World, max_bytes: int
) -> None:
    reply = world.fetch(asked(0, index=2), asked(0), asked(0, index=1), max_bytes=max_bytes)

    assert sizes(reply.value) == [0, BATCH, 0]


def test_rule_2_later_partitions_obey_what_is_left(world: World) -> None:
    reply = world.fetch(asked(0), asked(0, index=1), max_bytes=4 * BATCH + 1)

    assert sizes(reply.value) == [3 * BATCH, BATCH + 1]


def test_rule_2_a_later_partition_whose_first_batch_does_not_fit_is_empty(world: World) -> None:
    reply = world.fetch(asked(0), asked(0, index=1), max_bytes=4 * BATCH - 1)

    assert sizes(reply.value) == [3 * BATCH, 0]


def test_rule_2_a_partitions_own_limit_cuts_within_a_batch(world: World) -> None:
    reply = world.fetch(asked(0, max_bytes=2 * BATCH - 5))

    assert sizes(reply.value) == [2 * BATCH - 5]


def test_rule_2_records_begin_with_the_batch_that_has_the_offset(world: World) -> None:
    world.create("wide")
    world.produce(batch_bytes(records=5), topic="wide")

    ((_, result),) = world.fetch(asked(3, "wide")).value.partitions

    assert result.records is not None
    assert result.records.read()[:8] == bytes(8)


# 3 and 4: how far one may read.


def test_rule_3_a_follower_reads_to_the_end_a_consumer_to_the_high_watermark(
    replicated: World,
) -> None:
    replicated.produce(acks=1)

    assert sizes(replicated.fetch(asked(0)).value) == [0]
    assert sizes(replicated.follow(0)) == [BATCH]


def test_rule_3_read_committed_stops_at_the_first_open_transaction() -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.create()
    world.produce()
    world.produce(
        batch_bytes(pid=5, epoch=0, sequence=0, is_transactional=True), transactional_id="x"
    )
    verifier.answers[0]({})
    world.produce()

    committed = world.fetch(asked(0), isolation=FetchIsolation.TXN_COMMITTED).value
    uncommitted = world.fetch(asked(0)).value

    assert sizes(committed) == [BATCH]
    assert committed.partitions[0][1].last_stable_offset == 1
    assert committed.partitions[0][1].aborted_transactions == ()
    assert sizes(uncommitted) == [3 * BATCH]
    assert uncommitted.partitions[0][1].aborted_transactions is None


def test_rule_3_read_committed_is_told_which_transactions_were_aborted() -> None:
    verifier = FakeVerifier([], [])
    world = World(verifier=verifier)
    world.create()
    world.produce(
        batch_bytes(pid=5, epoch=0, sequence=0, is_transactional=True), transactional_id="x"
    )
    verifier.answers[0]({})
    marker = bytes(marker_batch(0, pid=5, epoch=1, is_abort=True).view)
    world.produce(marker, origin=AppendOrigin.COORDINATOR)

    ((_, result),) = world.fetch(asked(0), isolation=FetchIsolation.TXN_COMMITTED).value.partitions

    assert result.aborted_transactions is not None
    assert [(each.producer_id, each.first_offset) for each in result.aborted_transactions] == [
        (5, 0)
    ]


@pytest.mark.parametrize("offset", [0, 4])
def test_rule_4_offsets_outside_of_the_log_are_errors(world: World, offset: int) -> None:
    world.delete(1)

    reply = world.fetch(asked(offset))

    assert error_codes(reply.value) == [OffsetOutOfRange.code]
    assert reply.value.partitions[0][1].high_watermark == -1


def test_rule_4_between_high_watermark_and_end_a_consumer_gets_nothing(replicated: World) -> None:
    replicated.produce(batch_bytes(records=3), acks=1)

    reply = replicated.fetch(asked(2))

    assert (error_codes(reply.value), sizes(reply.value)) == ([0], [0])


# 6: leader epochs and roles.


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, 0), (0, FencedLeaderEpoch.code), (1, 0), (2, UnknownLeaderEpoch.code)]
)
def test_rule_6_the_askers_leader_epoch_must_be_ours(world: World, epoch: int, code: int) -> None:
    world.change(leader=LOCAL)

    assert error_codes(world.fetch(asked(0, leader_epoch=epoch)).value) == [code]


def test_rule_6_consumers_may_read_from_followers_unless_their_version_is_old() -> None:
    world = World()
    world.create(replicas=(LOCAL, 2))
    world.change(leader=2)

    assert error_codes(world.fetch(asked(0)).value) == [0]
    assert error_codes(world.fetch(asked(0), needs_leader=True).value) == [NotLeaderOrFollower.code]
    assert error_codes(world.follow(0, broker=3)) == [NotLeaderOrFollower.code]


# 7: diverging logs.


def test_rule_7_a_log_that_went_another_way_is_told_where(world: World) -> None:
    world.change(leader=LOCAL)
    world.produce()

    ((_, result),) = world.fetch(asked(4, fetched_epoch=0)).value.partitions

    assert result.diverging_epoch == EpochEnd(0, 3)
    assert (result.error, result.size, result.high_watermark) == (None, 0, 4)


def test_rule_7_an_epoch_the_leader_never_had_parts_at_the_one_before(world: World) -> None:
    world.change(leader=LOCAL)
    world.change(leader=LOCAL)
    world.change(leader=LOCAL)

    ((_, result),) = world.fetch(asked(3, fetched_epoch=2)).value.partitions

    # Epochs without records leave no trace: 0 is the last one before 3 that has any.
    assert result.diverging_epoch == EpochEnd(0, 3)


def test_rule_7_an_epoch_that_is_not_known_is_out_of_range(world: World) -> None:
    assert error_codes(world.fetch(asked(1, fetched_epoch=9)).value) == [OffsetOutOfRange.code]


def test_rule_7_before_the_log_start_is_out_of_range_even_if_diverging(world: World) -> None:
    world.delete(3)

    reply = world.fetch(asked(1, fetched_epoch=0))

    assert error_codes(reply.value) == [OffsetOutOfRange.code]


def test_rule_7_a_fetch_of_a_diverging_follower_is_no_acknowledgement(replicated: World) -> None:
    replicated.produce(acks=1)
    replicated.change(leader=LOCAL)

    answer = replicated.follow(5, fetched_epoch=0)

    assert answer.partitions[0][1].diverging_epoch == EpochEnd(0, 1)
    assert replicated.partition().followers[2].log_end_offset == -1


# 8: topic ids.


def test_rule_8_topics_are_found_by_id_and_unknown_ids_are_errors(world: World) -> None:
    reply = world.fetch(asked(0, topic_id("t")), asked(0, topic_id("nobody")), uses_topic_ids=True)

    assert error_codes(reply.value) == [0, UnknownTopicId.code]


def test_rule_8_an_id_that_is_not_the_logs_is_inconsistent(world: World) -> None:
    image = world.cache.image
    newer = World()
    newer.create(generation=1)
    world.cache.image = newer.cache.image

    reply = world.fetch(asked(0, topic_id("t", 1)), uses_topic_ids=True)

    world.cache.image = image
    assert error_codes(reply.value) == [InconsistentTopicId.code]


# 10: a replica near the consumer.


def test_rule_10_a_consumer_is_sent_to_an_in_sync_replica_in_its_rack() -> None:
    world = World(selector=RackAwareReplicaSelector())
    world.register(LOCAL, rack="a")
    world.register(2, rack="b")
    world.create(replicas=(LOCAL, 2))
    world.produce(acks=1)
    world.follow(1)

    near = world.fetch(asked(0), rack_id="b", max_wait_ms=500).value.partitions[0][1]
    here = world.fetch(asked(0), rack_id="a").value.partitions[0][1]
    nowhere = world.fetch(asked(0), rack_id="z").value.partitions[0][1]

    assert (near.preferred_read_replica, near.size) == (2, 0)
    assert (here.preferred_read_replica, here.size) == (-1, BATCH)
    assert (nowhere.preferred_read_replica, nowhere.size) == (-1, BATCH)


def test_rule_10_a_replica_that_lacks_the_offset_is_not_chosen() -> None:
    world = World(selector=RackAwareReplicaSelector())
    world.register(2, rack="b")
    world.create(replicas=(LOCAL, 2))
    world.produce(acks=1)
    world.follow(0)

    result = world.fetch(asked(1), rack_id="b").value.partitions[0][1]

    assert result.preferred_read_replica == -1
