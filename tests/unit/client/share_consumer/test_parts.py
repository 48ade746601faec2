"""Settings, records and the buffer of a share consumer."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from millstream.client.config import keyword_names
from millstream.client.share_consumer.config import ShareConsumerConfig, ShareConsumerSettings
from millstream.client.share_consumer.node_session import NodeSession
from millstream.client.share_consumer.share_buffer import Acquired, Outcome, ShareBuffer
from millstream.client.share_consumer.share_consumer import ShareConsumer
from millstream.client.share_consumer.share_record import ShareRecord
from millstream.errors import InvalidArgument, InvalidRecordState
from millstream.records.kernel import ConsumerRecord
from millstream.types import TopicPartition

T0 = TopicPartition("t", 0)


def record(offset: int) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 7, b"k", b"v", (("h", b"x"),), 1, 3)


def test_the_typed_dict_names_every_setting_that_is_no_parameter_of_its_own() -> None:
    names = keyword_names(ShareConsumerConfig).keys() - {
        "bootstrap_servers",
        "key_deserializer",
        "value_deserializer",
    }
    assert get_type_hints(ShareConsumerSettings).keys() == names


def test_a_share_consumer_needs_a_group() -> None:
    with pytest.raises(InvalidArgument, match="group"):
        ShareConsumer("localhost:1", "t")
    with pytest.raises(InvalidArgument, match="group_id"):
        ShareConsumer("localhost:1", "t", group_id="")
    with pytest.raises(InvalidArgument, match="as the first argument"):
        ShareConsumer("localhost:1", group_id="g", bootstrap_servers="x")  # type: ignore[call-overload]  # wrong


def test_topics_are_given_by_name() -> None:
    with pytest.raises(InvalidArgument, match="one topic or more"):
        ShareConsumer("localhost:1", "", group_id="g")


def test_a_record_has_all_that_a_consumers_record_has() -> None:
    shared = ShareRecord(record(5), 2, "k", "v")

    assert (shared.topic, shared.partition, shared.offset) == ("t", 0, 5)
    assert (shared.timestamp, shared.timestamp_type, shared.leader_epoch) == (7, 1, 3)
    assert (shared.key, shared.value, shared.headers) == ("k", "v", (("h", b"x"),))
    assert shared.delivery_count == 2
    assert "offset=5" in repr(shared)
    assert shared == ShareRecord(record(5), 2, "k", "v")
    assert shared != ShareRecord(record(5), 3, "k", "v")
    assert shared != 5
    assert len({shared, ShareRecord(record(5), 2, "k", "v")}) == 1


def acquired(session: NodeSession, *offsets: int) -> Acquired:
    return Acquired(session, T0, [record(each) for each in offsets], [1] * len(offsets))


def taken(buffer: ShareBuffer, count: int) -> list[int]:
    return [each.offset for chunk in buffer.take(count) for each in chunk.records]


def test_the_buffer_gives_no_more_than_asked_for_and_keeps_the_rest() -> None:
    buffer, session = ShareBuffer(), NodeSession(0, "g", "m")
    buffer.put(acquired(session, 1, 2, 3))
    buffer.put(acquired(session, 4))

    assert taken(buffer, 2) == [1, 2]
    buffer.put_back([acquired(session, 2)])
    assert taken(buffer, 9) == [2, 3, 4]
    assert buffer.is_empty


def test_the_buffer_drops_what_came_in_a_session_that_is_over() -> None:
    buffer = ShareBuffer()
    over, lasting = NodeSession(0, "g", "m"), NodeSession(1, "g", "m")
    buffer.put(acquired(over, 1))
    buffer.put(acquired(lasting, 2))

    buffer.drop(over)
    assert taken(buffer, 9) == [2]
    buffer.put(acquired(lasting, 3))
    buffer.drop()
    assert buffer.is_empty


def test_outcomes_errors_and_wakes_are_told_once() -> None:
    buffer = ShareBuffer()
    outcome = Outcome(T0, frozenset({1}), None)
    error = InvalidRecordState()
    buffer.put_outcome(outcome)
    buffer.put_error(error)
    buffer.wake()

    assert buffer.has_something()
    assert (buffer.take_outcomes(), buffer.take_outcomes()) == ([outcome], [])
    assert (buffer.next_error(), buffer.next_error()) == (error, None)
    assert (buffer.take_wake(), buffer.take_wake()) == (True, False)
    buffer.wait(buffer.has_something, 0)


def test_whoever_waits_in_an_event_loop_is_called_once() -> None:
    buffer, calls = ShareBuffer(), []
    assert buffer.call_on_change(buffer.has_something, lambda: calls.append(1))

    buffer.wake()
    buffer.wake()

    assert calls == [1]
    assert not buffer.call_on_change(buffer.has_something, lambda: calls.append(2))
    assert buffer.call_on_change(buffer.has_something, None)
