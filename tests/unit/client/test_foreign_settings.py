"""Settings that users bring from Java's clients and from librdkafka."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from millstream.client.admin.config import AdminConfig
from millstream.client.config import settings_from_dotted
from millstream.client.consumer.config import ConsumerConfig
from millstream.client.producer.config import ProducerConfig
from millstream.client.producer.partitioner import RoundRobin, resolve_partitioner
from millstream.client.producer.settings import config_from_dotted
from millstream.client.serialization import as_deserializer, as_serializer
from millstream.client.share_consumer.config import ShareConsumerConfig
from millstream.errors import InvalidArgument

SERVERS = {"bootstrap.servers": "a:1"}


def test_names_of_librdkafka_are_those_of_kafka() -> None:
    config = config_from_dotted(
        {
            "metadata.broker.list": "a:1,b:2",
            "queue.buffering.max.ms": "0.5",
            "queue.buffering.max.kbytes": 2048,
            "request.required.acks": 1,
            "message.timeout.ms": 60_000,
            "compression.codec": "zstd",
            "compression.level": 3,
            "security.protocol": "plaintext",
        }
    )

    assert config.bootstrap_servers == ("a:1", "b:2")
    assert config.linger_ms == 1, "a time above 0 does not become 0"
    assert config.buffer_memory == 2 << 20
    assert (config.acks, config.delivery_timeout_ms) == ("1", 60_000)
    assert (config.compression_type, config.compression_level) == ("zstd", 3)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("smallest", "earliest"), ("beginning", "earliest"), ("largest", "latest"), ("error", "none")],
)
def test_words_of_librdkafka_are_those_of_kafka(theirs: str, ours: str) -> None:
    config = settings_from_dotted(ConsumerConfig, {**SERVERS, "auto.offset.reset": theirs})

    assert config.auto_offset_reset == ours


def test_of_two_names_for_one_setting_kafkas_counts(caplog: pytest.LogCaptureFixture) -> None:
    config = config_from_dotted({**SERVERS, "linger.ms": 7, "queue.buffering.max.ms": 9})

    assert config.linger_ms == 7
    assert caplog.messages == ["settings without effect in a Producer: queue.buffering.max.ms"]


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        (ProducerConfig, {}),
        (ConsumerConfig, {}),
        (ShareConsumerConfig, {"group.id": "g"}),
        (AdminConfig, {}),
    ],
)
def test_what_means_nothing_is_named_in_one_line(
    settings: type, more: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    settings_from_dotted(
        settings,
        {**SERVERS, **more, "statistics.interval.ms": 5, "metric.reporters": "", "log_level": 6},
    )

    (line,) = caplog.messages
    assert line.startswith("settings without effect in a ")
    assert line.endswith(": log_level, metric.reporters, statistics.interval.ms")


def test_settings_of_another_kind_of_client_are_named(caplog: pytest.LogCaptureFixture) -> None:
    config_from_dotted({**SERVERS, "group.id": "g", "value.deserializer": "str"})

    assert caplog.messages == [
        "settings without effect in a Producer: group.id, value.deserializer"
    ]


def test_a_name_that_nobody_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match=r"linger\.m: .*did you mean linger\.ms"):
        config_from_dotted({**SERVERS, "linger.m": 5})


def test_credentials_are_never_left_out() -> None:
    with pytest.raises(InvalidArgument, match=r"sasl\.passwort: there is no such setting"):
        config_from_dotted({**SERVERS, "sasl.passwort": "secret"})


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("enable.auto.offset.store", False, "commit"),
        ("rebalance_cb", print, "listener="),
        ("on_delivery", print, "on_delivery="),
    ],
)
def test_what_an_application_relies_on_is_refused_with_advice(
    name: str, value: object, advice: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"{name}: there is no such setting.*{advice}"):
        settings_from_dotted(ConsumerConfig, {**SERVERS, name: value})


def test_what_says_what_happens_anyway_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    settings_from_dotted(ConsumerConfig, {**SERVERS, "enable.auto.offset.store": True})

    assert caplog.messages == ["settings without effect in a Consumer: enable.auto.offset.store"]


def test_classes_of_java_are_ours_where_there_are_such() -> None:
    config = config_from_dotted(
        {
            **SERVERS,
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
        }
    )

    assert as_serializer(config.key_serializer).serialize("t", "é", []) == b"\xc3\xa9"
    assert isinstance(resolve_partitioner(config.partitioner), RoundRobin)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("io.confluent.kafka.serializers.KafkaAvroDeserializer", "AvroSerde"),
        ("org.springframework.kafka.support.serializer.JsonDeserializer", "'json'"),
        ("org.apache.kafka.common.serialization.StringDeserialiser", "StringDeserializer"),
    ],
)
def test_a_class_of_java_that_we_lack_is_refused_with_the_nearest(name: str, advice: str) -> None:
    with pytest.raises(InvalidArgument, match=advice):
        as_deserializer(name)


def test_an_assignor_that_is_not_there_is_refused_with_the_nearest() -> None:
    strategy = "org.apache.kafka.clients.consumer.StickyAsignor"

    with pytest.raises(InvalidArgument, match="did you mean StickyAssignor"):
        settings_from_dotted(ConsumerConfig, {**SERVERS, "partition.assignment.strategy": strategy})
