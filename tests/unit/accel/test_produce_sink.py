"""Batches that the selector's thread numbers, sums, frames and sends by itself."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.producer import kernel

if not kernel.COMPILED or sys.platform != "linux":
    pytest.skip("the compiled accumulator is not built (make build)", allow_module_level=True)

from millstream._accel.client.produce_sink import (
    PartitionQueue,
    ProduceSink,
    TopicQueues,
    is_pinned,
)
from millstream.client.producer.completions import Completions
from millstream.client.producer.produce_sink import (
    NOBODY,
    UNLIMITED,
    ProducerIdentity,
    Route,
)
from millstream.client.producer.producer_batch import ProducerBatch
from millstream.clock import SystemClock
from millstream.network.client.selector import (
    Disconnected,
    Dispatched,
    PeriodicRequest,
    Received,
    Repeated,
)
from millstream.records import BatchWriter
from millstream.records.batch import RecordBatch
from tests.unit.accel.holding_the_gil import receive_with_the_gil
from tests.unit.accel.sink_bench import (
    CONNECTION,
    TOPIC,
    TOPIC_ID,
    WAIT_MS,
    InlineDispatcher,
    SinkBench,
    head_of,
    response,
)
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = range(3, 14)


@pytest.fixture
def bench() -> Iterator[SinkBench]:
    with SinkBench() as made:
        yield made


class TestWhatIsSent:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_every_version_is_a_request_as_others_make_it(
        self, bench: SinkBench, version: int
    ) -> None:
        bench.send(b"first")
        bench.send(b"second")
        assert bench.grant(version=version, sequence=41)

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

    def test_its_bytes_are_those_that_python_would_have_sealed(self, bench: SinkBench) -> None:
        writer = BatchWriter()
        for number in range(20):
            bench.send(b"%d" % number)
            writer.append(1000, None, b"%d" % number)
        assert bench.grant(sequence=5)

        _, request = bench.receive()

        expected = writer.seal(producer_id=77, producer_epoch=3, base_sequence=5)
        assert bytes(request.topic_data[0].partition_data[0].records) == expected

    def test_batches_of_one_topic_share_a_request_and_each_has_its_own_numbers(
        self, bench: SinkBench
    ) -> None:
        bench.accumulator.begin_flush()  # nothing lingers: whatever is there goes at once
        for partition in range(4):
            bench.send(b"x" * partition, partition)
            bench.send(b"y", partition)
        route = Route(CONNECTION, 13, 0, 13, head_of(13))
        for partition in range(4):
            bench.queue(partition).next_sequence = 10 * partition
        with bench.accumulator._lock:  # so that all are granted before the first is served
            for partition in range(4):
                bench.accumulator.sink.grant(
                    bench.queue(partition), route, UNLIMITED, ProducerIdentity(1, 0)
                )
        bench.accumulator.sink.notify()

        _, request = bench.receive()

        found = {
            each.index: RecordBatch(bytes(each.records)).base_sequence
            for each in request.topic_data[0].partition_data
        }
        assert found == {0: 0, 1: 10, 2: 20, 3: 30}
        [(correlation_id, _, taken)] = bench.taken()
        assert correlation_id == 1 << 29
        numbers = {(queue.index, batch.base_sequence) for queue, batch in taken}
        assert numbers == set(found.items())

    def test_numbers_go_on_and_begin_again_after_the_last(self, bench: SinkBench) -> None:
        assert bench.grant(sequence=(1 << 31) - 1)

        bench.send(b"last")
        bench.receive()
        bench.send(b"first")
        _, request = bench.receive()

        header = RecordBatch(bytes(request.topic_data[0].partition_data[0].records))
        assert header.base_sequence == 0

    def test_without_numbers_there_is_no_producer(self, bench: SinkBench) -> None:
        assert bench.grant(sequence=-1)
        bench.send(b"x")

        _, request = bench.receive()

        header = RecordBatch(bytes(request.topic_data[0].partition_data[0].records))
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)

    def test_it_leaves_while_c_code_holds_the_gil(self, bench: SinkBench) -> None:
        clock = SystemClock()
        begin_ms = clock.monotonic_ms()
        assert bench.grant()
        bench.send(b"x")

        assert receive_with_the_gil(bench.peer, 4)

        arrived_ms = clock.monotonic_ms()
        until(lambda: clock.monotonic_ms() > arrived_ms)
        assert begin_ms <= bench.dispatched().sent_ms <= arrived_ms

    def test_a_batch_that_was_taken_takes_no_more_records(self, bench: SinkBench) -> None:
        assert bench.grant()
        first = bench.send(b"first")
        bench.receive()

        second = bench.send(b"second")
        _, request = bench.receive()

        batch = RecordBatch(bytes(request.topic_data[0].partition_data[0].records))
        assert [record.value for record in batch.records()] == [b"second"]
        assert batch.base_sequence == 1
        assert repr(first) == repr(second) == "<Delivery to topic-0, pending>"


class TestWhatAPartitionMaySend:
    @pytest.mark.parametrize("attributes", [0, 16])
    def test_batches_have_the_attributes_of_their_route(
        self, bench: SinkBench, attributes: int
    ) -> None:
        bench.send(b"x")
        assert bench.grant(attributes=attributes)

        _, request = bench.receive()

        batch = RecordBatch(bytes(request.topic_data[0].partition_data[0].records))
        batch.check_crc()
        assert batch.is_transactional == (attributes == 16)

    def test_it_sends_no_more_than_it_is_granted(self, bench: SinkBench) -> None:
        assert bench.grant(allowance=1)
        bench.send(b"first")
        bench.receive()
        bench.send(b"second")
        bench.peer.settimeout(0.05)
        with pytest.raises(TimeoutError):
            bench.peer.recv(1)
        bench.peer.settimeout(WAIT_MS / 1000)

        [(_, _, [(queue, batch)])] = bench.taken()
        assert not queue.is_granted
        assert (batch.base_sequence, queue.next_sequence, len(queue)) == (0, 1, 1)

    def test_what_is_sent_again_has_the_number_that_it_had(self, bench: SinkBench) -> None:
        assert bench.grant(sequence=8, allowance=1)
        bench.send(b"first")
        bench.receive()
        bench.send(b"second")
        [(_, _, [(queue, batch)])] = bench.taken()
        queue.put_back(batch, 0)

        assert bench.grant(sequence=9)
        sent: list[Any] = []
        while len(sent) < 2:
            _, request = bench.receive()
            sent += request.topic_data[0].partition_data

        assert [RecordBatch(bytes(each.records)).base_sequence for each in sent] == [8, 9]

    def test_without_answers_there_is_always_room(self) -> None:
        with SinkBench(max_in_flight=1, expects_answers=False) as bench:
            assert bench.grant()
            for number in range(20):
                bench.send(b"%d" % number)
                bench.receive()


class TestWhoSends:
    def test_the_loop_leaves_batches_to_a_thread_that_is_going_to_send(self) -> None:
        with SinkBench(linger_ms=100_000) as bench:
            assert bench.grant()
            bench.send(b"x")
            with bench.accumulator._lock:
                bench.queue(0).close()
                bench.accumulator.sink.send_here()
            self._have_the_loop_look(bench)
            assert bench.taken() == []

            bench.accumulator.sink.notify()

            assert len(bench.taken()) == 1

    def test_and_takes_them_again_when_that_thread_has_sent(self) -> None:
        with SinkBench(linger_ms=100_000) as bench:
            assert bench.grant()
            with bench.accumulator._lock:
                bench.accumulator.sink.send_here()
            bench.accumulator.sink.notify()
            bench.send(b"x")
            with bench.accumulator._lock:
                bench.queue(0).close()
            self._have_the_loop_look(bench)

            assert len(bench.taken()) == 1

    @staticmethod
    def _have_the_loop_look(bench: SinkBench) -> None:
        """Between two periodic requests the loop looks at everything."""
        now_ms = SystemClock().monotonic_ms()
        bench.selector.repeat(
            CONNECTION, 1, PeriodicRequest(bytes(12), now_ms, 1, now_ms + 9_999, 1)
        )
        repeats = 0
        while repeats < 2:
            repeats += sum(isinstance(each, Repeated) for each in bench.selector.poll(WAIT_MS))
        bench.selector.cancel(1)


class TestWhatEndsAGrant:
    def answer(self, bench: SinkBench, **change: Any) -> None:
        correlation_id, _ = bench.receive()
        frame = response(13, correlation_id, **change)
        bench.peer.sendall(len(frame).to_bytes(4, "big") + frame)
        events: list[Any] = []
        while not any(isinstance(event, Received) for event in events):
            events += bench.selector.poll(WAIT_MS)

    def test_requests_in_flight_are_bounded_and_an_answer_makes_room(self) -> None:
        with SinkBench(max_in_flight=1) as bench:
            assert bench.grant()
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
    def test_anything_unusual_ends_it_until_it_is_granted_again(
        self, bench: SinkBench, change: dict[str, Any]
    ) -> None:
        assert bench.grant()
        bench.send(b"first")
        self.answer(bench, **change)

        bench.send(b"second")
        bench.peer.settimeout(0.05)
        with pytest.raises(TimeoutError):
            bench.peer.recv(1)
        bench.peer.settimeout(WAIT_MS / 1000)
        assert len(bench.queue(0)) == 1
        assert bench.grant(sequence=1)

        _, request = bench.receive()
        batch = RecordBatch(bytes(request.topic_data[0].partition_data[0].records))
        assert [record.value for record in batch.records()] == [b"second"]

    def test_the_sender_is_told_of_queues_that_may_not_send(self, bench: SinkBench) -> None:
        assert bench.grant(0)
        bench.send(b"x", 0)
        bench.send(b"y", 1)

        assert bench.accumulator.sink.take_ungranted() == [bench.queue(1)]
        assert bench.queue(0).is_granted
        assert not bench.queue(1).is_granted

    def test_what_was_taken_when_the_connection_ended_is_told_nevertheless(
        self, bench: SinkBench
    ) -> None:
        assert bench.grant()
        bench.send(b"x")
        bench.receive()
        bench.peer.close()

        events: list[Any] = []
        while not any(isinstance(event, Disconnected) for event in events):
            events += bench.selector.poll(WAIT_MS)

        assert [type(event) for event in events] == [Dispatched, Disconnected]
        [(_, version, taken)] = bench.taken()
        assert (version, len(taken)) == (13, 1)
        assert not bench.grant()

    def test_the_sender_is_woken_if_a_route_leads_nowhere(self, bench: SinkBench) -> None:
        assert bench.grant()
        bench.selector.close(CONNECTION)

        bench.send(b"x")

        before_ms = bench.accumulator._clock.monotonic_ms()
        assert bench.selector.poll(WAIT_MS) == []
        assert bench.accumulator._clock.monotonic_ms() < before_ms + WAIT_MS
        assert bench.taken() == []

    def test_closing_a_connection_forgets_its_answers_but_not_what_was_taken(
        self, bench: SinkBench
    ) -> None:
        assert bench.grant()
        bench.send(b"x")
        bench.receive()
        bench.selector.close(CONNECTION)

        assert [type(event) for event in bench.selector.poll(WAIT_MS)] == [Dispatched]


class TestMemory:
    def test_records_on_their_way_out_stay_where_they_are(self, bench: SinkBench) -> None:
        bench.peer.setsockopt(1, 8, 4096)
        batch_bytes = 3_000
        assert bench.grant()
        deliveries = [bench.send(b"x" * batch_bytes) for _ in range(5)]
        taken: list[Any] = []
        while len(taken) < 4:
            bench.selector.poll(20)
            for _, _, batches in bench.taken():
                taken += [batch for _, batch in batches]

        for batch in taken:
            writer = batch.writer
            assert writer.seal()  # reading is allowed
            if is_pinned(writer):
                with pytest.raises(BufferError):
                    writer.clear()
        while any(is_pinned(batch.writer) for batch in taken):
            bench.receive()
            bench.selector.poll(10)
        assert deliveries[0].topic == TOPIC

    def test_a_finished_batch_gives_its_writer_to_the_next(self) -> None:
        with SinkBench(batch_size=2000) as bench:
            assert bench.grant()
            used = bench.accumulator.buffered_bytes
            for _ in range(3):
                bench.send(b"x" * 1500)
                bench.receive()
                bench.dispatched()
                [(_, _, [(_, batch)])] = bench.taken()
                bench.accumulator.finish(batch)
                batch.complete(0, -1)

            assert bench.accumulator.buffered_bytes <= used + 2000
            assert bench.accumulator.incomplete_count == 0

    def test_nothing_is_left_behind(self) -> None:
        with SinkBench() as bench:
            assert bench.grant()
            bench.send(b"taken")
            bench.receive()
            bench.accumulator.revoke(bench.queue(0))
            bench.send(b"waiting")
            [(_, _, [(_, batch)])] = bench.taken()
            watched: list[weakref.ref[Any]] = [
                weakref.ref(each) for each in (bench, bench.accumulator, bench.selector)
            ]
        del bench, batch
        gc.collect()

        assert [each() for each in watched] == [None, None, None]


class TestMisuse:
    def test_one_sink_for_a_selector_and_one_selector_for_a_sink(self, bench: SinkBench) -> None:
        with pytest.raises(ValueError, match="there is a selector already"):
            bench.accumulator.sink.attach(bench.selector, max_in_flight=1, expects_answers=True)
        sink = ProduceSink(print, linger_ms=1, request_size_max=1)
        assert not sink.attach(bench.selector, max_in_flight=1, expects_answers=True)

    def test_sending_needs_a_connection_and_a_head(self, bench: SinkBench) -> None:
        stranger = PartitionQueue(TopicQueues("other"), 0, 100)
        route = Route(CONNECTION, 13, 0, 1, head_of(13))
        accumulator: Any = bench.accumulator

        with pytest.raises(ValueError, match="another sink's"):
            accumulator.grant(stranger, route, 1, NOBODY)
        lost = route._replace(connection_id=99)
        assert not accumulator.grant(bench.queue(0), lost, 1, NOBODY)
        with pytest.raises(ValueError, match="does not begin with 3 bytes"):
            accumulator.grant(bench.queue(0), route._replace(head=b"abc"), 1, NOBODY)
        with pytest.raises(TypeError):
            accumulator.grant(None, route, 1, NOBODY)

    def test_a_partition_that_sends_counts_by_itself(self, bench: SinkBench) -> None:
        assert bench.grant()

        with pytest.raises(ValueError, match="counts by itself"):
            bench.queue(0).next_sequence = 5

    def test_a_queue_takes_batches_only(self) -> None:
        queue: Any = PartitionQueue(TopicQueues("other"), 0, 100)
        batch = ProducerBatch("other", 0, BatchWriter(), 0, 0, Completions(InlineDispatcher()))
        with pytest.raises(AttributeError):
            queue.add(object())
        assert not queue.remove(batch)

        queue.add(batch)
        assert [queue.open, queue.first, len(queue)] == [batch, batch, 1]
        queue.close()
        assert queue.open is None
        assert queue.remove(batch)
        assert len(queue) == 0
