"""Answers that nobody waits for: told of together with their requests, and not at once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.producer import kernel

if not kernel.COMPILED or sys.platform != "linux":
    pytest.skip("the compiled accumulator is not built (make build)", allow_module_level=True)

from millstream.network.client_selector import Answered, Dispatched, Received
from millstream.records.arrow import ArrowRecordsReader
from tests.unit.accel.lane_bench import CONNECTION, TOPIC, WAIT_MS, LaneBench, response

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = 1 << 29


@pytest.fixture
def bench() -> Iterator[LaneBench]:
    """One request at a time: the second leaves when the answer to the first was seen."""
    with LaneBench(max_in_flight=1, linger_ms=60_000) as made:
        assert made.open()
        yield made


def send_table(bench: LaneBench) -> Any:
    """A full batch of a table, as `append_by_key` closes it."""
    accumulator = bench.accumulator
    bench.send(b"x")
    batch = bench.queue(0).open
    with accumulator._lock:
        accumulator._close_table_batch(bench.queue(0), batch)
    return batch


def answer(bench: LaneBench, correlation_id: int, **change: Any) -> None:
    frame = response(13, correlation_id, **change)
    bench.peer.sendall(len(frame).to_bytes(4, "big") + frame)


def answer_first_of_two(bench: LaneBench, **change: Any) -> list[Any]:
    batches = [send_table(bench), send_table(bench)]
    correlation_id, _ = bench.receive()
    answer(bench, correlation_id, **change)
    return batches


def test_a_request_and_its_answer_are_one_event(bench: LaneBench) -> None:
    answer_first_of_two(bench)
    bench.receive()  # Which was sent because the first was answered.

    told, sent = bench.selector.poll(WAIT_MS)

    assert isinstance(told, Answered)
    assert (told.connection_id, told.correlation_id) == (CONNECTION, FIRST)
    assert bytes(told.frame) == response(13, FIRST)
    assert isinstance(sent, Dispatched)
    assert sent.correlation_id == FIRST + 1


def test_an_answer_comes_alone_if_its_request_was_told_of_before(bench: LaneBench) -> None:
    send_table(bench)
    bench.receive()
    assert bench.dispatched().correlation_id == FIRST
    answer(bench, FIRST)

    [event] = bench.selector.poll(WAIT_MS)

    assert isinstance(event, Received)


def test_an_answer_that_is_not_the_usual_comes_after_its_request(bench: LaneBench) -> None:
    answer_first_of_two(bench, error_code=3)

    events: list[Any] = []
    while not any(isinstance(event, Received) for event in events):
        events += bench.selector.poll(WAIT_MS)

    assert [type(event) for event in events] == [Dispatched, Received]


def test_closing_a_connection_does_not_forget_what_was_answered(bench: LaneBench) -> None:
    answer_first_of_two(bench)
    bench.receive()
    bench.selector.close(CONNECTION)

    assert [type(event) for event in bench.selector.poll(WAIT_MS)] == [Answered, Dispatched]


def test_who_waits_is_told_wherever_the_batch_is(bench: LaneBench) -> None:
    """In its queue, sent and not noted, sent and noted, answered."""
    first, second = answer_first_of_two(bench)
    bench.send(b"lingers")
    waiting = bench.queue(0).open
    bench.receive()

    for batch in (waiting, second, first):
        assert batch.listen(lambda: None)
    assert [cid for cid, _, _ in bench.taken()] == [FIRST, FIRST + 1]
    for batch in (second, first):
        assert batch.listen(lambda: None)

    assert [type(event) for event in bench.selector.poll(WAIT_MS)] == [Answered, Dispatched]


def test_a_flush_is_sent_by_who_asks_for_it(bench: LaneBench) -> None:
    bench.send(b"lingers")
    lingering = bench.queue(0).open

    assert bench.accumulator.begin_flush(sends_here=True) == [lingering]
    assert [cid for cid, _, _ in bench.taken()] == [FIRST]
    bench.accumulator.end_flush()


class TestScouts:
    """The first row of each new partition, ahead of a table."""

    def _table(self, count: int) -> Any:
        pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        keys = pa.array([b"%d" % number for number in range(count)], pa.binary())
        (chunk,) = ArrowRecordsReader(pa.table({"key": keys, "value": keys}))
        return chunk

    def _first_counts(self, bench: LaneBench, count: int) -> list[int]:
        chunk, row = self._table(count), 0
        while row < count:
            appended = bench.accumulator.append_by_key(TOPIC, chunk, row, count)
            assert appended is not None
            row = appended[0]
        return [bench.queue(index).batches[0].writer.record_count for index in range(4)]

    def test_a_large_table_sends_one_row_of_each_partition_ahead(self) -> None:
        with LaneBench(linger_ms=60_000, batch_size=1 << 18) as bench:
            assert self._first_counts(bench, 8192) == [1, 1, 1, 1]

            queues, _ = bench.accumulator.collect(0)
            assert sorted(queue.index for queue in queues) == [0, 1, 2, 3]

    def test_a_small_one_does_not(self) -> None:
        with LaneBench(linger_ms=60_000) as bench:
            assert min(self._first_counts(bench, 1000)) > 1

    def test_nor_one_to_partitions_that_are_in_use(self) -> None:
        with LaneBench(linger_ms=60_000, batch_size=1 << 18) as bench:
            for index in range(4):
                bench.queue(index).lane = object()
            assert min(self._first_counts(bench, 8192)) > 1
