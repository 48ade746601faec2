"""Share groups, where the brokers have them: every record to one of many, until it is done with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, AsyncShareConsumer, Producer, ShareConsumer
from millstream.client.admin import ConfigResource
from tests.behaviours.clusters import at
from tests.behaviours.polling import PATIENCE

if TYPE_CHECKING:
    from millstream import TopicPartition
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

    def consumer(self, **settings: Any) -> ShareConsumer:
        return ShareConsumer(
            self.address,
            self.topic,
            group_id=self.group,
            value_deserializer="str",
            **settings,
        )


@pytest.fixture
def place(cluster: Cluster) -> Place:
    cluster.require("share groups")
    return Place(cluster)


def test_records_are_accepted_released_and_rejected(place: Place) -> None:
    with place.consumer(share_acknowledgement_mode="explicit") as consumer:
        place.produce("accept", "release", "reject")
        seen: list[tuple[str, int]] = []
        while len(seen) < 4:
            for record in consumer.poll(PATIENCE):
                seen.append((record.value, record.delivery_count))
                consumer.acknowledge(
                    record, record.value if record.delivery_count == 1 else "accept"
                )
        assert consumer.commit() == {place.partition: None}
        assert consumer.acquisition_lock_timeout == 30.0

    assert sorted(seen) == [("accept", 1), ("reject", 1), ("release", 1), ("release", 2)]


def test_what_was_read_is_accepted_with_the_next_poll(place: Place) -> None:
    place.produce("a", "b")
    with place.consumer() as consumer:
        seen: list[str] = []
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
        seen: list[str] = []
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


def test_the_asyncio_twin_does_the_same(place: Place) -> None:
    place.produce("a", "b")

    async def main() -> None:
        seen: list[str] = []
        async with AsyncShareConsumer(
            place.address,
            place.topic,
            group_id=place.group,
            value_deserializer="str",
            share_acknowledgement_mode="explicit",
        ) as consumer:
            while len(seen) < 2:
                for record in await consumer.poll(PATIENCE):
                    seen.append(record.value)
                    consumer.acknowledge(record)
            assert await consumer.commit() == {place.partition: None}
        assert seen == ["a", "b"]

    asyncio.run(asyncio.wait_for(main(), 60))
