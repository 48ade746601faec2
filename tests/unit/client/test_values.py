"""What clients give and take is plain data: it can be pickled, for other processes."""

from __future__ import annotations

import pickle

import pytest

import millstream
from millstream import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    ProducerRecord,
    RecordMetadata,
    ShareRecord,
    TopicPartition,
)
from millstream.client.admin import ConfigResource, NewTopic, Outcomes, QuotaEntity
from millstream.client.config import shown
from millstream.errors import UnknownTopicOrPartition

VALUES = [
    TopicPartition("t", 1),
    OffsetAndMetadata(5, "note", 2),
    ConsumerGroupMetadata("g", 3, "member", "instance"),
    RecordMetadata("t", 0, 7, 1_000),
    ProducerRecord("t", b"v", b"k", headers=(("h", b"1"),)),
    ConsumerRecord("t", 0, 7, 1_000, b"k", b"v", (("h", None),)),
    NewTopic("t", 3, 1, {"retention.ms": 5}),
    ConfigResource("topic", "t"),
    QuotaEntity(user="alice"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda each: type(each).__name__)
def test_values_travel_between_processes(value: object) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value


def test_outcomes_travel_with_their_errors() -> None:
    outcomes = Outcomes({"a": 1}, {"b": UnknownTopicOrPartition("there is no b")})

    back = pickle.loads(pickle.dumps(outcomes))

    assert back.results == {"a": 1}
    assert str(back.errors["b"]) == "there is no b"


def test_records_of_share_groups_travel() -> None:
    record = ShareRecord(*range(len(ShareRecord.__slots__)))

    assert pickle.loads(pickle.dumps(record)) == record


@pytest.mark.parametrize(
    "client",
    [
        f"{kind}{name}"
        for kind in ("", "Async")
        for name in ("Admin", "Consumer", "Producer", "RetryingConsumer", "ShareConsumer")
    ],
)
def test_every_client_shows_its_brokers(client: str) -> None:
    assert getattr(millstream, client).__repr__ is not object.__repr__


def test_a_client_shows_what_tells_it_from_others_and_no_more() -> None:
    assert shown(5, ("a:1", "b:2"), group_id="g", transactional_id=None) == (
        "int('a:1,b:2', group_id='g')"
    )
    assert shown("x", "a:1") == "str('a:1')"
