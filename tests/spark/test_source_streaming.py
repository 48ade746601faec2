"""The streaming reader against a real broker, asked as Spark asks it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from millstream import Admin
from millstream.errors import RecordsLost
from millstream.spark.source.lookup import TopicOffsets
from millstream.spark.source.options import SourceOptions
from millstream.spark.worker_clients import close_all
from tests.spark.source_world import SourceWorld, partition_of, read_all
from tests.waiting import once_blocked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.spark.source.stream_reader import TopicStreamReader
    from millstream.testing.embedded import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration

ALL = ReadAllAvailable()


@pytest.fixture
def world(millstream_broker: EmbeddedBroker) -> Iterator[SourceWorld]:
    yield SourceWorld(millstream_broker)
    close_all()


class Query:
    """What a streaming query does with its reader, step by step."""

    def __init__(self, reader: TopicStreamReader, checkpoint: dict[str, Any] | None = None) -> None:
        self.reader = reader
        self.at = reader.initialOffset() if checkpoint is None else checkpoint

    def micro_batch(self) -> list[bytes]:
        """The values of the next micro-batch; offsets go through JSON as in a checkpoint."""
        limit = self.reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self.reader.latestOffset(self.at, limit)))
        partitions = self.reader.partitions(self.at, end)
        rows = read_all(self.reader, partitions)
        self.reader.commit(self.at)
        self.at = end
        return [row["value"] for row in rows]


@pytest.fixture
def query(world: SourceWorld, request: pytest.FixtureRequest) -> Any:
    """Makes queries, and stops them after the test."""

    def start(checkpoint: dict[str, Any] | None = None, **options: Any) -> Query:
        reader = world.stream(**options)
        request.addfinalizer(reader.stop)
        return Query(reader, checkpoint)

    return start


def test_a_query_reads_what_comes_and_goes_on_where_its_checkpoint_says(
    world: SourceWorld, query: Any, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("stream")
    world.produce(topic, b"before")
    first = query(subscribe=topic)

    assert first.micro_batch() == []
    world.produce(topic, b"a", b"b")
    assert first.micro_batch() == [b"a", b"b"]
    assert first.at == {topic: {"0": 3}}
    assert first.reader.reportLatestOffset() == {topic: {"0": 3}}

    world.produce(topic, b"c")
    again = query(checkpoint=first.at, subscribe=topic, startingOffsets="earliest")
    assert again.micro_batch() == [b"c"]


def test_everything_is_read_from_the_earliest_on_in_batches_no_larger_than_allowed(
    world: SourceWorld, query: Any, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("limited", partitions=2)
    world.produce(topic, *(b"%d" % number for number in range(5)))
    world.produce(topic, *(b"x" for _ in range(5)), partition=1)
    limited = query(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")

    assert limited.reader.getDefaultReadLimit() == ReadMaxRows(4)
    assert [len(limited.micro_batch()) for _ in range(4)] == [4, 4, 2, 0]


def test_a_batch_waits_until_there_is_enough_for_it(
    world: SourceWorld, query: Any, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("least")
    world.produce(topic, b"a")
    patient = query(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="3")

    assert patient.reader.getDefaultReadLimit() == ReadMinRows(3)
    assert patient.micro_batch() == []
    world.produce(topic, b"b", b"c")
    assert patient.micro_batch() == [b"a", b"b", b"c"]


def test_a_partition_and_a_topic_that_are_new_are_read_from_their_beginning(
    world: SourceWorld, query: Any, millstream_topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.spark.source.stream_offsets.DISCOVERY_MS", 0)
    topic = millstream_topic("growing")
    growing = query(subscribePattern=f"{topic}.*")
    assert growing.micro_batch() == []

    with Admin(world.broker.bootstrap_servers) as admin:
        admin.create_partitions({topic: 2}).raise_first()
        admin.create_topic(f"{topic}-more", partitions=1)
    world.produce(topic, b"new partition", partition=1)
    world.produce(f"{topic}-more", b"new topic")

    assert sorted(growing.micro_batch()) == [b"new partition", b"new topic"]
    world.broker.delete_topics(f"{topic}-more")


def test_available_now_ends_at_what_was_there(
    world: SourceWorld, query: Any, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("now")
    world.produce(topic, b"a", b"b", b"c")
    now = query(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2")

    now.reader.prepareForTriggerAvailableNow()
    world.produce(topic, b"late")

    assert [now.micro_batch() for _ in range(3)] == [[b"a", b"b"], [b"c"], []]


def test_an_idle_query_is_told_of_a_record_when_it_arrives(
    world: SourceWorld, query: Any, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("idle")
    idle = query(subscribe=topic, idleWaitMs="60000")
    # After a start, or a micro-batch, it does not wait: another source may have something.
    assert idle.reader.latestOffset(idle.at, ALL) == idle.at

    # It would wait for a minute, and the test's time would be over.
    with once_blocked(lambda: world.produce(topic, b"x")):
        end = idle.reader.latestOffset(idle.at, ALL)

    assert end == {topic: {"0": 1}}


def test_a_topic_that_was_made_anew_is_a_loss(
    world: SourceWorld, query: Any, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("anew")
    checkpoint = {topic: {"0": 7}}

    strict = query(checkpoint=checkpoint, subscribe=topic)
    with pytest.raises(RecordsLost, match="offset 7 was read"):
        strict.micro_batch()

    lenient = query(checkpoint=checkpoint, subscribe=topic, failOnDataLoss="false")
    assert lenient.micro_batch() == []
    world.produce(topic, b"first of the new")
    assert lenient.micro_batch() == [b"first of the new"]


def test_a_topic_that_is_made_anew_between_planning_and_reading_is_a_loss(
    world: SourceWorld, query: Any, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("replaced")
    world.produce(topic, b"0", b"1", b"2", b"3")
    start, end = {topic: {"0": 2}}, {topic: {"0": 4}}
    strict = query(checkpoint=start, subscribe=topic).reader
    lenient = query(checkpoint=start, subscribe=topic, failOnDataLoss="false").reader
    partitions = strict.partitions(start, end)
    world.broker.delete_topics(topic)
    world.broker.create_topic(topic, 1)
    world.produce(topic, b"new")

    with pytest.raises(RecordsLost, match="offset 2 was read or asked for and the log now ends"):
        read_all(strict, partitions)

    assert read_all(lenient, partitions) == []


def test_a_watch_that_stands_outside_the_log_ends_at_once(
    world: SourceWorld, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("watched")
    options = world.options(subscribe=topic)
    with TopicOffsets(SourceOptions.parse(options, is_stream=True)) as topics:
        assert topics.wait_for_records({partition_of(topic): 99}, 60.0)
        assert not topics.wait_for_records({partition_of(topic): 0}, 0.05)
        assert not topics.wait_for_records({partition_of(topic): 0}, 0.05)
        assert not topics.wait_for_records({}, 60.0)


def test_deleted_offsets_of_a_checkpoint_are_a_loss(
    world: SourceWorld, query: Any, millstream_topic: TopicFactory
) -> None:
    topic = millstream_topic("retired")
    for number in range(4):
        world.produce(topic, b"%d" % number)
    with Admin(world.broker.bootstrap_servers) as admin:
        admin.delete_records({partition_of(topic): 3}).raise_first()
    checkpoint = {topic: {"0": 1}}

    strict = query(checkpoint=checkpoint, subscribe=topic)
    with pytest.raises(RecordsLost, match="offsets 1 to 2 are gone"):
        strict.micro_batch()

    lenient = query(checkpoint=checkpoint, subscribe=topic, failOnDataLoss="false")
    assert lenient.micro_batch() == [b"3"]
