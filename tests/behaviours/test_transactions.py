"""Transactions: all or nothing, whoever is newer wins, and offsets go with the records."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from millstream import AsyncProducer, Consumer, OffsetAndMetadata, Producer, read_topic
from millstream.client.producer.transactions.manager import TransactionManager
from millstream.errors import InvalidTxnState, MillstreamError, ProducerFenced
from tests.behaviours.clusters import at
from tests.integration.client.producer.reading import read_all

if TYPE_CHECKING:
    from tests.behaviours.clusters import Cluster

PATIENCE = 30


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """At most this version of transactions; brokers of version 2 serve both."""
    if request.param == 1:
        monkeypatch.setattr(TransactionManager, "_is_implicit_now", lambda self: None)
    return int(request.param)


def committed_values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [each.value for each in read_all(cluster.address, topic, committed=True)]


@pytest.mark.usefixtures("version")
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(cluster: Cluster) -> None:
    topic = cluster.topic(2)

    with Producer(cluster.address, transactional_id=cluster.new_name("tx"), linger=0) as producer:
        for number in range(4):
            producer.begin_transaction()
            sent = [producer.send(topic, b"%d" % number, partition=each) for each in (0, 1)]
            if number % 2:
                producer.flush(PATIENCE)
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                assert all(each.done() for each in sent)

    assert committed_values(cluster, topic) == [b"0", b"2"] * 2
    assert read_topic(cluster.address, topic).to_arrow().num_rows == 8


@pytest.mark.usefixtures("version")
def test_a_block_that_raises_leaves_nothing(cluster: Cluster) -> None:
    topic = cluster.topic()

    def fail(producer: Producer) -> None:
        with producer.transaction():
            producer.send(topic, b"never").result(PATIENCE)
            raise ZeroDivisionError

    with Producer(cluster.address, transactional_id=cluster.new_name("tx")) as producer:
        with pytest.raises(ZeroDivisionError):
            fail(producer)
        with producer.transaction():
            pass
        with producer.transaction():
            producer.send(topic, b"kept")

    assert committed_values(cluster, topic) == [b"kept"]


@pytest.mark.usefixtures("version")
def test_a_newer_producer_shuts_the_older_one_out(cluster: Cluster) -> None:
    topic, name = cluster.topic(), cluster.new_name("tx")
    old = Producer(cluster.address, transactional_id=name)
    with old.transaction():
        old.send(topic, b"first")
    old.begin_transaction()
    old.send(topic, b"zombie").result(PATIENCE)

    with Producer(cluster.address, transactional_id=name) as new:
        with new.transaction():
            new.send(topic, b"new")
        with pytest.raises(ProducerFenced):
            old.commit_transaction()
        with pytest.raises(MillstreamError):
            old.begin_transaction()
        with suppress(MillstreamError):
            old.close()

    assert committed_values(cluster, topic) == [b"first", b"new"]


@pytest.mark.usefixtures("version")
def test_offsets_are_committed_with_the_records_or_not_at_all(cluster: Cluster) -> None:
    source, target, group = cluster.filled(20), cluster.topic(), cluster.new_name("group")
    (partition,) = at(source)

    def move(*, fails: bool) -> None:
        with (
            Consumer(
                cluster.address,
                source,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer,
            Producer(cluster.address, transactional_id=f"tx-{group}") as producer,
        ):
            records = consumer.poll(PATIENCE, max_records=10)
            with producer.transaction():
                for record in records:
                    producer.send(target, record.value)
                offsets = {partition: OffsetAndMetadata(records[-1].offset + 1, "moved")}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                if fails:
                    raise ZeroDivisionError

    def committed() -> int | None:
        with Consumer(cluster.address, group_id=group) as consumer:
            found = consumer.committed([partition])[partition]
            return None if found is None else found.offset

    with pytest.raises(ZeroDivisionError):
        move(fails=True)
    assert committed() is None
    move(fails=False)
    assert committed() == 10
    move(fails=False)
    assert committed() == 20
    assert committed_values(cluster, target) == [b"v%d" % number for number in range(20)]


def test_readers_of_committed_records_wait_at_an_open_transaction(cluster: Cluster) -> None:
    topic = cluster.topic()
    (partition,) = at(topic)
    cluster.write(topic, [b"before"])

    with (
        Producer(cluster.address, transactional_id=cluster.new_name("tx")) as producer,
        Consumer(
            cluster.address, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as careful,
        Consumer(cluster.address, auto_offset_reset="earliest") as curious,
    ):
        producer.begin_transaction()
        producer.send(topic, b"open").result(PATIENCE)
        cluster.write(topic, [b"after"])
        careful.assign([partition])
        curious.assign([partition])
        assert [each.value for each in careful.poll(PATIENCE)] == [b"before"]
        assert careful.poll(0.3) == []
        assert careful.end_offsets([partition]) == {partition: 1}
        seen: list[bytes | None] = []
        while len(seen) < 3:
            seen += [each.value for each in curious.poll(PATIENCE)]
        assert seen == [b"before", b"open", b"after"]
        producer.abort_transaction()
        assert [each.value for each in careful.poll(PATIENCE)] == [b"after"]


def test_a_position_passes_the_marks_at_the_end_of_a_topic(cluster: Cluster) -> None:
    topic = cluster.topic()
    (partition,) = at(topic)
    name = cluster.new_name("tx")
    with Producer(cluster.address, transactional_id=name) as producer, producer.transaction():
        producer.send(topic, b"v")

    for level in ("read_committed", "read_uncommitted"):
        with Consumer(
            cluster.address,
            auto_offset_reset="earliest",
            isolation_level=level,
        ) as consumer:
            consumer.assign([partition])
            assert [each.value for each in consumer.poll(PATIENCE)] == [b"v"]
            for _ in range(50):
                if consumer.position(partition) == 2:
                    break
                assert consumer.poll(0.1) == []
            assert consumer.position(partition) == 2
            assert consumer.lag(partition) == 0


def test_calls_in_the_wrong_order_say_what_to_do(cluster: Cluster) -> None:
    topic = cluster.topic()

    with Producer(cluster.address) as plain, pytest.raises(InvalidTxnState):
        plain.begin_transaction()
    with Producer(cluster.address, transactional_id=cluster.new_name("tx")) as producer:
        with pytest.raises(InvalidTxnState):
            producer.send(topic, b"v")
        with pytest.raises(InvalidTxnState):
            producer.commit_transaction()
        with pytest.raises(InvalidTxnState):
            producer.send_offsets_to_transaction({at(topic)[0]: 1}, "group")
        producer.begin_transaction()
        with pytest.raises(InvalidTxnState):
            producer.begin_transaction()
        producer.abort_transaction()
        with pytest.raises(InvalidTxnState):
            producer.send(topic, b"v")


def test_closing_aborts_an_open_transaction(cluster: Cluster) -> None:
    topic = cluster.topic()
    with Producer(cluster.address, transactional_id=cluster.new_name("tx")) as producer:
        producer.begin_transaction()
        producer.send(topic, b"forgotten").result(PATIENCE)

    cluster.write(topic, [b"after"])
    assert committed_values(cluster, topic) == [b"after"]


def test_the_asyncio_client_is_all_or_nothing(cluster: Cluster) -> None:
    topic = cluster.topic()

    async def fail(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"never")
            raise ZeroDivisionError

    async def main() -> None:
        async with AsyncProducer(
            cluster.address, transactional_id=cluster.new_name("tx")
        ) as producer:
            async with producer.transaction():
                await producer.send(topic, b"a")
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
            # Who stops waiting for a commit may ask for it again, whether it was under way or not.
            await producer.begin_transaction()
            await producer.send(topic, b"b")
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            await producer.commit_transaction()
            with pytest.raises(InvalidTxnState):
                await producer.commit_transaction()

    asyncio.run(asyncio.wait_for(main(), 60))

    assert committed_values(cluster, topic) == [b"a", b"b"]
