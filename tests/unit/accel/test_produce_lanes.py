"""Lanes: batches that the sockets' thread numbers, sums, frames and sends by itself."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.producer import kernel

if not kernel.COMPILED or sys.platform != "linux":
    pytest.skip("the compiled accumulator is not built (make build)", allow_module_level=True)

from millstream._accel.client.partition_queues import (
    AccumulatorLock,
    PartitionQueue,
    TopicQueues,
    is_lent,
)
from millstream.client.producer.completions import Completions
from millstream.client.producer.producer_batch import ProducerBatch
from millstream.network.client_selector import Disconnected, Dispatched, Received
from millstream.records import BatchWriter
from millstream.records.batch import RecordBatch
from tests.unit.accel.lane_bench import (
    CONNECTION,
    TOPIC,
    TOPIC_ID,
    WAIT_MS,
    InlineDispatcher,
    LaneBench,
    head_of,
    response,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = range(3, 14)


@pytest.fixture
def bench() -> Iterator[LaneBench]:
    with LaneBench() as made:
        yield made


class TestWhatIsSent:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_every_version_is_a_request_as_others_make_it(
        self, bench: LaneBench, version: int
    ) -> None:
        bench.send(b"first")
        bench.send(b"second")
        assert bench.open(version=version, sequence=41)

        correlation_id, request = bench.receive()

        assert correlation_id == 1 << 29 == bench.dispatched().correlation_id
        assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 30_000, None)
        [topic] = request.topic_data
        assert (topic.name, topic.topic_id)[version >= 13] == (TOPIC, TOPIC_ID)[version >= 13]
        [partition] = topic.partition_data
        batch = RecordBatch(bytes(partition.records))
        batch.check_crc()

        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 41)
        assert [record.value for record in batch.records()] == [b"first", b"second"]

    def test_its_bytes_are_those_that_python_would_have_sealed(self, bench: LaneBench) -> None:
        writer = BatchWriter()
        for number in range(20):
            bench.send(b"%d" % number)
            writer.append(1000, None, b"%d" % number)
        assert bench.open(sequence=5)

        _, request = bench.receive()

        expected = writer.seal(producer_id=77, producer_epoch=3, base_sequence=5)
        assert bytes(request.topic_data[0].partition_data[0].records) == expected

    def test_batches_of_one_topic_share_a_request_and_each_has_its_own_numbers(
        self, bench: LaneBench
    ) -> None:
        bench.accumulator.begin_flush()  # nothing lingers: whatever is there goes at once
        for partition in range(4):
            bench.send(b"x" * partition, partition)
            bench.send(b"y", partition)
        with bench.accumulator._lock:  # so that all lanes are open before the first is served
            for partition in range(4):
                bench.accumulator._lock.open_lane(
                    bench.queue(partition),
                    CONNECTION,
                    13,
                    13,
                    head_of(13),
                    producer_id=1,
                    producer_epoch=0,
                    sequence=10 * partition,
                )

        _, request = bench.receive()

        found = {
            each.index: RecordBatch(bytes(each.records)).base_sequence
            for each in request.topic_data[0].partition_data
        }
        assert found == {0: 0, 1: 10, 2: 20, 3: 30}
        [(correlation_id, _, taken)] = bench.taken()
        assert correlation_id == 1 << 29
        assert {(queue.index, number) for queue, _, number in taken} == set(found.items())

    def test_numbers_go_on_and_begin_again_after_the_last(self, bench: LaneBench) -> None:
        assert bench.open(sequence=(1 << 31) - 1)

        bench.send(b"last")
        bench.receive()
        bench.send(b"first")
        _, request = bench.receive()

        header = RecordBatch(bytes(request.topic_data[0].partition_data[0].records))
        assert header.base_sequence == 0

    def test_without_numbers_there_is_no_producer(self, bench: LaneBench) -> None:
        assert bench.open(sequence=-1)
        bench.send(b"x")

        _, request = bench.receive()

        header = RecordBatch(bytes(request.topic_data[0].partition_data[0].records))
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)

    def test_it_leaves_while_c_code_holds_the_gil(self, bench: LaneBench) -> None:
        assert bench.open()
        bench.send(b"x")

        ctypes.PyDLL(None).usleep(100_000)  # PyDLL keeps the GIL

        before_ms = bench.accumulator._clock.monotonic_ms()
        assert bench.dispatched().sent_ms < before_ms - 50

    def test_a_batch_that_was_taken_takes_no_more_records(self, bench: LaneBench) -> None:
        assert bench.open()
        first = bench.send(b"first")
        bench.receive()

        second = bench.send(b"second")
        _, request = bench.receive()

        batch = RecordBatch(bytes(request.topic_data[0].partition_data[0].records))
        assert [record.value for record in batch.records()] == [b"second"]
        assert batch.base_sequence == 1
        assert repr(first) == repr(second) == "<Delivery to topic-0, pending>"


class TestWhatKeepsALaneOpen:
    def answer(self, bench: LaneBench, **change: Any) -> None:
        correlation_id, _ = bench.receive()
        frame = response(13, correlation_id, **change)
        bench.peer.sendall(len(frame).to_bytes(4, "big") + frame)
        events: list[Any] = []
        while not any(isinstance(event, Received) for event in events):
            events += bench.selector.poll(WAIT_MS)

    def test_requests_in_flight_are_bounded_and_an_answer_makes_room(self) -> None:
        with LaneBench(max_in_flight=1) as bench:
            assert bench.open()
            bench.send(b"first")
            first_id, _ = bench.receive()
            bench.send(b"second")
            bench.peer.settimeout(0.05)
            with pytest.raises(TimeoutError):
                bench.peer.recv(1)
            bench.peer.settimeout(WAIT_MS / 1000)

            frame = response(13, first_id)
            bench.peer.sendall(len(frame).to_bytes(4, "big") + frame)

            assert bench.receive()[0] == first_id + 1

    @pytest.mark.parametrize("change", [{"error_code": 6}, {"throttle_time_ms": 1}])
    def test_anything_unusual_shuts_it_until_it_is_opened_again(
        self, bench: LaneBench, change: dict[str, Any]
    ) -> None:
        assert bench.open()
        bench.send(b"first")
        self.answer(bench, **change)

        bench.send(b"second")
        bench.peer.settimeout(0.05)
        with pytest.raises(TimeoutError):
            bench.peer.recv(1)
        bench.peer.settimeout(WAIT_MS / 1000)
        bench.accumulator.close_lane(bench.queue(0))
        assert [len(each.batches) for each in (bench.queue(0),)] == [1]
        assert bench.open(sequence=1)

        _, request = bench.receive()
        batch = RecordBatch(bytes(request.topic_data[0].partition_data[0].records))
        assert [record.value for record in batch.records()] == [b"second"]

    def test_a_lane_that_is_closed_gives_its_batches_to_the_sender(self, bench: LaneBench) -> None:
        assert bench.open()
        bench.accumulator.close_lane(bench.queue(0))
        bench.send(b"x")

        queues, _ = bench.accumulator.collect(1 << 60)
        batch = bench.accumulator.take(queues[0], 1 << 30, 1 << 60)

        assert batch is not None
        assert (batch.record_count, batch.is_closed) == (1, True)
        assert bench.taken() == []

    def test_the_sender_is_not_told_of_queues_that_are_not_its_own(self, bench: LaneBench) -> None:
        assert bench.open(0)
        bench.send(b"x", 0)
        bench.send(b"y", 1)

        queues, _ = bench.accumulator.collect(1 << 60)

        assert [queue.index for queue in queues] == [1]
        assert bench.queue(0).is_express
        assert not bench.queue(1).is_express

    def test_what_was_taken_when_the_connection_ended_is_told_nevertheless(
        self, bench: LaneBench
    ) -> None:
        assert bench.open()
        bench.send(b"x")
        bench.receive()
        bench.peer.close()

        events: list[Any] = []
        while not any(isinstance(event, Disconnected) for event in events):
            events += bench.selector.poll(WAIT_MS)

        assert [type(event) for event in events] == [Dispatched, Disconnected]
        [(_, version, taken)] = bench.taken()
        assert (version, len(taken)) == (13, 1)
        assert not bench.open()

    def test_the_sender_is_woken_if_a_lane_leads_nowhere(self, bench: LaneBench) -> None:
        assert bench.open()
        bench.selector.close(CONNECTION)

        bench.send(b"x")

        before_ms = bench.accumulator._clock.monotonic_ms()
        assert bench.selector.poll(WAIT_MS) == []
        assert bench.accumulator._clock.monotonic_ms() < before_ms + WAIT_MS
        assert bench.taken() == []

    def test_closing_a_connection_forgets_its_answers_but_not_what_was_taken(
        self, bench: LaneBench
    ) -> None:
        assert bench.open()
        bench.send(b"x")
        bench.receive()
        bench.selector.close(CONNECTION)

        assert [type(event) for event in bench.selector.poll(WAIT_MS)] == [Dispatched]


class TestMemory:
    def test_records_on_their_way_out_stay_where_they_are(self, bench: LaneBench) -> None:
        bench.peer.setsockopt(1, 8, 4096)
        batch_bytes = 3_000
        assert bench.open()
        deliveries = [bench.send(b"x" * batch_bytes) for _ in range(5)]
        taken: list[Any] = []
        while len(taken) < 4:
            bench.selector.poll(20)
            for _, _, batches in bench.taken():
                taken += [batch for _, batch, _ in batches]

        for batch in taken:
            writer = batch.writer
            assert writer.seal()  # reading is allowed
            if is_lent(writer):
                with pytest.raises(BufferError):
                    writer.clear()
        while any(is_lent(batch.writer) for batch in taken):
            bench.receive()
            bench.selector.poll(10)
        assert deliveries[0].topic == TOPIC

    def test_a_finished_batch_gives_its_writer_to_the_next(self) -> None:
        with LaneBench(batch_size=2000) as bench:
            assert bench.open()
            used = bench.accumulator.buffered_bytes
            for _ in range(3):
                bench.send(b"x" * 1500)
                bench.receive()
                bench.dispatched()
                [(_, _, [(_, batch, _)])] = bench.taken()
                bench.accumulator.finish(batch)
                batch.complete(0, -1)

            assert bench.accumulator.buffered_bytes <= used + 2000
            assert bench.accumulator.incomplete_count == 0

    def test_nothing_is_left_behind(self) -> None:
        with LaneBench() as bench:
            assert bench.open()
            bench.send(b"taken")
            bench.receive()
            bench.accumulator.close_lane(bench.queue(0))
            bench.send(b"waiting")
            [(_, _, [(_, batch, _)])] = bench.taken()
            watched: list[weakref.ref[Any]] = [
                weakref.ref(each) for each in (bench, bench.accumulator, bench.selector)
            ]
        del bench, batch
        gc.collect()

        assert [each() for each in watched] == [None, None, None]


class TestMisuse:
    def test_one_accumulator_for_a_selector_and_one_selector_for_an_accumulator(
        self, bench: LaneBench
    ) -> None:
        with pytest.raises(ValueError, match="there is a selector already"):
            bench.accumulator.attach(bench.selector, request_size_max=1, max_in_flight=1)
        lock = AccumulatorLock()
        assert not lock.attach(
            bench.selector, lambda: False, linger_ms=1, request_size_max=1, max_in_flight=1
        )

    def test_lanes_need_a_selector_a_connection_and_a_head(self, bench: LaneBench) -> None:
        lock = AccumulatorLock()
        stranger = PartitionQueue(TopicQueues("other", lock), 0, 100)
        place = {"producer_id": 1, "producer_epoch": 1, "sequence": 0}

        assert not lock.open_lane(stranger, 1, 13, 1, head_of(13), **place)
        assert not bench.accumulator.open_lane(stranger, 1, 13, 1, head_of(13), **place)
        assert not bench.accumulator.open_lane(bench.queue(0), 99, 13, 1, head_of(13), **place)
        with pytest.raises(ValueError, match="does not begin with 3 bytes"):
            bench.accumulator.open_lane(bench.queue(0), CONNECTION, 13, 1, b"abc", **place)
        with pytest.raises(TypeError):
            bench.accumulator.open_lane(None, CONNECTION, 13, 1, head_of(13), **place)

    def test_a_queue_takes_batches_only(self) -> None:
        queue = PartitionQueue(TopicQueues("other"), 0, 100)
        batch = ProducerBatch("other", 0, BatchWriter(), 0, 0, Completions(InlineDispatcher()))
        with pytest.raises(AttributeError):
            queue.add(object())
        with pytest.raises(ValueError, match="opened with `add`"):
            queue.open = batch
        with pytest.raises(ValueError):
            queue.remove(batch)
        with pytest.raises(IndexError):
            queue.take_first()

        queue.add(batch)
        assert queue.open is batch
        queue.open = None
        queue.take_first()
        assert list(queue.batches) == []
