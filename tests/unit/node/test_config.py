"""The settings of a whole node."""

from __future__ import annotations

from collections import Counter

import pytest

from millstream.config import keys_of
from millstream.controller.config_schema import ConfigSchema
from millstream.errors import InvalidConfig, InvalidRequest
from millstream.metadata.configs import ConfigResource, ResourceType
from millstream.network.server.listener_limits import ListenerLimits
from millstream.node.config import NodeConfig, known_keys, node_config


def test_nothing_given_is_a_cluster_of_one_on_localhost() -> None:
    config = node_config({"log.dirs": "/data"})

    assert config.is_broker
    assert config.is_controller
    assert config.process.node_id == 1
    assert [str(each) for each in config.network.endpoints] == [
        "PLAINTEXT://localhost:9092",
        "CONTROLLER://localhost:0",
    ]
    assert config.network.controller_names == {"CONTROLLER"}
    assert config.metadata_dir == "/data"
    assert config.directories == ("/data",)
    assert config.warnings == ()


def test_every_setting_is_declared_once() -> None:
    declared = Counter(
        key.name for settings in NodeConfig.CLASSES for key in keys_of(settings).values()
    )

    assert [name for name, times in declared.items() if times > 1] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "PLAINTEXT://localhost:9093"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT"),
    ],
)
def test_where_a_broker_listens_cannot_be_changed_while_it_runs(name: str, value: str) -> None:
    schema = ConfigSchema(broker_settings=NodeConfig.CLASSES)

    with pytest.raises(InvalidRequest, match=f"{name} cannot be changed while brokers run"):
        schema.check(ConfigResource(ResourceType.BROKER, "1"), {name: value})


def test_a_quorum_of_one_neither_lingers_nor_writes_when_idle() -> None:
    config = node_config({"log.dirs": "/data"})
    assert (config.quorum.append_linger_ms, config.controller.metadata_max_idle_interval_ms) == (
        0,
        0,
    )

    given = {"log.dirs": "/data", "controller.quorum.voters": "1@localhost:9093"}
    config = node_config(given)
    assert (config.quorum.append_linger_ms, config.controller.metadata_max_idle_interval_ms) == (
        25,
        500,
    )


def test_what_is_given_wins_over_the_defaults_of_a_single_node() -> None:
    config = node_config({"log.dirs": "/data", "metadata.max.idle.interval.ms": "700"})

    assert config.controller.metadata_max_idle_interval_ms == 700


def test_kafkas_own_server_properties_is_understood() -> None:
    config = node_config(
        {
            "process.roles": "broker,controller",
            "node.id": "7",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "num.network.threads": "3",
            "log.dirs": "/tmp/kraft-combined-logs",
            "num.partitions": "3",
            "log.retention.hours": "24",
            "log.segment.bytes": "1073741824",
        }
    )

    assert config.process.node_id == 7
    assert config.controller.num_partitions == 3
    assert config.topics.retention_ms == 24 * 3_600_000
    assert config.warnings == ("num.network.threads has no effect here",)


def test_log_dir_stands_in_for_log_dirs() -> None:
    assert node_config({"log.dir": "/one"}).logs.log_dirs == ("/one",)
    assert node_config({"log.dir": "/one", "log.dirs": "/two"}).logs.log_dirs == ("/two",)


def test_relative_directories_become_absolute() -> None:
    config = node_config({"log.dirs": "a, b", "metadata.log.dir": "m"})

    assert all(path.startswith("/") for path in config.directories)
    assert [path.rpartition("/")[2] for path in config.directories] == ["m", "a", "b"]


def test_a_controller_alone_has_only_the_metadata_directory() -> None:
    config = node_config({"process.roles": "controller", "log.dirs": "/a,/b"})

    assert config.directories == ("/a",)
    assert [each.listener_name for each in config.network.endpoints] == ["CONTROLLER"]


def test_every_fault_of_every_package_is_in_one_error() -> None:
    with pytest.raises(InvalidConfig) as caught:
        node_config(
            {
                "node.id": "-1",
                "listeners": "nonsense",
                "log.retention.hours": "soon",
                "log.segment.bytes": "7",
                "num.partitions": "0",
                "controller.quorum.fetch.timeout.ms": "x",
            }
        )

    text = str(caught.value)
    assert text.startswith("6 invalid settings:")
    for fault in (
        "node.id=-1: must be at least 0",
        "listeners=nonsense: must be a list of NAME://HOST:PORT",
        "log.retention.hours=soon: must be a whole number of 64 bits, at least -1",
        "log.segment.bytes=7: must be at least 1048576",
        "num.partitions=0: must be at least 1",
        "controller.quorum.fetch.timeout.ms=x: must be a whole number of 32 bits, at least 1",
    ):
        assert fault in text


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (
            {"listeners": "PLAINTEXT://:9092", "controller.listener.names": "CONTROLLER"},
            "listeners=PLAINTEXT://:9092: must be with a listener of controller.listener.names",
        ),
        (
            {"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"},
            "must be with a listener that is not the controller's",
        ),
        ({"process.roles": ""}, "process.roles=: must be broker, controller or both"),
        (
            {"process.roles": "controller", "listeners": "PLAINTEXT://:1,CONTROLLER://:2"},
            "must be only listeners of controller.listener.names",
        ),
        (
            {"process.roles": "broker"},
            "controller.quorum.bootstrap.servers=: must be given, or controller.quorum.voters",
        ),
        (
            {"process.roles": "broker", "controller.quorum.voters": "1@other:9093"},
            "must be without node 1, which is no controller by process.roles",
        ),
        (
            {"controller.quorum.voters": "2@other:9093"},
            "must be with node 1, which is a controller by process.roles",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(given: dict[str, str], fault: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        node_config(given)

    assert fault in str(caught.value)


def test_unknown_keys_are_warnings_with_the_nearest_one() -> None:
    config = node_config(
        {"log.dirs": "/d", "log.retension.ms": "1", "completely.else": "1"}, ["MILLSTREAM_X"]
    )

    assert config.warnings == (
        "the setting log.retension.ms is not known: did you mean log.retention.ms?",
        "the setting completely.else is not known and is ignored",
        "the environment variable MILLSTREAM_X names no setting and is ignored",
    )


def test_a_listener_may_have_limits_of_its_own() -> None:
    config = node_config(
        {
            "log.dirs": "/d",
            "listener.name.plaintext.max.connections": "5",
            "listener.name.PLAINTEXT.max.connection.creation.rate": "7",
        }
    )

    limits = ListenerLimits(max_connections=5, max_connection_creation_rate=7)
    assert config.network.listener_limits == {"PLAINTEXT": limits}
    assert config.warnings == ()


def test_wrong_limits_of_a_listener_are_all_named() -> None:
    given = {
        "log.dirs": "/d",
        "listener.name.plaintext.max.connections": "many",
        "listener.name.plaintext.max.connection.creation.rate": "0",
    }

    with pytest.raises(InvalidConfig) as caught:
        node_config(given)

    assert "listener.name.plaintext.max.connections=many: must be" in str(caught.value)
    assert "listener.name.plaintext.max.connection.creation.rate=0: must be" in str(caught.value)


def test_settings_of_a_listener_without_effect_are_told() -> None:
    config = node_config(
        {
            "log.dirs": "/d",
            "listener.name.outside.max.connections": "5",
            "listener.name.plaintext.connections.max.idle.ms": "5",
        }
    )

    assert config.warnings == (
        "listener.name.outside.max.connections has no effect: there is no listener OUTSIDE",
        "listener.name.plaintext.connections.max.idle.ms has no effect here: "
        "connections.max.idle.ms holds for all listeners together",
    )


def test_known_keys_include_those_of_topics_only_in_their_brokers_form() -> None:
    assert {"log.retention.ms", "log.retention.hours", "log.dir", "node.id"} <= known_keys()
    assert "retention.ms" not in known_keys()
