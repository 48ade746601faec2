"""Settings: described with their sources, changed, listed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from millstream.controller.config import ControllerConfig
from millstream.errors import (
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from millstream.metadata.configs import ResourceType
from millstream.protocol.messages import alter_configs
from millstream.protocol.messages.list_config_resources import ListConfigResourcesRequest
from millstream.server.config_descriptions import ConfigSource
from tests.unit.server.harness import Broker
from tests.unit.server.requests import alter_request, describe_configs_request

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
LOGGER, METRICS = ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS


def describe(broker: Broker, kind: int, name: str, *keys: str, version: int = 4) -> Any:
    """One resource, with everything there is to know."""
    request = describe_configs_request(
        kind, name, list(keys) or None, with_synonyms=True, with_documentation=version >= 3
    )
    return broker.ask(request, version).results[0]


def levels(setting: Any) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in setting.synonyms]


class TestTopics:
    """DescribeConfigs of a topic."""

    def test_a_default(self) -> None:
        broker = Broker()
        broker.create()

        (setting,) = describe(broker, TOPIC, "orders", "segment.bytes").configs

        assert (setting.value, setting.config_source) == ("1073741824", ConfigSource.DEFAULT)
        assert levels(setting) == [("log.segment.bytes", "1073741824", ConfigSource.DEFAULT)]
        assert setting.config_type == 3
        assert setting.documentation
        assert not setting.read_only
        assert not setting.is_sensitive

    def test_its_own_value_hides_the_levels_below(self) -> None:
        broker = Broker(given={"log.retention.hours": "2"})
        broker.create(retention_ms="5000")

        (setting,) = describe(broker, TOPIC, "orders", "retention.ms").configs

        assert (setting.value, setting.config_source) == ("5000", ConfigSource.TOPIC)
        assert levels(setting) == [
            ("retention.ms", "5000", ConfigSource.TOPIC),
            ("log.retention.hours", "2", ConfigSource.STATIC_BROKER),
            ("log.retention.hours", "168", ConfigSource.DEFAULT),
        ]

    def test_what_was_set_for_brokers_while_they_ran(self) -> None:
        broker = Broker()
        broker.create()
        broker.ask(alter_request(BROKER, "", ("log.retention.ms", "1000")))
        broker.ask(alter_request(BROKER, "1", ("log.retention.ms", "2000")))

        (setting,) = describe(broker, TOPIC, "orders", "retention.ms").configs

        assert [source for _, _, source in levels(setting)] == [
            ConfigSource.DYNAMIC_BROKER,
            ConfigSource.DYNAMIC_DEFAULT_BROKER,
            ConfigSource.DEFAULT,
        ]
        assert setting.config_source == ConfigSource.DYNAMIC_BROKER

    def test_everything_is_described_without_keys_and_nothing_internal(self) -> None:
        broker = Broker()
        broker.create()

        names = {each.name for each in describe(broker, TOPIC, "orders").configs}

        assert {"cleanup.policy", "retention.ms", "min.insync.replicas"} <= names
        assert "internal.segment.bytes" not in names

    def test_details_are_for_who_asks(self) -> None:
        broker = Broker()
        broker.create()

        request = describe_configs_request(TOPIC, "orders", ["retention.ms"])
        (setting,) = broker.ask(request).results[0].configs

        assert setting.synonyms == []
        assert setting.documentation is None

    @pytest.mark.parametrize(
        ("name", "code"), [("nobody", UnknownTopicOrPartition.code), ("a/b", InvalidTopic.code)]
    )
    def test_topics_that_are_none(self, name: str, code: int) -> None:
        result = describe(Broker(), TOPIC, name)

        assert (result.error_code, result.configs) == (code, [])
        assert result.error_message


class TestBrokers:
    """DescribeConfigs of brokers."""

    def test_given_dynamic_and_default_values(self) -> None:
        broker = Broker(given={"auto.create.topics.enable": "false", "log.dirs": "/disk1"})
        broker.ask(alter_request(BROKER, "", ("num.recovery.threads.per.data.dir", "4")))

        settings = {each.name: each for each in describe(broker, BROKER, "1").configs}

        created = settings["auto.create.topics.enable"]
        assert (created.value, created.config_source) == ("false", ConfigSource.STATIC_BROKER)
        assert created.read_only
        threads = settings["num.recovery.threads.per.data.dir"]
        assert (threads.value, threads.read_only) == ("4", False)
        assert threads.config_source == ConfigSource.DYNAMIC_DEFAULT_BROKER
        assert settings["request.timeout.ms"].config_source == ConfigSource.DEFAULT
        assert settings["log.retention.hours"].value == "168"
        assert settings["log.retention.hours"].read_only

    def test_limits_of_listeners_are_described_where_they_are_set(self) -> None:
        outside, inside = (f"listener.name.{name}.max.connections" for name in ("out", "in"))
        broker = Broker(given={outside: "5", "listener.name.out.other": "x"})
        broker.ask(alter_request(BROKER, "1", (inside, "7")))

        settings = {each.name: each for each in describe(broker, BROKER, "1").configs}

        assert (settings[outside].value, settings[inside].value) == ("5", "7")
        assert settings[outside].config_source == ConfigSource.STATIC_BROKER
        assert settings[inside].config_source == ConfigSource.DYNAMIC_BROKER
        assert not settings[inside].read_only
        assert settings["listener.name.out.other"].value is None

    def test_secrets_and_what_may_be_one_are_hidden(self) -> None:
        broker = Broker(given={"delegation.token.secret.key": "s3cret", "my.own": "x"})
        broker.settings.classes = (ControllerConfig,)

        settings = {each.name: each for each in describe(broker, BROKER, "1").configs}

        for name in ("delegation.token.secret.key", "my.own"):
            assert settings[name].is_sensitive
            assert settings[name].value is None
            assert all(each.value is None for each in settings[name].synonyms)

    def test_the_default_of_all_brokers_has_only_what_was_set(self) -> None:
        broker = Broker()
        broker.ask(alter_request(BROKER, "", ("log.retention.ms", "7"), ("my.own", "x")))

        settings = {each.name: each for each in describe(broker, BROKER, "").configs}

        assert settings.keys() == {"log.retention.ms", "min.insync.replicas", "my.own"}
        assert settings["log.retention.ms"].value == "7"
        assert (settings["my.own"].value, settings["my.own"].is_sensitive) == (None, True)

    def test_each_broker_describes_itself(self) -> None:
        assert describe(Broker(), BROKER, "2").error_code == InvalidRequest.code


def test_metric_subscriptions_and_groups() -> None:
    broker = Broker()
    broker.ask(alter_request(METRICS, "m", ("interval.ms", "1000")))
    broker.ask(alter_request(ResourceType.GROUP, "g", ("consumer.session.timeout.ms", "50000")))

    metrics = {each.name: each for each in describe(broker, METRICS, "m").configs}
    group = {each.name: each for each in describe(broker, ResourceType.GROUP, "g").configs}

    assert metrics["interval.ms"].value == "1000"
    assert metrics["interval.ms"].config_source == ConfigSource.CLIENT_METRICS
    assert group["consumer.session.timeout.ms"].config_source == ConfigSource.GROUP
    assert group["consumer.heartbeat.interval.ms"].config_source == ConfigSource.DEFAULT
    assert describe(broker, METRICS, "").error_code == InvalidRequest.code
    assert describe(broker, 77, "x").error_code == InvalidRequest.code


class TestLoggers:
    """Levels of loggers, which are this broker's own business."""

    @pytest.fixture(autouse=True)
    def some_logger(self) -> Iterator[logging.Logger]:
        logger = logging.getLogger("millstream.tests.loggers")
        yield logger
        logger.setLevel(logging.NOTSET)

    def test_a_logger_above_others_is_there_though_nothing_logs_to_it(
        self, some_logger: logging.Logger
    ) -> None:
        broker = Broker()
        parent = some_logger.name.rpartition(".")[0]

        answer = broker.ask(alter_request(LOGGER, "1", (parent, "ERROR")))

        assert answer.responses[0].error_code == 0
        assert some_logger.getEffectiveLevel() == logging.ERROR
        logging.getLogger(parent).setLevel(logging.NOTSET)

    def test_a_level_is_set_shown_and_taken_back(self, some_logger: logging.Logger) -> None:
        broker = Broker()
        name = some_logger.name

        changed = broker.ask(alter_request(LOGGER, "1", (name, "ERROR"))).responses[0]
        shown = {each.name: each.value for each in describe(broker, LOGGER, "1").configs}
        broker.ask(alter_request(LOGGER, "1", (name, None), operation=1))

        assert changed.error_code == 0
        assert shown[name] == "ERROR"
        assert "root" in shown
        assert some_logger.level == logging.NOTSET

    @pytest.mark.parametrize(
        ("broker_name", "logger", "level", "operation", "code"),
        [
            ("2", "root", "INFO", 0, InvalidRequest.code),
            ("1", "root", "LOUD", 0, InvalidConfig.code),
            ("1", "no.such.logger", "INFO", 0, InvalidConfig.code),
            ("1", "root", None, 1, InvalidRequest.code),
            ("1", "root", "INFO", 2, InvalidRequest.code),
        ],
    )
    def test_changes_that_cannot_be(
        self, broker_name: str, logger: str, level: str | None, operation: int, code: int
    ) -> None:
        request = alter_request(LOGGER, broker_name, (logger, level), operation=operation)

        assert Broker().ask(request).responses[0].error_code == code

    def test_other_resources_of_the_same_request_go_to_the_controller(
        self, some_logger: logging.Logger
    ) -> None:
        broker = Broker()
        broker.create()
        request = alter_request(LOGGER, "1", (some_logger.name, "DEBUG"))
        request.resources += alter_request(TOPIC, "orders", ("retention.ms", "9")).resources

        answers = broker.ask(request).responses

        assert [(e.resource_type, e.error_code) for e in answers] == [(LOGGER, 0), (TOPIC, 0)]
        assert some_logger.level == logging.DEBUG
        assert broker.metadata.topic_config("orders") == {"retention.ms": "9"}


def test_alter_configs_replaces_everything() -> None:
    broker = Broker()
    broker.create(retention_ms="5", flush_ms="7")
    wanted = alter_configs.AlterableConfig(name="retention.ms", value="6")
    resource = alter_configs.AlterConfigsResource(
        resource_type=TOPIC, resource_name="orders", configs=[wanted]
    )

    answer = broker.ask(alter_configs.AlterConfigsRequest(resources=[resource])).responses[0]

    assert answer.error_code == 0
    assert broker.metadata.topic_config("orders") == {"retention.ms": "6"}


def test_resources_are_listed_by_type() -> None:
    broker = Broker()
    broker.create()
    broker.ask(alter_request(METRICS, "m", ("interval.ms", "1000")))

    oldest = broker.ask(ListConfigResourcesRequest(), 0).config_resources
    everything = broker.ask(ListConfigResourcesRequest()).config_resources
    topics = broker.ask(ListConfigResourcesRequest(resource_types=[TOPIC])).config_resources
    unknown = broker.ask(ListConfigResourcesRequest(resource_types=[99]))

    assert [each.resource_name for each in oldest] == ["m"]
    assert [(e.resource_type, e.resource_name) for e in everything] == [
        (TOPIC, "orders"),
        (BROKER, "1"),
        (LOGGER, "1"),
        (METRICS, "m"),
    ]
    assert [each.resource_name for each in topics] == ["orders"]
    assert unknown.error_code == UnsupportedVersion.code
