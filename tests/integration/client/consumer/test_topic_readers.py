"""Readers of bounded parts with a real broker: many reads over one client, blocking and asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Admin, AsyncTopicReader, TopicPartition, TopicReader, async_read_topic
from millstream.errors import (
    ConcurrentUse,
    InvalidArgument,
    OffsetOutOfRangeWithoutReset,
    OperationTimeout,
)
from millstream.records.kernel import ArrowRecordsBuilder

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.integration.client.consumer.topics import Topics

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(topics: Topics) -> str:
    """Two partitions with 10 records each."""
    name = topics.make(partitions=2)
    for number in range(10):
        topics.write(name, [b"0-%d" % number, b"1-%d" % number], partitions=2)
    return name


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def offsets(table: Any) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in table.to_pylist())


def test_a_reader_reads_again_and_again(topics: Topics, topic: str) -> None:
    with TopicReader(topics.bootstrap) as reader:
        first = reader.read(topic, partitions=[0], end=2).to_arrow()
        topics.write(topic, [b"new"], partitions=1)
        second = reader.read(topic, start={0: 9, 1: "latest"}, columns=["value"]).to_arrow()

        assert offsets(first) == [(0, 0), (0, 1)]
        assert second.to_pylist() == [{"value": b"0-9"}, {"value": b"new"}]
        assert reader.is_usable
    assert not reader.is_usable


def test_a_read_that_is_left_early_leaves_nothing_to_the_next(topics: Topics, topic: str) -> None:
    with TopicReader(topics.bootstrap) as reader:
        with reader.read(topic) as left:
            next(iter(left))

        assert offsets(reader.read(topic, partitions=[1], start=8).to_arrow()) == [(1, 8), (1, 9)]


def test_one_read_at_a_time(topics: Topics, topic: str) -> None:
    with TopicReader(topics.bootstrap) as reader:
        first = reader.read(topic)
        with pytest.raises(ConcurrentUse, match="reading already"):
            reader.read(topic)

        assert len(first.to_arrow()) == 20
        assert len(reader.read(topic).to_arrow()) == 20


def test_a_range_goes_into_a_builder_of_the_callers(topics: Topics, topic: str) -> None:
    where = TopicPartition(topic, 1)
    builder = ArrowRecordsBuilder(["offset"])
    found = []
    with TopicReader.from_config({"bootstrap.servers": topics.bootstrap}) as reader:
        assert reader.bounds(where) == (0, 10)
        read = reader.read_range(where, 3, 7, builder)
        while read.fill():
            found.append(len(builder.finish()))

        assert sum(found) == 4
        assert read.position == 7


def test_what_is_gone_can_be_skipped(topics: Topics, topic: str) -> None:
    where = TopicPartition(topic, 0)
    with Admin(topics.bootstrap) as admin:
        admin.delete_records({where: 6})
    builder = ArrowRecordsBuilder(["offset"])
    with TopicReader(topics.bootstrap) as reader:
        read = reader.read_range(where, 2, 8, builder)
        with pytest.raises(OffsetOutOfRangeWithoutReset):
            read.fill()
        assert read.position == 2
        read.skip_to(reader.bounds(where).start)
        while read.fill():
            pass

        assert builder.row_count == 2
        read = reader.read_range(where, 2, 5, builder)
        with pytest.raises(OffsetOutOfRangeWithoutReset):
            read.fill()
        read.skip_to(6)
        assert not read.fill()


def test_what_cannot_come_is_told_in_time(topics: Topics, topic: str) -> None:
    with TopicReader(topics.bootstrap, fetch_max_wait=0.1) as reader:
        read = reader.read_range(
            TopicPartition(topic, 0), 10, 12, ArrowRecordsBuilder(), timeout=0.2
        )

        with pytest.raises(OperationTimeout, match=r"nothing arrived for 0\.2 s.*up to 12"):
            read.fill()


def test_an_event_loop_reads_a_topic(topics: Topics, topic: str) -> None:
    async def read() -> tuple[Any, Any, Any]:
        table = await (await async_read_topic(topics.bootstrap, topic)).to_arrow()
        frame = await (await async_read_topic(topics.bootstrap, topic, end=3)).to_polars()
        pandas = await (await async_read_topic(topics.bootstrap, topic, start=9)).to_pandas()
        return table, frame, pandas

    table, frame, pandas = run(read())

    assert offsets(table) == [(part, at) for part in range(2) for at in range(10)]
    assert frame.height == 6
    assert len(pandas) == 2


def test_an_event_loop_reads_in_batches_over_one_client(topics: Topics, topic: str) -> None:
    async def read() -> tuple[int, list[tuple[int, int]]]:
        async with AsyncTopicReader(topics.bootstrap) as reader:
            rows = 0
            async with await reader.read(topic) as everything:
                async for batch in everything:
                    rows += len(batch)
            part = await reader.read(topic, partitions=[0], start=8)
            return rows, offsets(await part.to_arrow())

    assert run(read()) == (20, [(0, 8), (0, 9)])


def test_an_event_loop_hears_of_what_is_wrong(topics: Topics, topic: str) -> None:
    async def read_twice() -> None:
        once = await async_read_topic(topics.bootstrap, topic)
        await once.to_arrow()
        await once.to_arrow()

    with pytest.raises(InvalidArgument, match="read already"):
        run(read_twice())
    with pytest.raises(InvalidArgument, match="it reads alone"):
        run(async_read_topic(topics.bootstrap, topic, group_id="g"))
    with pytest.raises(InvalidArgument, match="has 2 partitions"):
        run(async_read_topic(topics.bootstrap, topic, partitions=[2]))
