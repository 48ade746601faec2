"""AlterConfigs and IncrementalAlterConfigs for every kind of resource."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from millstream.config import ConfigType, UpdateMode, any_value, at_least, key
from millstream.controller.controls import ControllerSeams
from millstream.errors import PolicyViolation
from millstream.metadata.configs import CLUSTER_DEFAULT, ConfigResource, ResourceType
from millstream.network.server.config import SocketServerConfig
from millstream.network.server.listener_limits import limit_key
from millstream.protocol.messages import alter_configs as legacy
from millstream.protocol.messages import incremental_alter_configs as incremental
from millstream.protocol.messages.config_records import ConfigRecord
from millstream.protocol.messages.topic_records import ClearElrRecord
from tests.unit.controller.rig import Rig

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def change(
    kind: int, name: str, *operations: tuple[str, int, str | None], validate_only: bool = False
) -> incremental.IncrementalAlterConfigsRequest:
    return incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in operations
                ],
            )
        ],
        validate_only=validate_only,
    )


def replace(
    kind: int, name: str, configs: dict[str, str | None], *, validate_only: bool = False
) -> legacy.AlterConfigsRequest:
    return legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[legacy.AlterableConfig(name=k, value=v) for k, v in configs.items()],
            )
        ],
        validate_only=validate_only,
    )


def code(rig: Rig, request: object) -> int:
    response = rig.ask(request)  # type: ignore[arg-type]
    error_code: int = response.responses[0].error_code
    assert bool(response.responses[0].error_message) == bool(error_code)
    return error_code


def set_topic(rig: Rig, topic: str, name: str, value: str) -> int:
    return code(rig, change(TOPIC, topic, (name, SET, value)))


@pytest.fixture
def rig() -> Rig:
    rig = Rig([0, 1])
    rig.create("t", [[0, 1]])
    return rig


def test_a_topic_setting_is_set_changed_and_deleted(rig: Rig) -> None:
    assert set_topic(rig, "t", "retention.ms", "1000") == 0
    assert rig.image.configs.of(TOPIC, "t") == {"retention.ms": "1000"}
    assert rig.records_of(change(TOPIC, "t", ("retention.ms", SET, "1000"))) == []
    assert code(rig, change(TOPIC, "t", ("retention.ms", DELETE, None))) == 0
    assert rig.image.configs.of(TOPIC, "t") == {}


def test_lists_are_added_to_and_taken_from(rig: Rig) -> None:
    assert code(rig, change(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))) == 0
    assert rig.image.configs.of(TOPIC, "t")["cleanup.policy"] == "delete,compact"
    assert code(rig, change(TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))) == 0
    assert rig.image.configs.of(TOPIC, "t")["cleanup.policy"] == "compact"
    assert code(rig, change(TOPIC, "t", ("retention.ms", APPEND, "1"))) == 40


def test_bad_values_names_and_resources_are_refused(rig: Rig) -> None:
    assert set_topic(rig, "t", "retention.ms", "soon") == 40
    assert set_topic(rig, "t", "retention.mss", "1") == 40
    assert set_topic(rig, "t", "segment.bytes", "1") == 40
    assert set_topic(rig, "nope", "retention.ms", "1") == 3
    assert set_topic(rig, "bad name", "retention.ms", "1") == 17
    assert code(rig, change(TOPIC, "t", ("retention.ms", SET, None))) == 42
    assert code(rig, change(TOPIC, "t", ("retention.ms", 9, "1"))) == 42
    twice = ("retention.ms", SET, "1")
    assert code(rig, change(TOPIC, "t", twice, twice)) == 42
    assert code(rig, change(LOGGER, "0", ("root", SET, "INFO"))) == 42
    assert code(rig, change(77, "x", ("a", SET, "b"))) == 42
    assert rig.image.configs.of(TOPIC, "t") == {}


def test_a_value_must_fit_its_record(rig: Rig) -> None:
    replicas = ",".join(f"{number}:0" for number in range(6000))
    key = "leader.replication.throttled.replicas"
    assert set_topic(rig, "t", key, replicas) == 40
    half = replicas[:20_000].rpartition(",")[0]
    assert set_topic(rig, "t", key, half) == 0
    assert code(rig, change(TOPIC, "t", (key, APPEND, replicas[-20_000:].partition(",")[2]))) == 40


def test_rules_between_settings_see_those_that_stay(rig: Rig) -> None:
    assert set_topic(rig, "t", "min.compaction.lag.ms", "1000") == 0
    assert set_topic(rig, "t", "max.compaction.lag.ms", "999") == 40


def test_a_resource_may_occur_once(rig: Rig) -> None:
    request = change(TOPIC, "t", ("retention.ms", SET, "1"))
    request.resources.append(request.resources[0])

    assert [each.error_code for each in rig.ask(request).responses] == [42, 42]


def test_one_bad_resource_does_not_spoil_the_others(rig: Rig) -> None:
    request = change(TOPIC, "t", ("retention.ms", SET, "1"))
    request.resources += change(TOPIC, "nope", ("retention.ms", SET, "1")).resources

    assert [each.error_code for each in rig.ask(request).responses] == [0, 3]
    assert rig.image.configs.of(TOPIC, "t") == {"retention.ms": "1"}


def test_validating_only_writes_nothing(rig: Rig) -> None:
    operation = ("retention.ms", SET, "1")
    assert rig.records_of(change(TOPIC, "t", operation, validate_only=True)) == []
    assert rig.records_of(replace(TOPIC, "t", {"retention.ms": "1"}, validate_only=True)) == []
    assert code(rig, change(TOPIC, "t", ("retention.ms", SET, "x"), validate_only=True)) == 40


def test_the_legacy_form_replaces_everything(rig: Rig) -> None:
    assert code(rig, replace(TOPIC, "t", {"retention.ms": "1", "preallocate": "true"})) == 0
    assert code(rig, replace(TOPIC, "t", {"retention.ms": "2"})) == 0
    assert rig.image.configs.of(TOPIC, "t") == {"retention.ms": "2"}
    assert code(rig, replace(TOPIC, "t", {"retention.ms": None})) == 40
    request = replace(TOPIC, "t", {"retention.ms": "1"})
    request.resources[0].configs *= 2
    assert code(rig, request) == 42
    request = replace(TOPIC, "t", {"retention.ms": "1"})
    request.resources *= 2
    assert code(rig, request) == 42


def test_deleting_a_topic_forgets_its_settings(rig: Rig) -> None:
    from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    set_topic(rig, "t", "retention.ms", "1")
    rig.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    rig.create("t", [[0]])

    assert rig.image.configs.of(TOPIC, "t") == {}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Three keys of brokers."""

    threads: int = key(
        "io.threads", 1, at_least(1), "Threads.", update_mode=UpdateMode.CLUSTER_WIDE
    )
    listener: str = key(
        "listener", "x", any_value(), "Listener.", update_mode=UpdateMode.PER_BROKER
    )
    port: int = key("port", 1, any_value(), "Port.")
    secret: str | None = key(
        "secret",
        None,
        any_value(),
        "Secret.",
        kind=ConfigType.PASSWORD,
        update_mode=UpdateMode.CLUSTER_WIDE,
    )


@pytest.fixture
def broker_rig() -> Rig:
    seams = ControllerSeams(
        broker_settings=(BrokerSettings,),
        listener_key=limit_key,
        quorum_ids=lambda: frozenset({100, 101}),
    )
    return Rig([0], seams=seams)


def test_broker_settings_are_checked_by_their_declaration(broker_rig: Rig) -> None:
    rig = broker_rig
    assert code(rig, change(BROKER, "0", ("io.threads", SET, "4"))) == 0
    assert code(rig, change(BROKER, "", ("io.threads", SET, "8"))) == 0
    assert rig.image.configs.of(*CLUSTER_DEFAULT)["io.threads"] == "8"
    assert code(rig, change(BROKER, "0", ("io.threads", SET, "0"))) == 40
    assert code(rig, change(BROKER, "0", ("io.threads", SET, "many"))) == 40
    assert code(rig, change(BROKER, "0", ("port", SET, "1"))) == 42
    assert code(rig, change(BROKER, "0", ("listener", SET, "y"))) == 0
    assert code(rig, change(BROKER, "", ("listener", SET, "y"))) == 42
    assert code(rig, change(BROKER, "0", ("my.own.key", SET, "anything"))) == 0
    assert code(rig, change(BROKER, "0", ("log.retention.ms", SET, "x"))) == 40
    assert code(rig, change(BROKER, "0", ("log.cleanup.policy", SET, "shred"))) == 40
    assert code(rig, change(BROKER, "0", ("log.retention.ms", SET, "5"))) == 0
    assert code(rig, change(BROKER, "0", ("log.retention.hours", SET, "5"))) == 42


def test_limits_of_a_listener_are_checked_and_are_one_brokers(broker_rig: Rig) -> None:
    limit = "listener.name.outside.max.connections"
    assert code(broker_rig, change(BROKER, "0", (limit, SET, "5"))) == 0
    assert broker_rig.image.configs.of(ResourceType.BROKER, "0")[limit] == "5"
    assert code(broker_rig, change(BROKER, "0", (limit, SET, "-1"))) == 40
    assert code(broker_rig, change(BROKER, "", (limit, SET, "5"))) == 42
    assert code(broker_rig, change(BROKER, "0", ("listener.name.outside.x", SET, "y"))) == 0


@pytest.mark.parametrize("broker", ["", "0"])
def test_settings_that_would_lock_everybody_out_are_refused(broker: str) -> None:
    rig = Rig([0], seams=ControllerSeams(broker_settings=(SocketServerConfig,)))
    limit, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"

    assert code(rig, change(BROKER, broker, ("max.connections", SET, "0"))) == 40
    assert code(rig, change(BROKER, broker, (limit, SET, "0"))) == 40
    nobody = [(limit, SET, "0"), (overrides, SET, "10.0.0.1:0")]
    assert code(rig, change(BROKER, broker, *nobody)) == 40
    somebody = [(limit, SET, "0"), (overrides, SET, "10.0.0.1:0,10.0.0.2:5")]
    assert code(rig, change(BROKER, broker, *somebody)) == 0
    assert code(rig, change(BROKER, broker, (overrides, DELETE, None))) == 40
    assert code(rig, change(BROKER, broker, ("max.connections", SET, "1"))) == 0


def test_a_listener_takes_at_least_one_connection(broker_rig: Rig) -> None:
    limit = "listener.name.outside.max.connections"

    assert code(broker_rig, change(BROKER, "0", (limit, SET, "0"))) == 40


def test_broker_settings_need_a_node(broker_rig: Rig) -> None:
    assert code(broker_rig, change(BROKER, "7", ("io.threads", SET, "4"))) == 102
    assert code(broker_rig, change(BROKER, "101", ("io.threads", SET, "4"))) == 0
    assert code(broker_rig, change(BROKER, "zero", ("io.threads", SET, "4"))) == 42


def test_a_broker_setting_is_written_even_if_it_stays_the_same(broker_rig: Rig) -> None:
    request = change(BROKER, "0", ("secret", SET, "file"))
    broker_rig.ask(request)

    assert len(broker_rig.records_of(request)) == 1


def test_settings_of_metric_subscriptions(rig: Rig) -> None:
    good = ("interval.ms", SET, "1000")
    assert code(rig, change(METRICS, "m", good, ("match", SET, "client_id=a.*"))) == 0
    assert code(rig, change(METRICS, "", good)) == 42
    assert code(rig, change(METRICS, "m", ("interval.ms", SET, "99"))) == 42
    assert code(rig, change(METRICS, "m", ("interval", SET, "99"))) == 42
    for match in ("color=blue", "client_id", "client_id=("):
        assert code(rig, change(METRICS, "m", ("match", SET, match))) == 40
    assert code(rig, change(METRICS, "m", ("metrics", APPEND, "org.apache"))) == 0


def test_settings_of_groups(rig: Rig) -> None:
    assert code(rig, change(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))) == 0
    assert code(rig, change(GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))) == 42
    assert code(rig, change(GROUP, "g", ("consumer.session.timeout.ms", SET, "10"))) == 40
    assert code(rig, change(GROUP, "g", ("nonsense", SET, "10"))) == 40


def test_the_site_may_have_rules_of_its_own() -> None:
    class Policy:
        def check(self, resource: ConfigResource, changes: object) -> None:
            if resource.type == ResourceType.TOPIC and "retention.ms" in changes:  # type: ignore[operator]
                raise PolicyViolation("retention is not yours to set")

    rig = Rig([0], seams=ControllerSeams(alter_config_policy=Policy()))
    rig.create("t", [[0]])

    assert set_topic(rig, "t", "retention.ms", "1") == 44
    assert set_topic(rig, "t", "preallocate", "true") == 0
    assert rig.create("u", [[0]], retention_ms="1").error_code == 44


def test_elr_pins_the_minimum_of_in_sync_replicas_for_the_whole_cluster(rig: Rig) -> None:
    assert rig.image.configs.of(*CLUSTER_DEFAULT) == {"min.insync.replicas": "1"}
    assert code(rig, change(BROKER, "0", ("min.insync.replicas", SET, "2"))) == 40
    assert code(rig, change(BROKER, "", ("min.insync.replicas", DELETE, None))) == 40


def test_a_new_minimum_forgets_who_was_eligible(rig: Rig) -> None:
    of_topic = rig.records_of(change(TOPIC, "t", ("min.insync.replicas", SET, "2")))
    assert of_topic == [
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="min.insync.replicas", value="2"),
        ClearElrRecord(topic_name="t"),
    ]
    of_all = rig.records_of(change(BROKER, "", ("min.insync.replicas", SET, "2")))
    assert of_all[-1] == ClearElrRecord()


def test_without_elr_the_minimum_is_free() -> None:
    rig = Rig([0], features={"eligible.leader.replicas.version": 0})

    assert rig.image.configs.of(*CLUSTER_DEFAULT) == {}
    assert len(rig.records_of(change(BROKER, "0", ("min.insync.replicas", SET, "2")))) == 1
    assert len(rig.records_of(change(BROKER, "", ("min.insync.replicas", SET, "2")))) == 1
