"""Leaders that move, replicas nearby, and logs that were cut."""

from __future__ import annotations

import pytest

from millstream.client.consumer.starting_point import AtOffset
from millstream.errors import (
    LogTruncation,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.notation import VersionRange
from tests.unit.client.consumer.consumer_world import P0, ConsumerWorld


def test_a_new_leader_is_followed() -> None:
    world = ConsumerWorld(broker_count=2)
    (p0,) = world.brokers.add_topic("orders", [1])
    world.session.assign([p0])
    world.brokers.logs[p0].append(b"a")
    assert world.poll() == [b"a"]

    topic = world.cluster.topics["orders"]
    topic.leaders[0], topic.epochs[0] = 2, 1
    world.brokers.logs[p0].append(b"b", epoch=1)

    assert world.poll() == [b"b"]


def test_a_broker_s_hint_saves_asking_who_leads() -> None:
    world = ConsumerWorld(broker_count=2)
    world.brokers.hints_at_leaders = True
    (p0,) = world.brokers.add_topic("orders", [1])
    world.session.assign([p0])
    world.brokers.logs[p0].append(b"a")
    assert world.poll() == [b"a"]
    asked = len(world.cluster.asked)

    topic = world.cluster.topics["orders"]
    topic.leaders[0], topic.epochs[0] = 2, 1
    world.brokers.logs[p0].append(b"b", epoch=1)

    assert world.poll() == [b"b"]
    fetches = [each.node_id for each in world.cluster.asked[asked:] if each.api is ApiKey.FETCH]
    assert fetches[-1] == 2


def test_a_broker_that_goes_down_is_left_for_the_next_leader() -> None:
    world = ConsumerWorld(broker_count=2)
    (p0,) = world.brokers.add_topic("orders", [2])
    world.session.assign([p0])
    world.brokers.logs[p0].append(b"a")
    assert world.poll() == [b"a"]

    world.cluster.stop("broker2")
    topic = world.cluster.topics["orders"]
    topic.leaders[0], topic.epochs[0] = 1, 1
    world.brokers.logs[p0].append(b"b", epoch=1)

    assert world.poll() == [b"b"]


def test_a_replica_nearby_is_read_until_its_time_is_over() -> None:
    world = ConsumerWorld(broker_count=2, client_rack="here", metadata_max_age=10.0)
    (p0,) = world.brokers.add_topic("orders", [1])
    world.brokers.logs[p0].preferred = 2
    world.session.assign([p0])
    world.brokers.logs[p0].append(b"a")

    assert world.poll() == [b"a"]
    asked = [each for each in world.cluster.asked if each.api is ApiKey.FETCH]
    assert [each.node_id for each in asked[:2]] == [1, 2]
    assert asked[0].message.rack_id == "here"  # type: ignore[attr-defined]
    world.run_for(12_000)
    asked = [each for each in world.cluster.asked if each.api is ApiKey.FETCH]
    assert [each.node_id for each in asked].count(1) >= 2


def test_what_a_follower_cannot_give_the_leader_is_asked_for() -> None:
    world = ConsumerWorld(broker_count=2, client_rack="here")
    (p0,) = world.brokers.add_topic("orders", [1])
    log = world.brokers.logs[p0]
    log.preferred = 2
    world.session.assign([p0])
    log.append(b"a")
    assert world.poll() == [b"a"]

    world.cluster.stop("broker2")
    log.preferred = -1
    log.append(b"b")

    assert world.poll() == [b"b"]


def test_a_leader_that_still_believes_in_a_dead_follower_is_read_itself() -> None:
    world = ConsumerWorld(broker_count=2, client_rack="here")
    (p0,) = world.brokers.add_topic("orders", [1])
    log = world.brokers.logs[p0]
    log.preferred = 2
    world.session.assign([p0])
    log.append(b"a")
    assert world.poll() == [b"a"]

    world.cluster.stop("broker2")
    log.append(b"b")

    assert world.poll() == [b"b"]
    world.cluster.start("broker2")
    world.run_for(12_000)
    asked = len(world.cluster.asked)
    log.append(b"c")
    assert world.poll() == [b"c"]
    fetches = [each.node_id for each in world.cluster.asked[asked:] if each.api is ApiKey.FETCH]
    assert fetches[-1] == 2, "it is asked again when it is there again"


def test_a_follower_that_cannot_be_reached_at_all_does_not_keep_records_back() -> None:
    world = ConsumerWorld(broker_count=2, client_rack="here")
    (p0,) = world.brokers.add_topic("orders", [1])
    world.brokers.logs[p0].preferred = 2
    world.cluster.stop("broker2")
    world.session.assign([p0])
    world.brokers.logs[p0].append(b"a")

    assert world.poll() == [b"a"]


def test_a_leader_that_dies_while_nothing_is_asked_of_it_is_left_for_the_next() -> None:
    world = ConsumerWorld(broker_count=2)
    (p0,) = world.brokers.add_topic("orders", [2])
    world.session.assign([p0])
    world.brokers.logs[p0].append(b"a")
    assert world.poll() == [b"a"]
    world.session.set_paused([p0], True)
    world.run_for(2_000)

    world.cluster.stop("broker2")
    world.run_for(2_000)
    world.session.set_paused([p0], False)
    world.run_for(2_000)  # Whoever asks now learns that the election is not over.
    topic = world.cluster.topics["orders"]
    topic.leaders[0], topic.epochs[0] = 1, 1
    world.brokers.logs[p0].append(b"b", epoch=1)

    assert world.poll() == [b"b"]


# ---- logs that were cut ----


def truncated(**settings: object) -> ConsumerWorld:
    """Four records were read; then an election has replaced the last two."""
    world = ConsumerWorld(broker_count=2, **settings)  # type: ignore[arg-type]  # by each test
    world.brokers.add_topic("orders", [1])
    log = world.brokers.logs[P0]
    for value in (b"a", b"b", b"c", b"d"):
        log.append(value, epoch=0)
    world.session.assign([P0])
    world.seek(P0, AtOffset(0))
    assert world.poll_until(4) == [b"a", b"b", b"c", b"d"]
    log.truncate(2)
    log.append(b"C", epoch=1)
    log.append(b"D", epoch=1)
    log.append(b"E", epoch=1)
    topic = world.cluster.topics["orders"]
    topic.leaders[0], topic.epochs[0] = 2, 1
    return world


OLD = {ApiKey.FETCH: VersionRange(4, 11)}


@pytest.mark.parametrize("versions", [None, OLD])
def test_a_truncated_log_is_read_again_from_where_it_differs(versions: object) -> None:
    world = truncated(versions=versions)

    assert world.poll_until(3) == [b"C", b"D", b"E"]


@pytest.mark.parametrize("versions", [None, OLD])
def test_a_truncated_log_is_an_error_without_a_reset(versions: object) -> None:
    world = truncated(versions=versions, auto_offset_reset="none")

    with pytest.raises(LogTruncation, match="truncated to offset 2") as raised:
        world.poll_until(1)
    assert raised.value.divergent_offsets == {P0: 2}
    world.seek(P0, AtOffset(2))
    assert world.poll_until(3) == [b"C", b"D", b"E"]


def test_what_the_application_has_not_seen_of_a_truncated_log_is_fetched_again() -> None:
    world = ConsumerWorld(broker_count=2)
    world.brokers.add_topic("orders", [1])
    log = world.brokers.logs[P0]
    for value in (b"a", b"b", b"c", b"d"):
        log.append(value, epoch=0)
    world.session.assign([P0])
    assert world.poll(count=2) == [b"a", b"b"]
    world.run_for(1_000)
    log.truncate(2)
    log.append(b"C", epoch=1)
    topic = world.cluster.topics["orders"]
    topic.leaders[0], topic.epochs[0] = 2, 1
    world.run_for(5_000)

    assert world.poll_until(1) == [b"C"]


def test_validation_waits_for_a_leader_that_can_answer() -> None:
    world = truncated(versions=OLD)
    world.brokers.logs[P0].error_code = 75
    world.run_for(2_000)

    world.brokers.logs[P0].error_code = 0

    assert world.poll_until(3) == [b"C", b"D", b"E"]
