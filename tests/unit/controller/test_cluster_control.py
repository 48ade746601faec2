"""Registration, heartbeats, fencing and shutdown: facts 6.14(10) and 6.14(11)."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.metadata.features import SUPPORTED_FEATURES
from millstream.protocol.messages import broker_registration as registration
from millstream.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from millstream.protocol.messages.broker_records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
)
from millstream.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from millstream.protocol.messages.unregister_broker import UnregisterBrokerRequest
from millstream.types import Uuid
from tests.unit.controller.rig import SESSION_MS, Rig, directory, incarnation


def test_rule_10_a_registration_is_fenced_and_its_epoch_is_its_offset() -> None:
    rig = Rig()
    offset = rig.log.end_offset

    epoch = rig.register(5, rack="r1")

    broker = rig.image.cluster.brokers[5]
    assert epoch == broker.epoch == offset
    assert isinstance(rig.log.records[offset], RegisterBrokerRecord)
    assert (broker.is_fenced, broker.rack, broker.listeners["PLAINTEXT"].host) == (True, "r1", "b5")
    assert broker.features == dict(SUPPORTED_FEATURES)


def code(rig: Rig, broker_id: int, **changes: Any) -> int:
    error_code: int = rig.ask(rig.registration(broker_id, **changes)).error_code
    return error_code


def test_rule_10_another_incarnation_is_refused_while_the_session_lives() -> None:
    rig = Rig([1])

    assert code(rig, 1, incarnation_number=2) == 101
    rig.now_ms += SESSION_MS - 1
    assert code(rig, 1, incarnation_number=2) == 101
    rig.now_ms += 1
    assert code(rig, 1, incarnation_number=2) == 0
    assert rig.image.cluster.brokers[1].is_fenced


def test_rule_10_another_incarnation_is_welcome_after_a_controlled_shutdown() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[1, 0]])
    rig.beat(1, want_shut_down=True)

    assert code(rig, 1, incarnation_number=2, previous_broker_epoch=rig.epoch_of(1)) == 0
    assert not rig.image.cluster.brokers[1].in_controlled_shutdown


def test_rule_10_the_same_incarnation_keeps_epoch_and_state() -> None:
    rig = Rig([1])
    epoch = rig.epoch_of(1)

    assert rig.register(1) == epoch
    assert not rig.image.cluster.brokers[1].is_fenced


def test_rule_10_another_incarnation_leaves_the_isr_of_its_past() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[1, 0]])
    rig.now_ms += SESSION_MS

    rig.register(1, incarnation_number=2)

    assert (rig.partition("t").leader, rig.partition("t").isr) == (0, (0,))


def test_what_apache_kafka_finalized_and_we_do_not_serve_keeps_no_broker_out() -> None:
    rig = Rig()
    rig.force_level("streams.version", 1)

    rig.register(1)

    assert "streams.version" not in rig.image.cluster.brokers[1].features
    assert rig.image.features.level("streams.version") == 1


def test_rule_10_a_finalized_feature_must_be_supported() -> None:
    rig = Rig()
    features = rig.registration(1).features
    old = [
        registration.Feature(
            name="metadata.version", min_supported_version=7, max_supported_version=29
        )
        if each.name == "metadata.version"
        else each
        for each in features
    ]

    assert code(rig, 1, features=old) == 35
    assert code(rig, 1, features=[each for each in features if each.name != "group.version"]) == 35
    assert code(rig, 1, features=[]) == 35


def test_rule_10_a_broker_of_another_cluster_is_refused() -> None:
    assert code(Rig(), 1, cluster_id="another") == 104


@pytest.mark.parametrize(
    "log_dirs",
    [[], [directory(1), directory(1)], [directory(0)], [Uuid.ZERO]],
    ids=["none", "twice", "foreign", "reserved"],
)
def test_rule_10_directories_must_be_the_brokers_own(log_dirs: list[Uuid]) -> None:
    assert code(Rig([0]), 1, log_dirs=log_dirs) == 119


def test_before_metadata_version_17_directories_are_not_asked_for() -> None:
    rig = Rig(metadata_version=16)

    rig.register(1, log_dirs=[])

    assert rig.image.cluster.brokers[1].directories == ()


def test_a_zookeeper_broker_and_a_listener_that_occurs_twice_are_refused() -> None:
    rig = Rig()
    listener = registration.Listener(name="A", host="h", port=1)

    assert code(rig, 1, is_migrating_zk_broker=True) == 119
    assert code(rig, 1, listeners=[listener, listener]) == 42


def test_rule_11_a_stale_epoch_is_refused() -> None:
    rig = Rig([1])

    assert rig.beat(1, broker_epoch=999).error_code == 77
    stranger = BrokerHeartbeatRequest(broker_id=9, broker_epoch=1)
    assert rig.ask(stranger).error_code == 77


def test_rule_11_a_broker_is_unfenced_once_it_has_seen_its_registration() -> None:
    rig = Rig()
    epoch = rig.register(1)

    behind = rig.beat(1, current_metadata_offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    wanting = rig.beat(1, want_fence=True)
    assert (wanting.is_caught_up, wanting.is_fenced) == (True, True)
    ready = rig.beat(1, current_metadata_offset=epoch)
    assert (ready.is_caught_up, ready.is_fenced) == (True, False)
    assert rig.image.cluster.is_active(1)


def test_rule_11_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    rig = Rig([1])
    before = rig.log.end_offset

    rig.beat(1)

    assert rig.log.end_offset == before


def test_rule_11_a_broker_is_fenced_when_its_session_ends() -> None:
    rig = Rig([0, 1, 2], metadata_max_idle_interval_ms=0)
    rig.create("t", [[0, 1, 2]], min_insync_replicas="3")
    rig.now_ms += 5000
    rig.beat(1)
    rig.beat(2)
    assert rig.controller.next_deadline_ms == SESSION_MS

    rig.tick(SESSION_MS - rig.now_ms)

    assert rig.image.cluster.brokers[0].is_fenced
    after = rig.partition("t")
    assert (after.leader, after.isr, after.elr) == (1, (1, 2), (0,))
    assert rig.controller.next_deadline_ms == 5000 + SESSION_MS


def test_rule_11_a_new_controller_gives_every_broker_a_full_session() -> None:
    rig = Rig([1])
    rig.now_ms += SESSION_MS - 1
    rig.log.epoch = 2
    rig.controller.on_leader(2, rig.now_ms, 0)

    rig.tick(SESSION_MS - 1)
    assert not rig.image.cluster.brokers[1].is_fenced
    rig.tick(1)
    assert rig.image.cluster.brokers[1].is_fenced


def test_a_broker_that_a_new_controller_never_heard_of_may_come_back_at_once() -> None:
    rig = Rig([1])
    rig.create("t", [[1]])
    rig.log.epoch = 2
    rig.controller.on_leader(2, rig.now_ms, 0)

    assert code(rig, 1, incarnation_number=2, previous_broker_epoch=-1) == 0
    rig.beat(1)

    assert rig.partition("t").leader == 1


def test_rule_11_controlled_shutdown_moves_leaderships_then_waits_for_all_to_know() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", [[0, 1, 2]])

    first = rig.beat(0, want_shut_down=True)
    assert (first.is_fenced, first.should_shut_down) == (False, False)
    assert rig.image.cluster.brokers[0].in_controlled_shutdown
    assert (rig.partition("t").leader, rig.partition("t").isr) == (1, (1, 2))
    behind = rig.log.end_offset - 2
    rig.beat(1, current_metadata_offset=behind)
    rig.beat(2)
    assert not rig.beat(0, want_shut_down=True).should_shut_down

    rig.beat(1)
    last = rig.beat(0, want_shut_down=True)

    assert (last.should_shut_down, last.is_fenced) == (True, True)
    assert rig.image.cluster.brokers[0].is_fenced


def test_rule_11_a_controlled_shutdown_survives_a_change_of_controller() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[0, 1]])
    rig.beat(0, want_shut_down=True)
    rig.log.epoch = 2
    rig.controller.on_leader(2, rig.now_ms, 0)

    assert not rig.beat(0, want_shut_down=True).should_shut_down
    rig.beat(1)
    assert rig.beat(0, want_shut_down=True).should_shut_down


def test_rule_11_who_began_to_shut_down_comes_back_only_by_registering_anew() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[0, 1]])
    rig.beat(0, want_shut_down=True)
    rig.fence(0)

    assert rig.beat(0).is_fenced
    rig.register(0, incarnation_number=2)
    assert not rig.beat(0).is_fenced


def test_rule_11_a_broker_that_leads_nothing_may_go_at_once() -> None:
    rig = Rig([0, 1])

    assert rig.beat(1, want_shut_down=True).should_shut_down
    assert rig.image.cluster.brokers[1].is_fenced


def test_rule_11_a_leader_without_successor_waits() -> None:
    rig = Rig([0])
    rig.create("t", [[0]])

    assert not rig.beat(0, want_shut_down=True).should_shut_down
    # Its leadership is taken away nevertheless: it must not take writes while it goes down.
    assert rig.partition("t").leader == -1
    assert rig.beat(0, want_shut_down=True).should_shut_down


def test_rule_11_a_fenced_broker_may_go_at_once() -> None:
    rig = Rig()
    rig.register(1)

    assert rig.beat(1, want_shut_down=True).should_shut_down


def test_rule_11_a_broker_may_ask_to_be_fenced_and_to_go_in_one() -> None:
    rig = Rig([1])

    assert rig.beat(1, want_fence=True, want_shut_down=True).should_shut_down


def test_rule_11_offline_directories_are_written_down() -> None:
    rig = Rig()
    rig.register(0, log_dirs=[directory(0, 0), directory(0, 1)])
    rig.beat(0)
    before = len(rig.log.records)

    rig.beat(0, offline_log_dirs=[directory(0, 1), directory(9)])
    rig.beat(0, offline_log_dirs=[directory(0, 1)])

    changes = rig.log.records[before:]
    assert len(changes) == 1
    assert isinstance(changes[0], BrokerRegistrationChangeRecord)
    assert changes[0].log_dirs == [directory(0, 0)]


def test_rule_11_cordoned_directories_are_written_down_and_get_no_replicas() -> None:
    rig = Rig([0, 1])

    rig.beat(0, cordoned_log_dirs=[directory(0)])
    assert rig.image.cluster.brokers[0].cordoned_directories == (directory(0),)
    written = rig.log.end_offset
    rig.beat(0, cordoned_log_dirs=[directory(0)])
    assert rig.log.end_offset == written
    assert rig.create("t", partitions=3, factor=1).error_code == 0
    assert {rig.partition("t", each).leader for each in range(3)} == {1}
    assert rig.create("u", partitions=1, factor=2).error_code == 38
    rig.beat(0, cordoned_log_dirs=[])
    assert rig.create("u", partitions=1, factor=2).error_code == 0


def test_a_broker_that_is_alive_is_not_unregistered() -> None:
    rig = Rig([0, 1])

    response = rig.ask(UnregisterBrokerRequest(broker_id=1))

    assert (response.error_code, "alive" in response.error_message) == (42, True)
    assert 1 in rig.image.cluster.brokers
    assert not rig.image.cluster.brokers[1].is_fenced


def test_a_broker_that_is_shutting_down_is_still_alive() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[1, 0]])
    rig.beat(1, want_shut_down=True)

    assert rig.ask(UnregisterBrokerRequest(broker_id=1)).error_code == 42


def test_a_broker_can_be_unregistered_for_good() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[1, 0]])
    rig.fence(1)

    assert rig.ask(UnregisterBrokerRequest(broker_id=1)).error_code == 0

    assert 1 not in rig.image.cluster.brokers
    assert (rig.partition("t").leader, rig.partition("t").isr) == (0, (0,))
    response = rig.ask(UnregisterBrokerRequest(broker_id=1))
    assert (response.error_code, "not registered" in response.error_message) == (102, True)


def controller_request(**changes: Any) -> ControllerRegistrationRequest:
    fields: dict[str, Any] = {
        "controller_id": 3000,
        "incarnation_id": incarnation(1),
        "listeners": [Listener(name="CONTROLLER", host="c", port=9093)],
        "features": [
            Feature(
                name=name,
                min_supported_version=supported.lowest,
                max_supported_version=supported.highest,
            )
            for name, supported in SUPPORTED_FEATURES.items()
        ],
    }
    return ControllerRegistrationRequest(**(fields | changes))


def test_a_controller_registers() -> None:
    rig = Rig()

    assert rig.ask(controller_request()).error_code == 0

    found = rig.image.cluster.controllers[3000]
    assert found.listeners["CONTROLLER"].port == 9093
    assert found.features == dict(SUPPORTED_FEATURES)


def test_a_controller_that_cannot_keep_up_is_refused() -> None:
    assert Rig().ask(controller_request(features=[])).error_code == 35
    assert Rig(metadata_version=14).ask(controller_request()).error_code == 35


def test_rule_c64_a_broker_is_caught_up_when_it_has_seen_its_own_registration() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[0, 1]])
    rig.now_ms += SESSION_MS
    before = rig.log.end_offset
    epoch = rig.register(0, incarnation_id=Uuid.parse("AAAAAAAAAAAAAAAAAAAATQ"))
    registered_at = rig.log.end_offset - 1
    assert (epoch, registered_at > epoch) == (before, True), "clean-up records come first"

    assert not rig.beat(0, current_metadata_offset=registered_at - 1).is_caught_up
    assert rig.beat(0, current_metadata_offset=registered_at).is_caught_up
