"""ShareFetch and ShareAcknowledge, from the handlers to the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import (
    InvalidRecordState,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tests.unit.server.requests import delete_records_request
from tests.unit.server.share_members import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    ack_codes,
    acquired,
    codes,
    configure,
    offsets_in,
    produce,
)
from tests.unit.storage.batches import batch_bytes

if TYPE_CHECKING:
    import pytest

    from tests.unit.server.harness import Broker

LOCK_MS = 30_000


def test_who_joins_is_told_its_partitions_at_once(broker: Broker) -> None:
    answer = ShareMember(broker).join()

    assert answer.member_epoch == 2
    assert answer.heartbeat_interval_ms == 5000
    assert answer.assignment is not None
    (topic,) = answer.assignment.topic_partitions
    assert topic.partitions == [0, 1]


def test_records_come_with_their_delivery_count_and_lock(broker: Broker, ann: ShareMember) -> None:
    produce(broker)

    answer = ann.fetch()

    assert acquired(answer) == {0: [(0, 2, 1)]}
    assert offsets_in(answer) == [0, 1, 2]
    assert answer.acquisition_lock_timeout_ms == LOCK_MS


def test_a_record_is_with_one_member_only(
    broker: Broker, ann: ShareMember, bob: ShareMember
) -> None:
    produce(broker)
    assert ann.take() == {0: [(0, 2, 1)]}
    assert bob.take() == {}

    produce(broker)

    assert bob.take() == {0: [(3, 5, 1)]}


def test_what_is_accepted_never_comes_again(broker: Broker, ann: ShareMember) -> None:
    produce(broker)
    ann.take()

    answer = ann.acknowledge({0: [(0, 2, [ACCEPT])]})

    assert codes(answer) == {0: 0}
    broker.pass_time(LOCK_MS)
    assert ann.take() == {}


def test_acknowledgements_go_with_the_next_fetch(broker: Broker, ann: ShareMember) -> None:
    produce(broker)
    ann.take()
    produce(broker, 1)

    answer = ann.fetch(acks={0: [(0, 2, [ACCEPT, RELEASE, REJECT])]})

    assert ack_codes(answer) == {0: 0}
    assert acquired(answer) == {0: [(1, 1, 2), (3, 3, 1)]}


def test_records_come_back_when_their_lock_ends(
    broker: Broker,
    ann: ShareMember,
    bob: ShareMember,
) -> None:
    produce(broker)
    ann.take()
    waiting = bob.call_fetch(max_wait_ms=60_000)
    assert waiting.is_pending

    broker.pass_time(LOCK_MS)

    assert acquired(waiting.response) == {0: [(0, 2, 2)]}


def test_a_renewed_lock_lasts_longer(broker: Broker, ann: ShareMember, bob: ShareMember) -> None:
    produce(broker)
    ann.take()
    broker.pass_time(LOCK_MS - 1)

    answer = ann.acknowledge({0: [(0, 2, [RENEW])]}, is_renew_ack=True)

    assert codes(answer) == {0: 0}
    broker.pass_time(1)
    assert bob.take() == {}
    broker.pass_time(LOCK_MS - 1)
    assert bob.take() == {0: [(0, 2, 2)]}


def test_a_record_is_given_up_after_the_last_delivery(broker: Broker, ann: ShareMember) -> None:
    configure(broker, ("share.delivery.count.limit", "2"))
    produce(broker, 1)
    assert ann.take() == {0: [(0, 0, 1)]}
    assert acquired(ann.fetch(acks={0: [(0, 0, [RELEASE])]})) == {0: [(0, 0, 2)]}

    answer = ann.fetch(acks={0: [(0, 0, [RELEASE])]})

    assert ack_codes(answer) == {0: 0}
    assert acquired(answer) == {}


def test_a_fetch_waits_for_records(broker: Broker, ann: ShareMember) -> None:
    call = ann.call_fetch(max_wait_ms=500)
    assert call.is_pending

    produce(broker, partition=1)
    broker.settle()

    assert acquired(call.response) == {1: [(0, 2, 1)]}


def test_a_fetch_waits_for_enough_bytes(broker: Broker, ann: ShareMember) -> None:
    produce(broker, 1)
    call = ann.call_fetch(max_wait_ms=500, min_bytes=150)
    assert call.is_pending

    produce(broker, 1)
    broker.settle()

    assert acquired(call.response) == {0: [(0, 1, 1)]}


def test_a_fetch_that_finds_nothing_is_answered_in_time(broker: Broker, ann: ShareMember) -> None:
    call = ann.call_fetch(max_wait_ms=500)

    broker.pass_time(500)

    assert acquired(call.response) == {}


def test_records_given_back_wake_who_waits(
    broker: Broker, ann: ShareMember, bob: ShareMember
) -> None:
    produce(broker)
    ann.take()
    call = bob.call_fetch(max_wait_ms=500)

    ann.acknowledge({0: [(0, 2, [RELEASE])]})

    assert acquired(call.response) == {0: [(0, 2, 2)]}


def test_strict_means_no_more_than_asked(broker: Broker, ann: ShareMember) -> None:
    produce(broker, 10)

    assert ann.take(max_records=4, share_acquire_mode=1) == {0: [(0, 3, 1)]}
    assert ann.take(max_records=4) == {0: [(4, 9, 1)]}


def test_the_number_of_locks_is_limited(broker: Broker, ann: ShareMember) -> None:
    configure(broker, ("share.partition.max.record.locks", "100"))
    for _ in range(3):
        produce(broker, 60)

    assert ann.take() == {0: [(0, 119, 1)]}
    assert ann.take() == {}
    assert acquired(ann.fetch(acks={0: [(0, 59, [ACCEPT])]})) == {0: [(120, 179, 1)]}


def test_who_has_room_for_no_bytes_gets_no_records(broker: Broker, ann: ShareMember) -> None:
    broker.produce(batch_bytes(records=10))

    assert ann.take(max_bytes=0) == {}
    assert ann.call_fetch(max_bytes=0, max_wait_ms=500).is_pending


def test_one_byte_is_room_for_the_first_batch(broker: Broker, ann: ShareMember) -> None:
    broker.produce(batch_bytes(records=10))

    assert ann.take(max_bytes=1) == {0: [(0, 9, 1)]}


def test_partitions_share_the_limit_of_records(broker: Broker, ann: ShareMember) -> None:
    produce(broker, 3, partition=0)
    produce(broker, 3, partition=1)

    first = ann.take(max_records=3)
    second = ann.take(max_records=3)

    assert len(first) == len(second) == 1
    assert {*first, *second} == {0, 1}


def test_offsets_of_others_cannot_be_acknowledged(
    broker: Broker,
    ann: ShareMember,
    bob: ShareMember,
) -> None:
    produce(broker)
    ann.take()
    bob.take()

    answer = bob.acknowledge({0: [(0, 0, [ACCEPT])]})

    assert codes(answer) == {0: InvalidRecordState.code}


def test_a_group_begins_at_the_end_unless_told_otherwise(broker: Broker) -> None:
    produce(broker)
    eve = ShareMember(broker, "eve", "late")
    eve.join()
    assert eve.take() == {}

    produce(broker, 1)

    assert eve.take() == {0: [(3, 3, 1)]}


def test_a_group_can_begin_some_time_ago(broker: Broker) -> None:
    configure(broker, ("share.auto.offset.reset", "by_duration:PT1H"), group="recent")
    now_ms = broker.clock.wall_ms()
    old = batch_bytes(records=2, timestamps=[now_ms - 7_200_000, now_ms - 7_200_000])
    broker.produce(old)
    broker.produce(batch_bytes(records=1, timestamps=[now_ms - 60_000]))
    eve = ShareMember(broker, "eve", "recent")
    eve.join()

    assert eve.take() == {0: [(2, 2, 1)]}


# What the broker has.


def test_a_partition_that_does_not_exist_is_said_to_be_unknown(ann: ShareMember) -> None:
    assert codes(ann.fetch(0, 5)) == {5: UnknownTopicOrPartition.code}


def test_a_partition_that_no_member_subscribed_to_has_no_state(broker: Broker) -> None:
    stranger = ShareMember(broker, "eve", "strangers")
    ShareMember(broker).join()

    assert codes(stranger.fetch(0)) == {0: UnknownTopicOrPartition.code}


def test_state_survives_the_last_session_of_a_group(broker: Broker, ann: ShareMember) -> None:
    produce(broker)
    ann.take()
    ann.acknowledge({0: [(0, 0, [ACCEPT]), (1, 1, [RELEASE])]})
    ann.acknowledge({}, epoch=-1)
    ann.session_epoch = 0

    assert ann.take() == {0: [(1, 2, 2)]}


def test_records_that_are_deleted_from_the_log_are_passed_over(
    broker: Broker, ann: ShareMember
) -> None:
    produce(broker, 5)
    ann.take()
    ann.acknowledge({0: [(0, 4, [RELEASE])]})
    broker.ask(delete_records_request(3))

    assert ann.take() == {0: [(3, 4, 2)]}
    assert codes(ann.acknowledge({0: [(0, 4, [ACCEPT])]})) == {0: 0}


def test_share_groups_can_be_switched_off(
    broker: Broker, ann: ShareMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(broker.metadata), "features", lambda _: ({}, 0))

    assert ann.fetch().error_code == UnsupportedVersion.code
