"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and DescribeProducers over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    LeaderNotAvailable,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tests.unit.server.harness import Broker
from tests.unit.server.requests import (
    delete_records_request,
    describe_producers_request,
    end_of_epoch_request,
    list_offsets_request,
)
from tests.unit.storage.batches import NOW_MS, batch_bytes


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.create("orders", 2)
    for second in range(3):
        made.produce(batch_bytes(timestamps=[NOW_MS + second * 1000]))
    return made


def only(response: Any) -> Any:
    """The partition of an answer about one."""
    return response.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_ms"),
    [
        (-1, 3, -1),
        (-2, 0, -1),
        (-3, 2, NOW_MS + 2000),
        (-4, 0, -1),
        (NOW_MS, 0, NOW_MS),
        (NOW_MS + 1, 1, NOW_MS + 1000),
        (NOW_MS + 9999, -1, -1),
    ],
)
def test_times_and_special_timestamps(
    broker: Broker, timestamp: int, offset: int, found_ms: int
) -> None:
    answer = only(broker.ask(list_offsets_request(timestamp)))

    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, found_ms)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 1 << 15)]
)
def test_special_timestamps_that_a_version_does_not_know(
    broker: Broker, timestamp: int, since: int
) -> None:
    for version in range(1, 12):
        code = only(broker.ask(list_offsets_request(timestamp), version)).error_code
        assert code == (0 if version >= since else UnsupportedVersion.code), version


def test_a_partition_that_occurs_twice(broker: Broker) -> None:
    request = list_offsets_request(-1, -1)
    request.topics[0].partitions[1].partition_index = 0

    answers = broker.ask(request).topics[0].partitions

    assert [each.error_code for each in answers] == [InvalidRequest.code] * 2


def test_a_topic_that_does_not_exist(broker: Broker) -> None:
    answer = only(broker.ask(list_offsets_request(-1, topic="nobody")))

    assert (answer.error_code, answer.offset) == (UnknownTopicOrPartition.code, -1)


@pytest.mark.parametrize(
    ("version", "code"), [(4, LeaderNotAvailable.code), (5, OffsetNotAvailable.code)]
)
def test_right_after_an_election_the_end_is_not_known(
    broker: Broker, version: int, code: int
) -> None:
    broker.partition().leader_epoch_start = 99

    assert only(broker.ask(list_offsets_request(-1), version)).error_code == code


def test_the_end_of_an_epoch(broker: Broker) -> None:
    answer = only(broker.ask(end_of_epoch_request(0)))

    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 3)


@pytest.mark.parametrize(
    ("current", "code"), [(-7, FencedLeaderEpoch.code), (7, UnknownLeaderEpoch.code)]
)
def test_who_believes_in_another_epoch_is_told(broker: Broker, current: int, code: int) -> None:
    assert only(broker.ask(end_of_epoch_request(0, current))).error_code == code
    assert only(broker.ask(end_of_epoch_request(0, topic="nobody"))).error_code == 3


def test_records_before_an_offset_are_deleted(broker: Broker) -> None:
    answer = only(broker.ask(delete_records_request(2)))

    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert only(broker.ask(list_offsets_request(-2))).offset == 2


def test_minus_one_deletes_everything_that_is_committed(broker: Broker) -> None:
    assert only(broker.ask(delete_records_request(-1))).low_watermark == 3


def test_what_cannot_be_deleted(broker: Broker) -> None:
    broker.create("compacted", cleanup_policy="compact")

    beyond = only(broker.ask(delete_records_request(4)))
    compacted = only(broker.ask(delete_records_request(0, "compacted")))

    assert (beyond.error_code, beyond.low_watermark) == (OffsetOutOfRange.code, -1)
    assert compacted.error_code == PolicyViolation.code


def test_a_deletion_waits_for_followers() -> None:
    broker = Broker(brokers=(1, 2))
    broker.controller.create("orders", [[1, 2]])
    broker.publish()
    broker.produce(acks=1)
    broker.partition().followers[2].log_end_offset = 1
    broker.partition().advance_high_watermark(0)

    call = broker.call(delete_records_request(1))
    assert call.is_pending
    broker.pass_time(1000)

    assert only(call.response).error_code == 7


def test_producers_are_described(broker: Broker) -> None:
    broker.produce(batch_bytes(pid=9, epoch=2, sequence=0))

    (producer,) = only(broker.ask(describe_producers_request())).active_producers

    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (9, 2, 0)
    assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (-1, -1)
    assert only(broker.ask(describe_producers_request("nobody"))).error_code == 3
