"""Fetching: prefetch within its bound, sessions, versions, seeks and pauses."""

from __future__ import annotations

import pytest

from millstream.client.consumer.starting_point import EARLIEST, LATEST, AtOffset, AtTime
from millstream.protocol.api import ApiKey
from millstream.protocol.notation import VersionRange
from millstream.types import Uuid
from tests.unit.client.consumer.consumer_world import P0, ConsumerWorld, world_with


def test_records_come_in_order_and_the_position_follows() -> None:
    world = world_with(b"a", b"b", b"c")

    assert world.poll(count=2) == [b"a", b"b"]
    assert world.position(P0) == 2
    assert world.poll() == [b"c"]
    assert world.poll(timeout=1.0) == []


def test_what_is_written_later_arrives() -> None:
    world = world_with(b"a")
    assert world.poll() == [b"a"]

    world.brokers.logs[P0].append(b"b")

    assert world.poll() == [b"b"]


def test_nothing_is_asked_for_from_the_end_of_a_bounded_read_on() -> None:
    world = ConsumerWorld()
    world.brokers.add_topic("orders")
    world.brokers.logs[P0].append(b"a")
    world.brokers.logs[P0].append(b"b")
    world.session.assign_at({P0: AtOffset(0, until=2)})
    assert world.poll_until(2) == [b"a", b"b"]

    world.run_for(2_000)
    fetch_count = len(world.brokers.fetches())
    world.run_for(2_000)

    assert len(world.brokers.fetches()) == fetch_count
    world.seek(P0, AtOffset(1))
    assert world.poll() == [b"b"]


def test_a_session_says_only_what_has_changed() -> None:
    world = ConsumerWorld()
    p0, p1 = world.brokers.add_topic("orders", [1, 1])
    world.session.assign([p0, p1])
    world.brokers.logs[p0].append(b"a")
    assert world.poll() == [b"a"]
    world.run_for(2_000)
    world.brokers.logs[p1].append(b"b")
    assert world.poll() == [b"b"]
    world.run_for(1_000)

    said = [
        [p.partition for t in each.topics for p in t.partitions] for each in world.brokers.fetches()
    ]
    assert said[0] == [0, 1]
    assert said[1] == [0]
    assert [] in said
    assert said[-1] == []
    assert {each.session_epoch for each in world.brokers.fetches()} >= {0, 1, 2}


def test_without_sessions_every_fetch_says_everything() -> None:
    world = world_with(b"a")
    world.brokers.offers_sessions = False
    assert world.poll() == [b"a"]
    world.run_for(2_000)

    assert {each.session_id for each in world.brokers.fetches()} == {0}
    assert all(len(each.topics) == 1 for each in world.brokers.fetches())


@pytest.mark.parametrize("code", [70, 71, 106])
def test_a_session_that_the_broker_has_lost_is_begun_again(code: int) -> None:
    world = world_with(b"a")
    assert world.poll() == [b"a"]
    world.run_for(600)

    world.brokers.session_error = code
    world.brokers.logs[P0].append(b"b")

    assert world.poll() == [b"b"]


def test_a_broker_that_fails_as_a_whole_is_asked_again_later() -> None:
    world = world_with(b"a")
    world.brokers.session_error = -1

    assert world.poll() == [b"a"]


def test_a_partition_that_is_read_no_longer_is_forgotten_in_the_session() -> None:
    world = ConsumerWorld()
    p0, p1 = world.brokers.add_topic("orders", [1, 1])
    world.session.assign([p0, p1])
    world.poll(timeout=1.0)

    world.session.assign([p0])
    world.run_for(2_000)

    forgotten = [each for each in world.brokers.fetches() if each.forgotten_topics_data]
    assert [t.partitions for t in forgotten[0].forgotten_topics_data] == [[1]]


def test_topics_are_named_by_id_where_brokers_know_ids() -> None:
    world = world_with(b"a")
    assert world.poll() == [b"a"]

    assert world.brokers.fetches()[0].topics[0].topic_id != Uuid.ZERO


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12])
def test_old_brokers_are_asked_in_their_version(version: int) -> None:
    world = ConsumerWorld(versions={ApiKey.FETCH: VersionRange(4, version)})
    world.brokers.add_topic("orders")
    world.brokers.logs[P0].append(b"a", b"b")
    world.session.assign([P0])

    assert world.poll() == [b"a", b"b"]
    fetch = next(each for each in world.cluster.asked if each.api is ApiKey.FETCH)
    assert fetch.version == version


def test_a_topic_without_an_id_is_asked_for_by_name() -> None:
    world = world_with(b"a")
    world.cluster.topics["orders"].topic_id = Uuid.ZERO

    assert world.poll() == [b"a"]
    assert {each.version for each in world.cluster.asked if each.api is ApiKey.FETCH} == {12}


def test_no_more_is_fetched_than_the_bound_allows() -> None:
    world = world_with(prefetch_bytes=1000)
    log = world.brokers.logs[P0]
    for _ in range(20):
        log.append(b"x" * 300)
    log.batches, later = log.batches[:5], log.batches[5:]
    log.end = 5
    world.run_for(5_000)
    log.batches, log.end = log.batches + later, 20

    world.run_for(5_000)
    asked = len(world.brokers.fetches())
    world.run_for(5_000)

    assert len(world.brokers.fetches()) == asked
    assert len(world.poll_until(20)) == 20


def test_paused_partitions_give_nothing_and_do_not_fill_the_buffer() -> None:
    world = ConsumerWorld(prefetch_bytes=1000)
    p0, p1 = world.brokers.add_topic("orders", [1, 1])
    world.session.assign([p0, p1])
    world.brokers.logs[p0].append(b"x" * 2000)
    world.run_for(1_000)
    world.session.set_paused([p0], True)
    world.brokers.logs[p1].append(b"y")

    assert world.poll() == [b"y"]
    assert world.session.paused() == {p0}
    world.session.set_paused([p0], False)
    assert world.poll() == [b"x" * 2000]


def test_a_seek_drops_what_was_fetched() -> None:
    world = world_with(b"a", b"b", b"c")
    assert world.poll(count=1) == [b"a"]

    world.seek(P0, AtOffset(0))

    assert world.position(P0) == 0
    assert world.poll() == [b"a", b"b", b"c"]


def test_an_answer_to_an_older_seek_is_not_used() -> None:
    world = world_with(b"a", b"b", b"c")
    world.run_for(100)
    world.seek(P0, AtOffset(2))
    world.seek(P0, AtOffset(1))

    assert world.poll() == [b"b", b"c"]


@pytest.mark.parametrize(("start", "values"), [(EARLIEST, [b"a", b"b"]), (LATEST, [])])
def test_seeking_to_the_ends(start: AtTime, values: list[bytes]) -> None:
    world = world_with(b"a", b"b")
    world.seek(P0, start)

    assert world.poll(timeout=1.0) == values


def test_seeking_to_a_time_and_beyond_all_times() -> None:
    world = world_with()
    log = world.brokers.logs[P0]
    log.append(b"old", timestamp=1000)
    log.append(b"new", timestamp=2000)

    world.seek(P0, AtTime(1500))
    assert world.poll() == [b"new"]
    world.seek(P0, AtTime(9000))
    assert world.position(P0) == 2
