"""The Sender with brokers that refuse, forget, are slow or gone, in virtual time."""

from __future__ import annotations

import pytest

from millstream.errors import (
    ClientClosed,
    ClusterAuthorizationFailed,
    CorruptMessage,
    DeliveryTimeout,
    DuplicateSequenceNumber,
    FatalProducerError,
    InvalidRecord,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownProducerId,
    UnsupportedVersion,
)
from millstream.records import RecordBatch
from tests.simulation.producer.cluster import TOPIC
from tests.unit.client.producer.scripted import Desk, ScriptedCluster


def values(desk: Desk, partition: int = 0) -> list[bytes]:
    """What a partition has."""
    return desk.cluster.partitions[partition].values


class TellingDispatcher:
    """Writes down how many batches were not done when callbacks came."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.incomplete_counts: list[int] = []

    def submit(self, function: object, *arguments: object) -> None:
        self.incomplete_counts.append(self._desk.core.accumulator.incomplete_count)


@pytest.mark.parametrize("error", [NotEnoughReplicas, RequestTimedOut, CorruptMessage])
def test_what_may_go_away_is_tried_again_with_growing_waits(error: type) -> None:
    desk = Desk()
    desk.send(b"0")
    desk.cluster.refuse("Produce", *[error] * 4)
    began_ms = desk.clock.monotonic_ms()

    assert desk.send(b"1").result(0).offset == 1

    waited_ms = desk.clock.monotonic_ms() - began_ms
    assert (100 + 200 + 400 + 800) * 0.8 <= waited_ms <= (100 + 200 + 400 + 800) * 1.2 + 50
    assert desk.cluster.count("Produce") == 6


def test_what_stays_wrong_is_told_and_the_next_record_goes() -> None:
    desk = Desk()
    desk.send(b"0")
    desk.cluster.refuse("Produce", TopicAuthorizationFailed)

    assert isinstance(desk.send(b"1").exception(0), TopicAuthorizationFailed)

    assert desk.send(b"2").result(0).offset == 1
    assert values(desk) == [b"0", b"2"]


def test_retries_can_be_limited() -> None:
    desk = Desk(retries=2)
    desk.send(b"0")
    desk.cluster.refuse("Produce", *[NotEnoughReplicas] * 5)

    assert isinstance(desk.send(b"1").exception(0), NotEnoughReplicas)
    assert desk.cluster.count("Produce") == 4


def test_a_repetition_that_the_broker_knows_is_a_success_without_a_place() -> None:
    desk = Desk()
    desk.send(b"0")
    desk.cluster.refuse("Produce", DuplicateSequenceNumber)

    assert desk.send(b"1").result(0).offset == -1


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumber, UnknownProducerId])
def test_lost_numbers_begin_anew_in_the_next_epoch(error: type) -> None:
    desk = Desk()
    desk.send(b"0")
    desk.cluster.refuse("Produce", error)

    assert desk.send(b"1").result(0).offset == 1

    (entry,) = desk.cluster.partitions[0].producers.values()
    assert entry.epoch == 1
    assert values(desk) == [b"0", b"1"]


def test_without_a_producer_id_nothing_can_be_sent() -> None:
    desk = Desk()
    desk.cluster.refuse("InitProducerId", ClusterAuthorizationFailed)

    error = desk.send().exception(0)

    assert isinstance(error, FatalProducerError)
    assert "enable_idempotence=False" in str(error)
    with pytest.raises(FatalProducerError):
        desk.append()


def test_a_producer_id_is_asked_for_by_who_sends_and_once() -> None:
    desk = Desk()
    desk.pass_ms(500)
    assert desk.cluster.count("InitProducerId") == 0

    desk.send()
    desk.send()

    assert desk.cluster.count("InitProducerId") == 1


def test_without_idempotence_there_are_no_numbers_and_order_is_kept_one_at_a_time() -> None:
    desk = Desk(enable_idempotence=False, max_in_flight_requests_per_connection=1, batch_size=100)
    desk.cluster.refuse("Produce", NotEnoughReplicas)
    deliveries = [desk.append(b"%d" % number * 50) for number in range(5)]
    desk.turn(lambda: all(each.done() for each in deliveries))

    assert values(desk) == [b"%d" % number * 50 for number in range(5)]
    assert desk.cluster.count("InitProducerId") == 0
    assert desk.cluster.partitions[0].producers == {}


def test_without_idempotence_a_large_batch_is_split_too() -> None:
    desk = Desk(enable_idempotence=False, linger_ms=50)
    desk.cluster.batch_bytes_max = 300
    deliveries = [desk.append(b"%02d" % number * 20) for number in range(20)]
    desk.turn(lambda: all(each.done() for each in deliveries))

    assert [each.result(0).offset for each in deliveries] == list(range(20))


@pytest.mark.parametrize("fate", ["arrives", "is split", "is lost"])
def test_who_flushes_finds_every_callback_handed_on(fate: str) -> None:
    desk = Desk(linger_ms=50)
    if fate == "is split":
        desk.cluster.batch_bytes_max = 100
    elif fate == "is lost":
        desk.cluster.refuse("Produce", TopicAuthorizationFailed)
    told = TellingDispatcher(desk)
    desk.core.completions.dispatcher = told
    deliveries = [desk.append(b"%d" % number * 50) for number in range(2)]
    for each in deliveries:
        each.add_done_callback(print)
    desk.turn(lambda: not desk.core.accumulator.incomplete_count)

    # The accumulator still knew of a batch when its callbacks were handed on.
    assert told.incomplete_counts == [1]
    assert all(each.done() for each in deliveries)


def test_records_that_are_wrong_are_told_one_by_one() -> None:
    desk = Desk()
    desk.send(b"0")
    desk.cluster.refuse("Produce", InvalidRecord)

    assert isinstance(desk.send(b"1").exception(0), InvalidRecord)


def test_an_answer_that_comes_after_the_timeout_does_not_count_but_its_number_does() -> None:
    desk = Desk(delivery_timeout_ms=1000, request_timeout_ms=900)
    desk.send(b"0")
    desk.selector.delay_ms_max = 3000

    late = desk.send(b"late")
    assert isinstance(late.exception(0), DeliveryTimeout)
    desk.selector.delay_ms_max = 1
    desk.pass_ms(10_000)

    assert desk.send(b"next").result(0).topic == TOPIC
    assert values(desk) in ([b"0", b"next"], [b"0", b"late", b"next"])


def test_a_broker_that_cannot_do_what_is_wanted_is_named() -> None:
    cluster = ScriptedCluster()
    cluster.highest["Produce"] = 6
    desk = Desk(cluster, compression_type="zstd")

    error = desk.send().exception(0)

    assert isinstance(error, UnsupportedVersion)
    assert "too old" in str(error)


def test_an_old_broker_gets_an_old_request() -> None:
    cluster = ScriptedCluster()
    cluster.highest["Produce"] = 3
    desk = Desk(cluster)

    assert desk.send().result(0).offset == 0
    assert cluster.version("Produce") == 3


def test_partitions_of_a_broker_that_takes_nothing_are_left_alone() -> None:
    cluster = ScriptedCluster(partition_count=2, broker_count=2)
    desk = Desk(cluster, partitioner_availability_timeout_ms=500, batch_size=100)
    desk.send(b"0", 0)
    desk.send(b"0", 1)
    cluster.down.add(2)
    desk.selector.break_connections(2)
    desk.append(b"x" * 90, 1)
    desk.pass_ms(2_000)

    chosen = {desk.append(b"x" * 90, -1).partition for _ in range(30)}

    assert chosen == {0}
    cluster.down.clear()
    desk.pass_ms(5_000)
    assert {desk.append(b"x" * 90, -1).partition for _ in range(30)} == {0, 1}


def test_a_topic_that_is_not_used_is_forgotten() -> None:
    desk = Desk(metadata_max_idle_ms=10_000, metadata_max_age_ms=5_000)
    desk.send()

    desk.pass_ms(60_000)

    assert desk.core.accumulator.partition_count(TOPIC) in (None, 1)
    assert TOPIC not in desk.core.runtime.metadata.followed


def test_records_wait_for_a_leader() -> None:
    cluster = ScriptedCluster(broker_count=2)
    desk = Desk(cluster)
    desk.send(b"0")
    cluster.move_leader(0, -1)
    cluster.hints = False
    waiting = desk.append(b"1")
    desk.pass_ms(1_000)
    assert not waiting.done()
    cluster.move_leader(0, 2)

    desk.turn(waiting.done)

    assert waiting.result(0).offset == 1


def test_a_leader_that_died_while_nothing_was_sent_is_left_for_the_next() -> None:
    cluster = ScriptedCluster(broker_count=2)
    desk = Desk(cluster)
    cluster.move_leader(0, 2)
    desk.send(b"0")
    cluster.down.add(2)
    desk.selector.break_connections(2)
    desk.pass_ms(1_000)
    waiting = desk.append(b"1")
    desk.pass_ms(1_000)
    cluster.move_leader(0, 1)

    desk.turn(waiting.done, limit_ms=5_000)

    assert waiting.result(0).offset == 1


def test_a_fault_at_the_end_leaves_no_record_waiting() -> None:
    desk = Desk()
    deliveries = [desk.append() for _ in range(2)]
    desk.core.sender.completion.fail_all = None  # type: ignore[method-assign, assignment]
    desk.core.runtime.close()

    assert [type(each.exception(0)) for each in deliveries] == [ClientClosed] * 2


def test_batches_are_sealed_as_the_wire_wants_them() -> None:
    desk = Desk(linger_ms=20, compression_type="gzip")
    deliveries = [desk.append(b"%d" % n) for n in range(3)]
    desk.turn(lambda: all(each.done() for each in deliveries))

    produce = [each for each in desk.cluster.requests if type(each).__name__ == "ProduceRequest"]
    records = produce[0].topic_data[0].partition_data[0].records  # type: ignore[attr-defined]
    batch = RecordBatch(bytes(records))

    assert (batch.record_count, batch.producer_id, batch.base_sequence) == (3, 77, 0)
    assert batch.compression.config_name == "gzip"


def test_why_a_topic_is_not_known_depends_on_what_was_asked() -> None:
    desk = Desk()

    assert "was not there within max_block" in str(desk.core.unknown_topic("new", -1, 5))
    assert "still no partition 7" in str(desk.core.unknown_topic(TOPIC, 7, 5))
