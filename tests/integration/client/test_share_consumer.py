"""Share consumers with a real broker: what is delivered, to whom, and what became of it."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from millstream import (
    AcknowledgeType,
    AsyncShareConsumer,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from millstream.errors import (
    ClientClosed,
    InvalidArgument,
    InvalidRecordState,
    MillstreamError,
    SerializationFailed,
    ShareSessionNotFound,
    Wakeup,
)
from millstream.testing.embedded import EmbeddedBroker
from tests.integration.client.share_places import Place
from tests.waiting import once_blocked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.integration

SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(SETTINGS, in_memory=True) as running:
        yield running


@pytest.fixture
def place(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Place:
    name = f"topic-{abs(hash(request.node.name)) % 10**9}"
    broker.create_topic(name, partitions=1)
    return Place(broker.bootstrap_servers, name)


def values(records: list[ShareRecord[Any, Any]]) -> list[str]:
    return [str(each.value) for each in records]


def take(consumer: ShareConsumer[Any, Any], count: int) -> list[ShareRecord[Any, Any]]:
    found = consumer.poll(20)
    assert len(found) == count, found
    return found


def test_what_was_read_is_accepted_with_the_next_poll(place: Place) -> None:
    place.produce("a", "b")
    with place.consumer() as consumer:
        assert values(take(consumer, 2)) == ["a", "b"]
        assert consumer.poll(0.05) == []

    with place.consumer() as again:
        place.produce("c")
        assert values(take(again, 1)) == ["c"]


def test_records_say_where_they_are_and_how_often_they_were_delivered(place: Place) -> None:
    place.produce("a")
    with place.consumer() as consumer:
        (record,) = take(consumer, 1)

    assert (record.topic, record.partition, record.offset) == (place.topic, 0, 0)
    assert (record.key, record.headers, record.delivery_count) == (None, (), 1)
    assert record.timestamp > 0
    assert consumer.acquisition_lock_timeout == 30.0


def test_closing_accepts_what_a_loop_got_to_and_gives_back_the_rest(place: Place) -> None:
    place.produce("a", "b", "c")
    with place.consumer() as consumer:
        for record in consumer:
            if record.value == "b":
                break

    with place.consumer() as again:
        assert values(take(again, 1)) == ["c"]


def fail_with_a_record(place: Place) -> None:
    with place.consumer() as consumer:
        take(consumer, 1)
        raise ZeroDivisionError


def test_a_block_that_fails_gives_everything_back(place: Place) -> None:
    place.produce("a")
    with pytest.raises(ZeroDivisionError):
        fail_with_a_record(place)

    with place.consumer() as again:
        (record,) = take(again, 1)
        assert (record.value, record.delivery_count) == ("a", 2)


def test_released_records_come_again_and_rejected_ones_do_not(place: Place) -> None:
    place.produce("accept", "release", "reject")
    with place.consumer(share_acknowledgement_mode="explicit") as consumer:
        for record in take(consumer, 3):
            consumer.acknowledge(record, str(record.value))

        (again,) = take(consumer, 1)
        assert (again.value, again.delivery_count) == ("release", 2)
        consumer.acknowledge(again, AcknowledgeType.ACCEPT)
        assert consumer.commit() == {place.partition: None}
        assert consumer.poll(0.05) == []


def test_explicit_consumers_must_say_something_of_each_record(place: Place) -> None:
    place.produce("a", "b")
    with place.consumer(share_acknowledgement_mode="explicit") as consumer:
        first, _ = take(consumer, 2)
        consumer.acknowledge(first)

        with pytest.raises(InvalidArgument, match="1 records of the last poll are not ack"):
            consumer.poll(0)


def test_implicit_consumers_may_say_something_of_some_records(place: Place) -> None:
    place.produce("a", "b")
    with place.consumer() as consumer:
        _, second = take(consumer, 2)
        consumer.acknowledge(second, "release")

        (again,) = take(consumer, 1)
        assert (again.value, again.delivery_count) == ("b", 2)


def test_a_lock_that_is_renewed_does_not_end(place: Place) -> None:
    place.set("share.record.lock.duration.ms", "1000")
    place.produce("a")
    with place.consumer() as worker, place.consumer() as other:
        (record,) = take(worker, 1)
        assert worker.acquisition_lock_timeout == 1.0
        for _ in range(4):
            worker.acknowledge(record, "renew")
            assert worker.commit() == {place.partition: None}
            assert other.poll(0.5) == []

        worker.acknowledge(record, "accept")
        assert worker.commit() == {place.partition: None}


def test_a_lock_that_ends_gives_the_record_to_somebody_else(place: Place) -> None:
    place.set("share.record.lock.duration.ms", "1000")
    place.produce("a")
    told: list[tuple[Mapping[TopicPartition, frozenset[int]], MillstreamError | None]] = []
    with place.consumer() as slow, place.consumer() as other:
        take(slow, 1)
        (record,) = take(other, 1)
        assert record.delivery_count == 2

        slow.set_acknowledgement_callback(lambda offsets, error: told.append((offsets, error)))
        found = slow.commit()

    assert isinstance(found[place.partition], InvalidRecordState)
    ((offsets, error),) = told
    assert offsets == {place.partition: frozenset({0})}
    assert isinstance(error, InvalidRecordState)


def test_two_consumers_share_the_records_of_a_partition(place: Place) -> None:
    place.set("share.partition.max.record.locks", "100")
    settings = {"max_poll_records": 10, "share_acquire_mode": "record_limit"}
    with place.consumer(**settings) as first, place.consumer(**settings) as second:
        place.produce(*(f"v{each}" for each in range(100)))
        seen: list[str] = []
        got = {id(first): 0, id(second): 0}
        while len(seen) < 100:
            for each in (first, second):
                records = each.poll(0.2)
                assert len(records) <= 10
                got[id(each)] += len(records)
                seen += values(records)

    assert sorted(seen) == sorted(f"v{each}" for each in range(100))
    assert all(got.values())


def test_a_poll_gives_no_more_than_it_may_and_the_next_one_the_rest(place: Place) -> None:
    place.produce(*"abcde")
    with place.consumer(max_poll_records=2) as consumer:
        found = [values(consumer.poll(20)) for _ in range(3)]

    assert found == [["a", "b"], ["c", "d"], ["e"]]


def test_outcomes_of_commits_in_the_background_reach_the_callback(place: Place) -> None:
    place.produce("a", "b")
    told: list[Mapping[TopicPartition, frozenset[int]]] = []
    with place.consumer() as consumer:
        consumer.set_acknowledgement_callback(lambda offsets, error: told.append(offsets))
        take(consumer, 2)
        consumer.commit_async()
        consumer.commit()

    assert told == [{place.partition: frozenset({0, 1})}]


def test_a_record_that_cannot_be_read_goes_back_and_is_raised_in_its_turn(place: Place) -> None:
    place.produce("1", "x", "3")
    consumer = ShareConsumer(
        place.address, place.topic, group_id=place.group, value_deserializer=int
    )
    with consumer:
        assert [each.value for each in consumer.poll(20)] == [1]
        with pytest.raises(SerializationFailed, match="topic"):
            consumer.poll(20)
        assert [each.value for each in consumer.poll(20)] == [3]


def test_a_wait_ends_with_wakeup_from_another_thread(place: Place) -> None:
    with place.consumer() as consumer:
        with once_blocked(consumer.wakeup), pytest.raises(Wakeup):
            consumer.poll(None)
        place.produce("a")
        take(consumer, 1)


def test_a_broken_connection_gives_records_back_to_the_group(
    broker: EmbeddedBroker, place: Place
) -> None:
    place.produce("a")
    with place.consumer() as consumer:
        take(consumer, 1)
        broker.disconnect_clients()

        found = consumer.commit()
        assert isinstance(found[place.partition], MillstreamError)
        (again,) = take(consumer, 1)
        assert (again.value, again.delivery_count) == ("a", 2)
        assert consumer.commit() == {place.partition: None}


def test_acknowledgements_of_a_session_that_is_over_fail_at_once(
    broker: EmbeddedBroker, place: Place
) -> None:
    place.produce("a", "b")
    with place.consumer(max_poll_records=1) as consumer:
        (record,) = take(consumer, 1)
        broker.disconnect_clients()
        consumer.acknowledge(record, "renew")
        first = consumer.commit()
        consumer.acknowledge(record, "accept")
        second = consumer.commit()

    assert first[place.partition] is not None
    assert isinstance(second[place.partition], ShareSessionNotFound)


def test_unsubscribing_gives_back_what_was_not_acknowledged(place: Place) -> None:
    place.produce("a")
    with place.consumer() as consumer:
        take(consumer, 1)
        consumer.unsubscribe()
        assert consumer.subscription() == frozenset()
        with pytest.raises(InvalidArgument, match="nothing is subscribed"):
            consumer.poll(0)

        consumer.subscribe(place.topic)
        (again,) = take(consumer, 1)
        assert again.delivery_count == 2


def test_an_application_that_does_not_poll_leaves_and_comes_back(place: Place) -> None:
    place.produce("a")
    with place.consumer(max_poll_interval=0.3) as slow, place.consumer() as other:
        take(slow, 1)
        (record,) = take(other, 1)
        assert record.delivery_count == 2
        other.commit()

        place.produce("b")
        assert values(take(slow, 1)) == ["b"]


def test_a_closed_consumer_says_so(place: Place) -> None:
    consumer = place.consumer()
    consumer.close()
    consumer.close()

    with pytest.raises(ClientClosed):
        consumer.poll(0)


def test_kafkas_names_of_settings_will_do(place: Place) -> None:
    place.produce("a")
    properties = {
        "bootstrap.servers": place.address,
        "group.id": place.group,
        "max.poll.records": 1,
        "share.acknowledgement.mode": "explicit",
    }
    with ShareConsumer.from_config(properties, [place.topic]) as consumer:
        (record,) = take(consumer, 1)
        consumer.acknowledge(record)

    assert record.value == b"a"


def test_a_namespace_is_invisible_to_the_application(broker: EmbeddedBroker) -> None:
    broker.create_topic("staging.jobs", partitions=1)
    inside = Place(broker.bootstrap_servers, "staging.jobs", group="staging.workers")
    inside.produce("a")

    with ShareConsumer(inside.address, "jobs", group_id="workers", namespace="staging") as consumer:
        (record,) = take(consumer, 1)
        found = consumer.commit()

    assert (record.topic, record.value) == ("jobs", b"a")
    assert found == {TopicPartition("jobs", 0): None}


def test_a_forgotten_consumer_ends_its_thread(place: Place) -> None:
    consumer = place.consumer()
    thread = consumer._session.thread._thread
    del consumer
    gc.collect()

    thread.join(10)
    assert not thread.is_alive()


def test_the_asyncio_client_does_the_same(place: Place) -> None:
    place.produce("a", "b", "c")

    asyncio.run(use_the_asyncio_client(place))


async def use_the_asyncio_client(place: Place) -> None:
    told: list[frozenset[int]] = []

    async def hear(
        offsets: Mapping[TopicPartition, frozenset[int]], error: MillstreamError | None
    ) -> None:
        told.extend(offsets.values())

    async with AsyncShareConsumer(
        place.address, place.topic, group_id=place.group, value_deserializer="str"
    ) as consumer:
        consumer.set_acknowledgement_callback(hear)
        async for record in consumer:
            if record.value == "b":
                consumer.acknowledge(record, "release")
                break
        assert await consumer.commit() == {place.partition: None}
        assert values(await consumer.poll(20)) == ["c"]
        assert values(await consumer.poll(20)) == ["b"]
        await consumer.unsubscribe()

    assert told[0] == frozenset({0, 1})
