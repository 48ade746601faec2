"""Produce: errors and answers as Kafka gives them, whichever way the request is read."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from millstream.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from millstream.network.server.request import CLOSE, NO_RESPONSE
from millstream.protocol.messages.produce import PartitionProduceData, ProduceRequest
from millstream.records import Compression, RecordBatchBuilder
from millstream.types import Uuid
from tests.unit.server.harness import Broker
from tests.unit.storage.batches import batch_bytes

VERSIONS = range(3, 14)
CORRUPT = batch_bytes()[:-1] + b"\xff"


@pytest.fixture
def broker() -> Broker:
    made = Broker()
    made.create("orders", 3)
    return made


def only(response: Any) -> Any:
    """The partition of an answer about one."""
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


def with_another(request: ProduceRequest) -> ProduceRequest:
    """The same request for two partitions, which is not the common shape."""
    data = request.topic_data[0].partition_data
    data.append(PartitionProduceData(index=2, records=batch_bytes()))
    return request


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_go_up_in_every_version(broker: Broker, version: int) -> None:
    first = only(broker.produce(version=version))
    second = only(broker.produce(version=version))

    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 1)
    assert second.log_append_time_ms == -1
    assert second.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_topic_is_spelled_as_in_the_request(broker: Broker, version: int) -> None:
    topic = broker.produce(version=version).responses[0]

    if version < 13:
        assert topic.name == "orders"
    else:
        assert topic.topic_id == broker.metadata.topic_id("orders")


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_fail_for_themselves(broker: Broker, version: int) -> None:
    request = with_another(broker.produce_request(CORRUPT))

    refused, accepted = broker.ask(request, version).responses[0].partition_responses

    assert refused.error_code == CorruptMessage.code
    assert (accepted.index, accepted.error_code, accepted.base_offset) == (2, 0, 0)


@pytest.mark.parametrize("version", [7, 12])
def test_an_unknown_topic(broker: Broker, version: int) -> None:
    answer = only(broker.produce(version=version, topic="nobody"))

    assert answer.error_code == UnknownTopicOrPartition.code
    assert answer.base_offset == -1


def test_an_unknown_topic_id(broker: Broker) -> None:
    request = broker.produce_request()
    request.topic_data[0].topic_id = Uuid(b"0123456789abcdef")

    assert only(broker.ask(request)).error_code == UnknownTopicId.code


@pytest.mark.parametrize("acks", [2, -2, 99])
def test_acks_that_do_not_exist(broker: Broker, acks: int) -> None:
    answers = broker.ask(with_another(broker.produce_request(acks=acks))).responses[0]

    codes = [each.error_code for each in answers.partition_responses]
    assert codes == [InvalidRequiredAcks.code] * 2


def test_without_acks_nothing_is_answered(broker: Broker) -> None:
    call = broker.call(broker.produce_request(acks=0))

    assert call.outcome is NO_RESPONSE
    assert broker.partition().log.log_end_offset == 1


def test_without_acks_a_failure_closes_the_connection(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    call = broker.call(broker.produce_request(CORRUPT, acks=0))

    assert call.outcome is CLOSE
    assert "acks=0" in caplog.text


def test_a_leader_elsewhere_is_named() -> None:
    broker = Broker(brokers=(1, 2))
    broker.controller.create("orders", [[2, 1]])
    broker.publish()

    response = broker.produce(version=12)

    answer = only(response)
    assert answer.error_code == NotLeaderOrFollower.code
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 0)
    assert [(each.node_id, each.host, each.port) for each in response.node_endpoints] == [
        (2, "b2", 9092)
    ]


def test_before_version_10_nobody_is_named() -> None:
    broker = Broker(brokers=(1, 2))
    broker.controller.create("orders", [[2, 1]])
    broker.publish()

    assert only(broker.produce(version=9)).error_code == NotLeaderOrFollower.code


@pytest.mark.parametrize("version", [7, 13])
def test_internal_topics_are_for_the_broker_and_its_admin_client(version: int) -> None:
    broker = Broker()
    broker.create("__consumer_offsets")
    request = broker.produce_request(topic="__consumer_offsets")

    refused = only(broker.ask(request, version))
    accepted = only(broker.ask(request, version, client_id="__admin_client"))

    assert refused.error_code == InvalidTopic.code
    assert accepted.error_code == 0


def test_a_retry_of_an_idempotent_producer_gets_the_first_offset_again(broker: Broker) -> None:
    batch = batch_bytes(pid=5, epoch=0, sequence=0)
    broker.produce(batch)
    broker.produce(batch_bytes(pid=5, epoch=0, sequence=1))

    again = only(broker.produce(batch))
    gap = only(broker.produce(batch_bytes(pid=5, epoch=0, sequence=9)))

    assert (again.error_code, again.base_offset) == (0, 0)
    assert gap.error_code == OutOfOrderSequenceNumber.code
    assert broker.partition().log.log_end_offset == 2


def test_transactional_records_need_a_coordinator(broker: Broker) -> None:
    batch = batch_bytes(pid=5, epoch=0, sequence=0, is_transactional=True)
    request = broker.produce_request(batch)
    without_id = only(broker.ask(request))
    request.transactional_id = "tx"

    with_id = only(broker.ask(request))

    assert without_id.error_code == TransactionalIdAuthorizationFailed.code
    assert with_id.error_code == NotEnoughReplicas.code, "a producer tries again"
    assert broker.partition().log.log_end_offset == 0


def test_transactional_records_of_nobody_need_an_id_too(broker: Broker) -> None:
    answer = only(broker.produce(batch_bytes(is_transactional=True)))

    assert answer.error_code == TransactionalIdAuthorizationFailed.code
    assert broker.partition().log.log_end_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_came_with_version_7(broker: Broker, version: int) -> None:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, b"x" * 200)
    packed = bytes(builder.build(compression=Compression.ZSTD))

    single = only(broker.produce(packed, version=version))

    assert single.error_code == (UnsupportedCompressionType.code if version < 7 else 0)


def test_zstd_anywhere_in_an_old_request_is_refused(broker: Broker) -> None:
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, b"x" * 200)
    request = with_another(
        broker.produce_request(bytes(builder.build(compression=Compression.ZSTD)))
    )

    response: Any = broker.ask(request, version=6)

    codes = [each.error_code for each in response.responses[0].partition_responses]
    assert codes == [UnsupportedCompressionType.code] * 2


def test_records_to_blame_are_named(broker: Broker) -> None:
    broker.create("compacted", cleanup_policy="compact")
    builder = RecordBatchBuilder()
    builder.append(1_700_000_000_000, None, b"no key")

    answer = only(broker.produce(bytes(builder.build()), topic="compacted"))

    assert answer.error_code == InvalidRecord.code
    assert [each.batch_index for each in answer.record_errors] == [0]
    assert answer.error_message


def test_bad_records_are_in_the_log_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "millstream.server")
    for _ in range(5):
        assert only(broker.produce(CORRUPT)).error_code == CorruptMessage.code

    (line,) = [message for message in caplog.messages if "Refused records" in message]
    assert line.startswith("Refused records of 10.1.2.3 (client id ")


def test_records_that_are_missing(broker: Broker) -> None:
    request = broker.produce_request()
    request.topic_data[0].partition_data[0].records = None

    assert only(broker.ask(request)).error_code == InvalidRecord.code


def test_an_answer_waits_for_the_disk_where_the_topic_asks_for_it() -> None:
    broker = Broker()
    broker.create("safe", millstream_durability="disk")
    single = broker.call(broker.produce_request(topic="safe"))
    several = broker.call(broker.produce_request(topic="safe"), 9)
    assert single.is_pending
    assert several.is_pending

    broker.settle()

    assert only(single.response).base_offset == 0
    assert only(several.response).base_offset == 1
