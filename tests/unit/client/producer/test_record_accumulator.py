"""Records become batches: full, lingered, flushed, within a bound of memory, in order."""

from __future__ import annotations

import pytest

from millstream.client.producer.partition_queues import MemoryNotFree, TopicNotKnown
from millstream.client.producer.partition_state import PartitionState
from millstream.client.producer.produce_sink import (
    NOBODY,
    SEQUENCES,
    UNLIMITED,
    ProducerIdentity,
)
from millstream.errors import ClientClosed, ForkedClient, InvalidArgument, MessageTooLarge
from millstream.records import RecordBatch, partition_for_key
from millstream.records.compression import Compression
from millstream.records.layout import HEADER_SIZE
from tests.unit.client.producer.fakes import ROUTE, TOPIC, Bench, grant_all


def values(batch: object) -> list[bytes | None]:
    """The values in a batch that was taken."""
    batch.seal(Compression.NONE, None, is_transactional=False)  # type: ignore[attr-defined]
    records = batch.records  # type: ignore[attr-defined]
    return [each.value for each in RecordBatch(records).records()]


def send_forever(bench: Bench) -> None:
    """Until it must wait."""
    while True:
        bench.send(b"x" * 1000)


class TestWhenABatchIsSendable:
    """`grant` and `take`."""

    def test_it_lingers_and_is_sent_then(self) -> None:
        bench = Bench(linger_ms=5)
        bench.send(b"a")
        bench.send(b"b")

        assert bench.take() == []
        assert bench.accumulator.take(ROUTE.connection_id, 0) == ([], 5)
        bench.clock.advance(5)
        (batch,) = bench.take()

        assert values(batch) == [b"a", b"b"]

    def test_a_full_one_does_not_linger(self) -> None:
        bench = Bench(batch_size=300)
        for number in range(8):
            bench.send(b"%d" % number * 60)

        first, second = bench.take()

        assert values(first) == [b"0" * 60, b"1" * 60, b"2" * 60]
        assert values(second) == [b"3" * 60, b"4" * 60, b"5" * 60]
        assert bench.take() == [], "the last is not full"

    def test_nothing_lingers_in_a_flush(self) -> None:
        bench = Bench()
        bench.send(b"a")
        assert bench.take() == []

        (incomplete,) = bench.accumulator.begin_flush()
        (batch,) = bench.take()
        bench.accumulator.end_flush()

        assert batch is incomplete
        bench.send(b"b")
        assert bench.take() == []

    def test_nothing_lingers_when_memory_is_wanted(self) -> None:
        bench = Bench()
        bench.send(b"a")

        reservation = bench.accumulator.reserve(100_000)
        (batch,) = bench.take()
        bench.accumulator.finish(batch)

        assert reservation.is_granted

    def test_nothing_lingers_after_the_end_and_nothing_comes_in(self) -> None:
        bench = Bench()
        bench.send(b"a")

        bench.accumulator.close(ClientClosed("over"))

        assert len(bench.take()) == 1
        with pytest.raises(ClientClosed, match="over"):
            bench.send(b"b")

    def test_one_that_is_larger_than_what_is_left_of_a_request_waits(self) -> None:
        bench = Bench(linger_ms=0, partitions=3, request_size_max=1000)
        for partition, size in enumerate((400, 800, 1200)):
            bench.send(b"x" * size, partition)
        grant_all(bench.accumulator)

        requests = []
        while (taken := bench.accumulator.take(ROUTE.connection_id, 0)[0]) != []:
            requests.append([queue.index for queue, _ in taken])

        assert sorted(requests) == [[0], [1], [2]], "the largest goes too, alone"

    def test_partitions_send_no_more_than_they_are_granted(self) -> None:
        bench = Bench(linger_ms=0, batch_size=100, partitions=2)
        for _ in range(3):
            bench.send(b"x" * 100, partition=0)
            bench.send(b"x" * 100, partition=1)
        first, second = bench.accumulator._topics[TOPIC].partitions
        bench.accumulator.grant(first, ROUTE, 1, NOBODY)
        bench.accumulator.grant(second, ROUTE._replace(connection_id=2), UNLIMITED, NOBODY)

        taken, _ = bench.accumulator.take(ROUTE.connection_id, 0)
        assert [queue for queue, _ in taken] == [first]
        assert bench.accumulator.take(ROUTE.connection_id, 0) == ([], None)
        assert (first.is_granted, len(first), len(second)) == (False, 2, 3)
        bench.accumulator.revoke(second)
        assert bench.accumulator.take(2, 0) == ([], None)

    def test_the_sender_hears_of_queues_that_are_not_granted(self) -> None:
        bench = Bench(partitions=2)
        bench.send(partition=1)
        _, queue = bench.accumulator._topics[TOPIC].partitions

        assert bench.accumulator.sink.take_ungranted() == [queue]
        grant_all(bench.accumulator)
        bench.send(b"x" * 990, partition=1)

        assert bench.accumulator.sink.take_ungranted() == []

    def test_batches_are_numbered_as_they_are_taken(self) -> None:
        bench = Bench(linger_ms=0, batch_size=100)
        (queue,) = bench.accumulator._topics[TOPIC].partitions
        queue.next_sequence = SEQUENCES - 1
        grant_all(bench.accumulator, ProducerIdentity(7, 3))
        for _ in range(3):
            bench.send(b"x" * 100)
        taken = []
        while (more := bench.accumulator.take(ROUTE.connection_id, 0)[0]) != []:
            taken += [batch for _, batch in more]

        assert [each.base_sequence for each in taken] == [SEQUENCES - 1, 0, 1]
        assert {(each.producer_id, each.producer_epoch) for each in taken} == {(7, 3)}
        assert queue.next_sequence == 2

    def test_what_is_sent_again_goes_first_with_its_number_and_after_its_backoff(self) -> None:
        bench = Bench(linger_ms=0, batch_size=100)
        for _ in range(3):
            bench.send(b"x" * 100)
        (queue,) = bench.accumulator._topics[TOPIC].partitions
        state = queue.state = PartitionState(queue, TOPIC)
        bench.accumulator.grant(queue, ROUTE, 2, ProducerIdentity(7, 3))
        sent = [bench.accumulator.take(ROUTE.connection_id, 0)[0][0][1] for _ in range(2)]
        state.numbered += sent
        for batch in reversed(sent):
            batch.retry_at_ms = 50
            bench.accumulator.put_back(state, batch)
        assert queue.repeats() == sent

        bench.accumulator.grant(queue, ROUTE, UNLIMITED, ProducerIdentity(7, 3))
        assert bench.accumulator.take(ROUTE.connection_id, 49) == ([], 50)
        again = [bench.accumulator.take(ROUTE.connection_id, 50)[0][0][1] for _ in range(3)]

        assert again[:2] == sent
        assert [each.base_sequence for each in again] == [0, 1, 2]

    def test_the_sender_is_woken_for_new_and_full_batches_only(self) -> None:
        bench = Bench(batch_size=300)
        bench.wakes = 0

        bench.send(b"a")
        bench.send(b"b")
        assert bench.wakes == 1
        bench.send(b"c" * 250)

        assert bench.wakes == 2


class TestWhereARecordGoes:
    """The choice of a partition."""

    def test_a_key_decides(self) -> None:
        bench = Bench(partitions=7)

        placed = [bench.send(partition=-1, key=b"k%d" % n).partition for n in range(20)]

        assert placed == [partition_for_key(b"k%d" % n, 7) for n in range(20)]

    def test_keys_may_be_ignored(self) -> None:
        bench = Bench(partitions=7, ignores_keys=True)

        assert len({bench.send(partition=-1, key=b"k%d" % n).partition for n in range(9)}) == 1

    def test_without_a_key_it_stays_for_a_batch_and_then_changes(self) -> None:
        bench = Bench(partitions=50, batch_size=1000)

        placed = [bench.send(b"x" * 100, partition=-1).partition for _ in range(70)]

        runs = [placed[0]]
        for each in placed:
            if each != runs[-1]:
                runs.append(each)
        assert 7 <= len(runs) <= 12, "about seven records fill a batch"

    def test_shorter_queues_get_more(self) -> None:
        bench = Bench(partitions=2, batch_size=200, buffer_memory=10_000_000)
        for _ in range(500):
            bench.send(b"x" * 200, partition=0)

        placed = [bench.send(b"x" * 200, partition=-1).partition for _ in range(100)]

        assert placed.count(1) > 90

    def test_partitions_without_a_leader_are_passed_over(self) -> None:
        bench = Bench(partitions=3)
        bench.accumulator.set_topic(TOPIC, 3, [2])

        assert {bench.send(b"x" * 900, partition=-1).partition for _ in range(20)} == {2}
        assert bench.accumulator.available_partitions(TOPIC) == [2]

    def test_topics_and_partitions_must_be_known(self) -> None:
        bench = Bench(partitions=2)

        with pytest.raises(TopicNotKnown):
            bench.accumulator.append("other", -1, None, b"v")
        with pytest.raises(TopicNotKnown):
            bench.send(partition=2)
        bench.accumulator.set_topic(TOPIC, 3, range(3))
        assert bench.send(partition=2).partition == 2
        assert bench.accumulator.partition_count(TOPIC) == 3
        assert bench.accumulator.partition_count("other") is None

    def test_a_topic_is_forgotten_when_nothing_waits(self) -> None:
        bench = Bench(linger_ms=0)
        bench.send()

        assert not bench.accumulator.forget_topic(TOPIC)
        bench.take()
        assert bench.accumulator.forget_topic(TOPIC)
        assert not bench.accumulator.forget_topic(TOPIC)


class TestMemory:
    """`buffer_memory` is a bound."""

    def test_a_batch_takes_memory_as_it_fills(self) -> None:
        bench = Bench(batch_size=64 * 1024, buffer_memory=1 << 20, record_size_max=1 << 20)
        bench.send(b"a")
        small = bench.accumulator.buffered_bytes

        for _ in range(50):
            bench.send(b"x" * 1000)

        assert small <= 16 * 1024
        assert bench.accumulator.buffered_bytes == 64 * 1024

    def test_without_memory_a_record_must_wait_for_its_turn(self) -> None:
        bench = Bench(batch_size=1000, buffer_memory=2000, linger_ms=0)
        bench.send(b"x" * 900)
        bench.send(b"x" * 900)

        with pytest.raises(MemoryNotFree) as need:
            bench.send(b"y" * 900)
        reservation = bench.accumulator.reserve(need.value.size)
        assert not reservation.is_granted
        for batch in bench.take():
            bench.accumulator.finish(batch)
            batch.complete(0, -1)
        assert reservation.is_granted
        bench.send(b"y" * 900, reservation=reservation)
        bench.accumulator.cancel(reservation)

        (batch,) = bench.take()
        assert values(batch) == [b"y" * 900]
        assert bench.accumulator.buffered_bytes == batch.reserved

    def test_a_reservation_that_was_not_needed_is_given_back(self) -> None:
        bench = Bench()
        bench.send(b"a")
        before = bench.accumulator.buffered_bytes
        reservation = bench.accumulator.reserve(1000)

        bench.send(b"b", reservation=reservation)
        bench.accumulator.cancel(reservation)

        assert bench.accumulator.buffered_bytes == before

    def test_a_batch_that_may_not_grow_is_sent_as_it_is(self) -> None:
        bench = Bench(batch_size=32 * 1024, buffer_memory=20_000, record_size_max=40_000)
        with pytest.raises(MemoryNotFree):
            send_forever(bench)

        (batch,) = bench.take()

        assert batch.size < 17_000

    def test_what_is_larger_than_all_memory_is_refused(self) -> None:
        bench = Bench(buffer_memory=2000, record_size_max=10_000)

        with pytest.raises(MemoryNotFree) as need:
            bench.send(b"x" * 5000)
        with pytest.raises(InvalidArgument, match="buffer_memory"):
            bench.accumulator.reserve(need.value.size)

    def test_large_records_have_batches_of_their_own(self) -> None:
        bench = Bench(batch_size=1000)
        bench.send(b"small")
        bench.send(b"x" * 5000)
        bench.send(b"small")
        bench.clock.advance(5)

        assert [batch.record_count for batch in bench.take()] == [1, 1, 1]

    def test_sealing_keeps_no_more_than_the_sealed_bytes(self) -> None:
        bench = Bench(batch_size=1000, buffer_memory=5000)
        for _ in range(3):
            bench.send(b"x" * 300)
        (batch,) = bench.take()
        writer = batch.seal(Compression.GZIP, None, is_transactional=False)
        assert writer is not None

        bench.accumulator.recycle(batch, writer)

        assert batch.reserved == batch.size < 400
        assert bench.accumulator.buffered_bytes <= 2 * 1000 + batch.size, "a spare, an open one"

    def test_everything_is_free_when_everything_is_done(self) -> None:
        bench = Bench(partitions=3, linger_ms=0)
        for number in range(200):
            bench.send(b"x" * number, partition=number % 3)
        for batch in bench.take():
            bench.accumulator.finish(batch)

        assert bench.accumulator.buffered_bytes == 0
        assert bench.accumulator.incomplete_count == 0
        assert bench.accumulator.oldest() is None

    def test_who_waits_for_memory_is_woken_at_the_end(self) -> None:
        bench = Bench(buffer_memory=1000)
        bench.send()
        reservation = bench.accumulator.reserve(1000)
        calls: list[int] = []
        reservation.when_granted(lambda: calls.append(1))

        bench.accumulator.close(ClientClosed("over"))

        assert calls == [1]


class TestBadRecords:
    """What cannot be a record changes nothing."""

    def test_kinds_that_are_not_bytes_say_what_to_do(self) -> None:
        bench = Bench()

        with pytest.raises(InvalidArgument, match=r"value must be bytes.*value_serializer"):
            bench.send(5)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="key must be bytes"):
            bench.send(key=5.0)
        assert bench.accumulator.buffered_bytes == 0

    def test_records_above_the_limit_are_refused(self) -> None:
        with pytest.raises(MessageTooLarge, match="max_request_size"):
            Bench(record_size_max=1000).send(b"x" * 1000)

    def test_a_refused_first_record_leaves_no_batch(self) -> None:
        bench = Bench()
        with pytest.raises((TypeError, OverflowError)):
            bench.send(timestamp=1 << 70)

        assert bench.accumulator.incomplete_count == 0
        assert bench.accumulator.buffered_bytes == 0
        bench.send(b"fine")
        with pytest.raises((TypeError, OverflowError)):
            bench.send(timestamp=1 << 70)
        assert bench.accumulator.incomplete_count == 1

    def test_buffers_and_texts_are_taken_as_they_are(self) -> None:
        bench = Bench(linger_ms=0)
        bench.send(bytearray(b"a"))  # type: ignore[arg-type]
        bench.send(memoryview(b"b"))  # type: ignore[arg-type]
        bench.send("é")  # type: ignore[arg-type]

        (batch,) = bench.take()

        assert values(batch) == [b"a", b"b", "é".encode()]


def test_records_get_the_time_of_now_unless_they_have_one() -> None:
    bench = Bench(linger_ms=0)
    bench.send()
    bench.send(timestamp=77)
    (batch,) = bench.take()
    batch.complete(5, -1)

    batch.seal(Compression.NONE, None, is_transactional=False)

    assert bench.send(timestamp=77).topic == TOPIC


def test_a_batch_can_be_taken_out_of_the_middle() -> None:
    bench = Bench(batch_size=100, linger_ms=0)
    for _ in range(3):
        bench.send(b"x" * 100)
    _, second, _ = bench.accumulator.incomplete()

    assert bench.accumulator.remove(second)
    assert not bench.accumulator.remove(second)
    assert second not in bench.take()


def test_parts_of_a_batch_take_its_place_and_are_the_oldest() -> None:
    bench = Bench(linger_ms=0)
    for _ in range(10):
        bench.send(b"x" * 50)
    (batch,) = bench.take()
    bench.send(b"later")
    batch.seal(Compression.NONE, None, is_transactional=False)

    parts = batch.split()
    bench.accumulator.replace(batch, parts)

    assert bench.accumulator.oldest() in parts
    assert batch not in bench.accumulator.incomplete()
    for part in parts:
        bench.accumulator.finish(part)


def test_a_forked_child_can_only_be_told() -> None:
    bench = Bench()
    bench.send()
    bench.accumulator._lock.__enter__()

    bench.accumulator.disown(ForkedClient("not here"))

    with pytest.raises(ForkedClient):
        bench.send()


def test_a_batch_is_never_smaller_than_its_header_allows() -> None:
    bench = Bench(batch_size=0, linger_ms=0)
    bench.send(b"a")
    bench.send(b"b")

    assert [batch.record_count for batch in bench.take()] == [1, 1]
    assert bench.accumulator._batch_size == HEADER_SIZE + 1
