"""The rules of replication on the leader's side (facts 6.6, 1 to 6), each by its number."""

from __future__ import annotations

import pytest

from millstream.errors import (
    IneligibleReplica,
    NotLeaderOrFollower,
    OperationNotAttempted,
    UnknownLeaderEpoch,
)
from millstream.replica.follower_state import FollowerState
from millstream.storage.log.epoch_cache import EpochEnd
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.replica.harness import (
    LAG_MS,
    LOCAL,
    World,
    codes,
    error_codes,
    topic_records,
)
from tests.unit.storage.batches import batch_bytes


def leading(*followers: int, isr: tuple[int, ...] | None = None) -> World:
    """A broker that leads t-0; its followers are registered."""
    world = World()
    for follower in followers:
        world.register(follower)
    world.create(replicas=(LOCAL, *followers), isr=isr)
    return world


# 1: what a follower's fetch says.


def test_rule_1_a_fetch_tells_where_the_follower_is() -> None:
    world = leading(2)
    world.produce(batch_bytes(records=5), acks=1)

    world.follow(3, log_start_offset=1)

    state = world.partition().followers[2]
    assert (state.log_end_offset, state.log_start_offset, state.broker_epoch) == (3, 1, 1)


def test_rule_1_a_broker_epoch_older_than_the_registered_one_is_refused() -> None:
    world = leading(2)
    world.produce(acks=1)
    world.register(2, epoch=7)
    world.follow(0, epoch=7)

    answer = world.follow(1, epoch=6)

    assert error_codes(answer) == [NotLeaderOrFollower.code]
    assert world.partition().followers[2].log_end_offset == 0


def test_rule_1_what_was_seen_last_is_no_measure_of_a_broker_epoch() -> None:
    world = leading(2)
    world.produce(acks=1)
    world.follow(0, epoch=7)

    world.follow(1, epoch=1)

    assert world.partition().followers[2].log_end_offset == 1


def test_rule_1_a_broker_that_is_no_replica_is_refused() -> None:
    world = leading(2)

    assert error_codes(world.follow(0, broker=9)) == [NotLeaderOrFollower.code]


def test_rule_1_a_broker_that_may_know_of_it_earlier_is_told_to_ask_again() -> None:
    world = leading(2)

    assert error_codes(world.follow(0, broker=9, leader_epoch=0)) == [UnknownLeaderEpoch.code]


def test_rule_1_an_offset_out_of_range_is_no_acknowledgement() -> None:
    world = leading(2)

    world.follow(10)

    assert world.partition().followers[2].log_end_offset == -1


# 2: who is caught up.


def test_rule_2_at_the_end_is_caught_up_now() -> None:
    world = leading(2)
    world.clock.advance(5)
    world.follow(0)

    assert world.partition().followers[2].last_caught_up_ms == 5


def test_rule_2_at_the_end_of_the_last_fetch_was_caught_up_then() -> None:
    world = leading(2)
    world.produce(acks=1)
    world.clock.advance(10)
    world.follow(0)  # Behind; the end is 1.
    world.clock.advance(10)
    world.produce(acks=1)

    world.follow(1)

    assert world.partition().followers[2].last_caught_up_ms == 10


def test_rule_2_a_follower_that_stays_behind_leaves_the_isr_after_the_lag_time() -> None:
    world = leading(2)
    world.produce(acks=1)
    world.clock.advance(LAG_MS)
    assert world.partition().propose_shrinking(world.clock.monotonic_ms()) is None

    world.pass_time(1)

    ((proposal, _),) = world.controller.proposals
    assert proposal.members == {LOCAL}


def test_rule_2_a_quiet_follower_at_the_end_stays_in_sync() -> None:
    world = leading(2)
    world.produce(acks=1)
    world.follow(1)

    world.pass_time(10 * LAG_MS)

    assert world.controller.proposals == []


def test_rule_2_the_end_that_a_follower_had_to_reach_does_not_go_back() -> None:
    state = FollowerState()
    state.note_fetch(0, 0, 1, 10, 100)
    state.note_fetch(5, 0, 1, 8, 200)

    state.note_fetch(9, 0, 1, 12, 300)

    assert state.last_caught_up_ms < 0


def test_rule_2_a_member_of_which_nothing_is_known_is_not_in_sync() -> None:
    world = leading(2)
    partition = world.partition()
    partition._followers.clear()

    proposal = partition.propose_shrinking(world.clock.monotonic_ms())

    assert proposal is not None
    assert proposal.members == {LOCAL}


def test_rule_2_the_check_runs_every_half_of_the_lag_time_and_only_with_followers() -> None:
    alone, world = World(), leading(2)
    alone.create()

    assert alone.manager.next_deadline_ms() is None
    assert world.manager.next_deadline_ms() == LAG_MS // 2
    world.pass_time(LAG_MS // 2)
    assert world.manager.next_deadline_ms() == LAG_MS


# 3: joining the ISR.


def test_rule_3_a_follower_joins_at_the_high_watermark() -> None:
    world = leading(2, isr=(LOCAL,))
    world.produce(batch_bytes(records=3), acks=1)
    world.follow(2)
    assert world.controller.proposals == []

    world.follow(3)

    ((proposal, _),) = world.controller.proposals
    assert proposal.isr == ((LOCAL, -1), (2, 1))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (0, 0)


def test_rule_3_it_must_have_reached_the_start_of_the_leader_epoch() -> None:
    world = leading(2, 3, isr=(LOCAL, 3))
    world.produce(batch_bytes(records=3), acks=1)
    world.change(leader=LOCAL)
    assert world.partition().log.high_watermark == 0

    world.follow(2)
    assert world.controller.proposals == []
    world.follow(3)

    assert len(world.controller.proposals) == 1


@pytest.mark.parametrize("reason", ["fenced", "another process"])
def test_rule_3_an_ineligible_follower_does_not_join(reason: str) -> None:
    world = leading(2, isr=(LOCAL,))
    if reason == "fenced":
        world.fence(2)

    world.follow(0, epoch=1 if reason == "fenced" else 5)

    assert world.controller.proposals == []


def test_rule_3_a_follower_too_old_to_send_its_epoch_may_join() -> None:
    world = leading(2, isr=(LOCAL,))

    world.follow(0, epoch=-1)

    assert len(world.controller.proposals) == 1


def test_rule_3_one_proposal_is_under_way_at_a_time() -> None:
    world = leading(2, 3, isr=(LOCAL,))
    world.follow(0, broker=2)
    world.follow(0, broker=3)
    assert len(world.controller.proposals) == 1

    world.controller.agree()
    world.follow(0, broker=3)

    assert world.controller.agree().members == {LOCAL, 2, 3}
    assert world.partition().isr == {LOCAL, 2, 3}


# 4: the high watermark.


def test_rule_4_it_is_the_least_end_of_the_in_sync_replicas() -> None:
    world = leading(2, 3)
    world.produce(batch_bytes(records=5), acks=1)

    world.follow(4, broker=2)
    assert world.partition().log.high_watermark == 0
    world.follow(3, broker=3)

    assert world.partition().log.high_watermark == 3


def test_rule_4_a_replica_that_is_being_added_counts_at_once() -> None:
    world = leading(2, isr=(LOCAL,))
    world.follow(0)
    assert world.partition().maximal_isr == {LOCAL, 2}

    world.produce(acks=1)

    assert world.partition().log.high_watermark == 0


def test_rule_4_a_replica_that_is_being_added_counts_even_if_it_is_fenced_by_now() -> None:
    world = leading(2, isr=(LOCAL,))
    world.follow(0)
    world.fence(2)

    world.produce(acks=1)
    assert world.partition().log.high_watermark == 0
    world.controller.refuse(IneligibleReplica())

    assert world.partition().log.high_watermark == 1


def test_rule_4_a_replica_that_is_being_removed_counts_until_the_controller_agrees() -> None:
    world = leading(2)
    reply = world.produce(timeout_ms=10 * LAG_MS)
    world.pass_time(LAG_MS + 1)
    assert world.partition().log.high_watermark == 0

    world.controller.agree()
    world.settle()

    assert world.partition().log.high_watermark == 1
    assert codes(reply.value) == [0]


def test_rule_4_it_waits_for_a_caught_up_replica_that_is_about_to_join() -> None:
    world = leading(2, 3, isr=(LOCAL, 3))
    world.follow(0, broker=2)  # Caught up; its proposal is under way.
    world.controller.refuse(OperationNotAttempted())
    world.produce(acks=1)

    world.follow(1, broker=3)
    assert world.partition().log.high_watermark == 0
    world.fence(2)
    world.produce(acks=1)
    world.follow(2, broker=3)

    assert world.partition().log.high_watermark == 2


def test_rule_4_it_does_not_go_back_when_a_slower_replica_joins() -> None:
    world = leading(2, isr=(LOCAL,))
    world.fence(2)
    world.produce(batch_bytes(records=5), acks=1)
    assert world.partition().log.high_watermark == 5

    world.unfence(2)
    world.change(isr=[LOCAL, 2])
    world.follow(2)

    assert world.partition().log.high_watermark == 5


def test_rule_4_alone_it_follows_the_end_at_once() -> None:
    world = World()
    world.create()

    world.produce(batch_bytes(records=4), acks=0)

    assert world.partition().log.high_watermark == 4


# 5: after a restart.


def test_rule_5_a_restarted_leader_commits_what_it_has_and_a_follower_waits() -> None:
    world = World()
    world.create(partitions=1)
    world.create("f", replicas=(LOCAL, 2))
    world.produce(batch_bytes(records=3))
    world.produce(batch_bytes(records=3), topic="f", acks=1)
    world.store.stop()
    assert isinstance(world.filesystem, SimFileSystem)

    again = World(filesystem=world.filesystem)
    again.publish(*topic_records(), *topic_records("f", replicas=(LOCAL, 2), leader=2))

    assert again.partition().log.high_watermark == 3
    assert again.partition("f").log.high_watermark == 0
    assert again.partition("f").log.log_end_offset == 3


# 6: a new leader.


def test_rule_6_a_new_epoch_is_noted_before_any_record() -> None:
    world = leading(2)
    world.produce(batch_bytes(records=2), acks=1)

    world.change(leader=LOCAL)

    assert world.manager.end_of_epoch("t", 0, 0) == EpochEnd(0, 2)
    assert world.manager.end_of_epoch("t", 0, 1) == EpochEnd(1, 2)
    assert world.partition().leader_epoch_start == 2


def test_rule_6_a_new_leader_forgets_where_its_followers_were() -> None:
    world = leading(2)
    world.produce(acks=1)
    world.follow(1)

    world.change(leader=2)
    world.change(leader=LOCAL)

    assert world.partition().followers[2].log_end_offset == -1


def test_rule_6_a_leader_that_stays_keeps_them() -> None:
    world = leading(2)
    world.produce(acks=1)
    world.follow(1)

    world.change(leader=LOCAL)

    assert world.partition().followers[2].log_end_offset == 1


def test_rule_6_followers_in_sync_get_a_full_lag_time_of_a_new_leader() -> None:
    world = leading(2)
    world.produce(acks=1)
    world.clock.advance(LAG_MS * 5)
    world.change(leader=LOCAL)

    assert world.partition().propose_shrinking(world.clock.monotonic_ms()) is None
