"""Share groups, where the brokers have them: every record to one of many, until it is done with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, AsyncShareConsumer, Producer, ShareConsumer
from millstream.client.admin import ConfigResource
from millstream.errors import InvalidArgument, RecordNotReadable
from tests.behaviours.clusters import at
from tests.behaviours.polling import PATIENCE

if TYPE_CHECKING:
    from millstream import ShareRecord, TopicPartition
    from tests.behaviours.clusters import Cluster


class Place:
    """A topic, and a share group that begins at its first record."""

    def __init__(self, cluster: Cluster) -> None:
        self.address = cluster.address
        self.topic = cluster.topic()
        self.group = cluster.new_name("share")
        group = ConfigResource("group", self.group)
        with Admin(cluster.address) as admin:
            admin.incremental_alter_configs(
                {group: {"share.auto.offset.reset": "earliest"}}
            ).raise_first()

    @property
    def partition(self) -> TopicPartition:
        return at(self.topic)[0]

    def produce(self, *values: str) -> None:
        with Producer(self.address) as producer:
            for each in values:
                producer.send(self.topic, each)

    def consumer(self, **settings: Any) -> ShareConsumer[Any, Any]:
        return ShareConsumer(self.address, self.topic, **self._settings(settings))

    def async_consumer(self, **settings: Any) -> AsyncShareConsumer[Any, Any]:
        return AsyncShareConsumer(self.address, self.topic, **self._settings(settings))

    def _settings(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"group_id": self.group, "value_deserializer": "str", **given}


@pytest.fixture
def place(cluster: Cluster) -> Place:
    cluster.require("share groups")
    return Place(cluster)


def test_records_are_accepted_released_and_rejected(place: Place) -> None:
    with place.consumer(share_acknowledgement_mode="explicit") as consumer:
        place.produce("accept", "release", "reject")
        seen: list[tuple[Any, int]] = []
        while len(seen) < 4:
            for record in consumer.poll(PATIENCE):
                seen.append((record.value, record.delivery_count))
                consumer.acknowledge(
                    record, str(record.value) if record.delivery_count == 1 else "accept"
                )
        assert consumer.commit() == {place.partition: None}
        assert consumer.acquisition_lock_timeout == 30.0

    assert sorted(seen) == [("accept", 1), ("reject", 1), ("release", 1), ("release", 2)]


def test_what_was_read_is_accepted_with_the_next_poll(place: Place) -> None:
    place.produce("a", "b")
    with place.consumer() as consumer:
        seen: list[Any] = []
        while len(seen) < 2:
            seen += [each.value for each in consumer.poll(PATIENCE)]
        assert consumer.poll(0.3) == []
    place.produce("c")
    with place.consumer() as consumer:
        assert [each.value for each in consumer.poll(PATIENCE)] == ["c"]


def test_members_share_the_records_of_a_partition(place: Place) -> None:
    settings = {"max_poll_records": 10, "share_acquire_mode": "record_limit"}
    with place.consumer(**settings) as first, place.consumer(**settings) as second:
        place.produce(*(f"v{each}" for each in range(60)))
        seen: list[Any] = []
        while len(seen) < 60:
            for each in (first, second):
                records = each.poll(0.5)
                assert len(records) <= 10
                seen += [record.value for record in records]

    assert sorted(seen) == sorted(f"v{each}" for each in range(60))


def test_a_block_that_fails_gives_everything_to_the_next_member(place: Place) -> None:
    place.produce("a")

    def fail() -> None:
        with place.consumer() as consumer:
            (record,) = consumer.poll(PATIENCE)
            raise LookupError(record.value)

    with pytest.raises(LookupError, match="a"):
        fail()
    with place.consumer() as consumer:
        (record,) = consumer.poll(PATIENCE)

    assert (record.value, record.delivery_count) == ("a", 2)


def test_a_lock_is_renewed(place: Place) -> None:
    with place.consumer(share_acknowledgement_mode="explicit") as consumer:
        place.produce("a")
        (record,) = consumer.poll(PATIENCE)
        consumer.acknowledge(record, "renew")
        assert consumer.commit() == {place.partition: None}
        consumer.acknowledge(record)
        assert consumer.commit() == {place.partition: None}


def test_the_asyncio_client_does_the_same(place: Place) -> None:
    place.produce("a", "b")

    async def main() -> None:
        seen: list[Any] = []
        async with place.async_consumer(share_acknowledgement_mode="explicit") as consumer:
            while len(seen) < 2:
                for record in await consumer.poll(PATIENCE):
                    seen.append(record.value)
                    consumer.acknowledge(record)
            assert await consumer.commit() == {place.partition: None}
        assert seen == ["a", "b"]

    asyncio.run(asyncio.wait_for(main(), 60))


def values(records: list[ShareRecord[Any, Any]]) -> list[Any]:
    return [each.value for each in records]


def test_a_poll_gives_first_what_a_loop_has_not_got_to(place: Place) -> None:
    place.produce(*"abcde")
    with place.consumer() as consumer:
        assert next(iter(consumer)).value == "a"
        assert values(consumer.poll(PATIENCE, max_records=2)) == ["b", "c"]
        assert consumer.commit() == {place.partition: None}
        assert next(iter(consumer)).value == "d"

    with place.consumer() as second:
        (record,) = second.poll(PATIENCE)
        assert (record.value, record.delivery_count) == ("e", 2)


def test_the_same_of_the_asyncio_client(place: Place) -> None:
    place.produce(*"abcde")

    async def main() -> None:
        async with place.async_consumer() as consumer:
            async for record in consumer:
                assert record.value == "a"
                break
            assert values(await consumer.poll(PATIENCE, max_records=2)) == ["b", "c"]
            assert await consumer.commit() == {place.partition: None}
            async for record in consumer:
                assert record.value == "d"
                break
        async with place.async_consumer() as second:
            (record,) = await second.poll(PATIENCE)
            assert (record.value, record.delivery_count) == ("e", 2)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_nothing_need_be_said_of_records_that_a_loop_has_not_got_to(place: Place) -> None:
    place.produce("a", "b", "c")
    with place.consumer(share_acknowledgement_mode="explicit") as consumer:
        first = next(iter(consumer))
        with pytest.raises(InvalidArgument, match="1 records"):
            consumer.poll(0)
        consumer.acknowledge(first)
        rest = consumer.poll(PATIENCE)
        assert values(rest) == ["b", "c"]
        with pytest.raises(InvalidArgument, match="2 records"):
            consumer.poll(0)


class Strict:
    """A deserializer that raises errors of its own."""

    def deserialize(self, topic: str, data: bytes, headers: object) -> str:
        if data == b"bad":
            raise LookupError(topic)
        return data.decode()


def test_records_around_one_that_cannot_be_read_are_delivered(place: Place) -> None:
    place.produce("1", "bad", "2", "3")
    with place.consumer(value_deserializer=Strict()) as consumer:
        assert values(consumer.poll(PATIENCE)) == ["1"]
        with pytest.raises(RecordNotReadable, match=f"{place.topic}-0: the value .* 1 ") as caught:
            consumer.poll(PATIENCE)
        bad = caught.value
        assert (bad.topic, bad.partition, bad.offset) == (place.topic, 0, 1)
        assert isinstance(bad.__cause__, LookupError)
        consumer.acknowledge_at(bad.topic, bad.partition, bad.offset, "reject")
        assert values(consumer.poll(PATIENCE)) == ["2", "3"]
        assert consumer.poll(0.3) == []
        with pytest.raises(InvalidArgument, match="not in hand"):
            consumer.acknowledge_at(bad.topic, bad.partition, bad.offset, "reject")


def test_a_record_that_cannot_be_read_comes_again_if_nothing_is_said(place: Place) -> None:
    place.produce("bad")

    async def main() -> None:
        async with place.async_consumer(
            value_deserializer=Strict(), share_acknowledgement_mode="explicit"
        ) as consumer:
            for kind in (None, "accept"):
                with pytest.raises(RecordNotReadable) as caught:
                    await consumer.poll(PATIENCE)
                if kind is not None:
                    consumer.acknowledge_at(place.topic, 0, caught.value.offset, kind)
            assert await consumer.commit() == {place.partition: None}
            assert await consumer.poll(0.3) == []

    asyncio.run(asyncio.wait_for(main(), 60))


def test_an_interrupted_deserializer_loses_nothing(place: Place) -> None:
    place.produce("a", "b")
    interrupts = iter([False, True])

    def read(data: bytes) -> str:
        if next(interrupts, False):
            raise KeyboardInterrupt
        return data.decode()

    with place.consumer(value_deserializer=read) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(PATIENCE)
        assert values(consumer.poll(PATIENCE)) == ["a", "b"]


def test_records_are_not_lost_with_the_error_of_a_callback(place: Place) -> None:
    place.produce("a", "b")

    def complain(offsets: object, error: object) -> None:
        raise ZeroDivisionError

    with place.consumer(max_poll_records=1, share_acquire_mode="record_limit") as consumer:
        assert values(consumer.poll(PATIENCE)) == ["a"]
        consumer.set_acknowledgement_callback(complain)
        with pytest.raises(ZeroDivisionError):
            consumer.poll(PATIENCE)
        consumer.set_acknowledgement_callback(None)
        assert values(consumer.poll(PATIENCE)) == ["b"]


def test_unsubscribing_forgets_what_a_loop_has_not_got_to(place: Place) -> None:
    place.produce("a", "b")
    with place.consumer() as consumer:
        assert next(iter(consumer)).value == "a"
        consumer.unsubscribe()
        consumer.subscribe(place.topic)
        again = consumer.poll(PATIENCE)
        assert [(each.value, each.delivery_count) for each in again] == [("a", 2), ("b", 2)]
