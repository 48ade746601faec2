"""The compiled way of a record: the same batches as the plain way makes, and no crash on misuse."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.producer import delivery, kernel

if not kernel.COMPILED or sys.platform != "linux":
    pytest.skip("the compiled accumulator is not built (make build)", allow_module_level=True)

from millstream._accel.client.delivery import Delivery, bind_results
from millstream._accel.client.record_accumulator import RecordAppender
from millstream.client.producer.completions import Completions
from millstream.client.producer.partition_queues import MemoryNotFree, TopicNotKnown
from millstream.client.producer.record_accumulator import RecordAccumulator
from millstream.clock import SystemClock
from millstream.errors import ClientClosed, InvalidArgument, MessageTooLarge
from millstream.records.batch import RecordBatch
from tests.unit.accel.sink_bench import TOPIC, InlineDispatcher, compiled_accumulator
from tests.unit.client.producer.fakes import take_all

if TYPE_CHECKING:
    from collections.abc import Iterator

LATER = 1 << 60


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def plain_accumulator(**settings: Any) -> RecordAccumulator:
    made = RecordAccumulator(
        clock=SystemClock(),
        random=Random(1),
        completions=Completions(InlineDispatcher()),
        wake=lambda: None,
        **settings,
    )
    made.set_topic(TOPIC, 4, range(4))
    return made


def drain(accumulator: RecordAccumulator) -> dict[int, list[bytes]]:
    """The bytes of all batches by partition, done and forgotten."""
    found: dict[int, list[bytes]] = {}
    for batch in take_all(accumulator, LATER):
        writer = batch.seal(0, None, is_transactional=False)  # type: ignore[arg-type]  # none
        assert batch.records is not None
        assert RecordBatch(batch.records).record_count == batch.record_count
        found.setdefault(batch.partition, []).append(batch.records)
        if writer is not None:
            accumulator.recycle(batch, writer)
        accumulator.finish(batch)
        batch.complete(100, -1)
    return found


fields = st.one_of(
    st.none(), st.binary(max_size=300), st.text(max_size=40), st.binary(max_size=9).map(bytearray)
)
records = st.tuples(
    st.integers(-1, 3),
    fields,
    fields,
    st.one_of(
        st.sampled_from([(), (("\udc80", b"x"),), [["h", b"x"]], (("h", b"x"),) * 20]),
        st.lists(
            st.tuples(st.text(max_size=9), st.one_of(st.none(), st.binary(max_size=30))),
            max_size=4,
        ).map(tuple),
    ),
    st.integers(0, 1 << 45),
)


@given(st.lists(records, max_size=120), st.integers(100, 3000), st.booleans())
def test_both_ways_lead_to_the_same_batches(
    given_records: list[Any], batch_size: int, ignores_keys: bool
) -> None:
    settings = {
        "batch_size": batch_size,
        "linger_ms": 5,
        "buffer_memory": 10 << 20,
        "record_size_max": 10_000,
        "ignores_keys": ignores_keys,
    }
    plain = plain_accumulator(**settings)
    native = compiled_accumulator(random=Random(1), **settings)

    handles = []
    for partition, key, value, headers, timestamp in given_records:
        record = (TOPIC, partition, key, value, headers, timestamp)
        handles.append((plain.append(*record), native.append(*record)))
        assert plain.buffered_bytes == native.buffered_bytes

    assert drain(plain) == drain(native)
    assert [one.result() for one, _ in handles] == [other.result() for _, other in handles]
    assert native.incomplete_count == 0


def test_a_record_without_a_time_gets_the_time_of_now() -> None:
    accumulator = compiled_accumulator()
    before = SystemClock().wall_ms()
    for _ in range(3):
        accumulator.append(TOPIC, 0, None, b"x")
    after = SystemClock().wall_ms()

    [batch] = drain(accumulator)[0]
    assert all(before <= record.timestamp <= after for record in RecordBatch(batch).records())


def test_handles_know_their_place() -> None:
    accumulator = compiled_accumulator()
    handles = [accumulator.append(TOPIC, 2, None, b"%d" % number) for number in range(30)]
    assert not any(handle.done() for handle in handles)

    drain(accumulator)

    assert [handle.result().offset for handle in handles] == list(range(100, 130))
    assert {handle.result().partition for handle in handles} == {2}
    assert handles[3].exception() is None
    assert handles[3].outcome() == handles[3].result()


class Asked(kernel.RecordSender):
    """A producer that only notes what it is asked to send itself."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def _send(self, *given: Any) -> Any:
        self.asked.append(given)
        return None


def test_who_asked_to_be_told_is_told_and_has_seen_a_loss() -> None:
    accumulator = compiled_accumulator()
    told: list[Any] = []
    unseen = accumulator.append(TOPIC, 0, None, b"x")
    producer = Asked()
    producer.send_through(accumulator)
    handles = [producer.send(TOPIC, b"y", partition=0, on_delivery=told.append) for _ in range(3)]
    [batch] = take_all(accumulator, LATER)

    accumulator.finish(batch)
    batch.fail(ClientClosed("lost"))

    assert told == handles
    assert batch.unseen_failures() == 1
    assert isinstance(unseen.exception(), ClientClosed)
    assert batch.told == []


@pytest.mark.parametrize("tell_all", [kernel.tell_all, delivery.tell_all])
def test_an_error_of_one_does_not_keep_the_others_from_being_told(tell_all: Any) -> None:
    heard: list[Any] = []
    failed: list[Any] = []
    calls: list[Any] = [heard.append, 1, int, "no number", heard.append, 2]

    tell_all(calls, failed.append)

    assert (heard, failed, calls) == ([1, 2], [int], [])


def test_what_is_not_ordinary_is_for_the_producer_itself() -> None:
    producer = Asked()
    producer.send(TOPIC, b"before")  # It knows of no accumulator yet.
    accumulator = compiled_accumulator()
    accumulator.append(TOPIC, 0, None, b"x")
    producer.send_through(accumulator)

    assert producer.send(TOPIC, b"x", partition=0) is not None
    for arguments in ({"headers": {5: b"x"}}, {"partition": -1}, {"partition": 1 << 40}):
        assert producer.send(TOPIC, b"x", **arguments) is None

    assert producer.asked == [
        (TOPIC, b"before", None, None, None, None, None),
        (TOPIC, b"x", None, None, None, {5: b"x"}, None),
        (TOPIC, b"x", None, -1, None, None, None),
        (TOPIC, b"x", None, 1 << 40, None, None, None),
    ]


@pytest.mark.parametrize("count", [1, 5])
def test_wrong_arguments_are_errors_whether_or_not_a_batch_is_open(count: int) -> None:
    accumulator = compiled_accumulator()
    for _ in range(count):
        accumulator.append(TOPIC, 0, None, b"x")
    wrong: list[tuple[Any, ...]] = [
        (TOPIC, 0, None, 5),
        (TOPIC, 0, object(), b""),
        (TOPIC, 0, None, "\ud800"),
        (TOPIC, 0, None, b"", (("h", 5),)),
        (TOPIC, 0, None, b"", (), "now"),
        (TOPIC, 0, None, b"", (), 1 << 70),
        (TOPIC, "0", None, b""),
    ]
    for arguments in wrong:
        with pytest.raises((TypeError, ValueError, OverflowError, InvalidArgument)):
            accumulator.append(*arguments)
    with pytest.raises(MessageTooLarge):
        accumulator.append(TOPIC, 0, None, b"x" * 100_001)
    for unknown in ("other", ""):
        with pytest.raises(TopicNotKnown):
            accumulator.append(unknown, 0, None, b"x")
    with pytest.raises(TopicNotKnown):
        accumulator.append(TOPIC, 4, None, b"x")

    [batch] = drain(accumulator)[0]
    assert RecordBatch(batch).record_count == count


def test_a_closed_accumulator_takes_nothing() -> None:
    accumulator = compiled_accumulator()
    accumulator.append(TOPIC, 0, None, b"x")
    accumulator.close(ClientClosed("closed"))

    for _ in range(2):
        with pytest.raises(ClientClosed):
            accumulator.append(TOPIC, 0, None, b"x")


def append_many(accumulator: RecordAccumulator, count: int) -> None:
    for _ in range(count):
        accumulator.append(TOPIC, 0, None, b"x" * 100)


def test_memory_is_bounded_and_given_back() -> None:
    accumulator = compiled_accumulator(batch_size=1000, buffer_memory=3000)
    with pytest.raises(MemoryNotFree):
        append_many(accumulator, 100)
    assert accumulator.buffered_bytes <= 3000

    drain(accumulator)

    accumulator.append(TOPIC, 0, None, b"x" * 100)


def test_what_was_never_bound_or_made_is_harmless() -> None:
    with pytest.raises(TypeError):
        RecordAppender().append(TOPIC, 0, None, b"x")
    with pytest.raises(TypeError):
        Asked().send_through(None)
    with pytest.raises(TypeError):
        Delivery(None, 0, 0)
    with pytest.raises(TypeError, match="not a tuple of topic, partition"):
        bind_results(lambda batch: iter(()), dict)  # type: ignore[arg-type, return-value]  # wrong


@pytest.mark.usefixtures("frequent_switches")
def test_threads_share_it_and_nothing_is_lost() -> None:
    """Appending, taking, finishing at once: every record is in one batch, in its thread's order."""
    accumulator = compiled_accumulator(batch_size=3000, buffer_memory=200_000)
    threads, count = 4, 2000
    start = threading.Barrier(threads + 1)
    done = threading.Event()
    found: dict[int, list[bytes]] = {}

    def produce(number: int) -> None:
        start.wait()
        for index in range(count):
            while True:
                try:
                    accumulator.append(TOPIC, number, None, b"%d" % index)
                except MemoryNotFree:
                    continue
                break

    def take_all() -> None:
        start.wait()
        while True:
            was_done = done.is_set()
            for partition, batches in drain(accumulator).items():
                found.setdefault(partition, []).extend(batches)
            if was_done:
                return

    with ThreadPoolExecutor(threads + 1) as pool:
        taking = pool.submit(take_all)
        producing = [pool.submit(produce, number) for number in range(threads)]
        for each in producing:
            each.result()
        done.set()
        taking.result()

    for partition in range(threads):
        values = [r.value for b in found[partition] for r in RecordBatch(b).records()]
        assert values == [b"%d" % index for index in range(count)]
    assert accumulator.incomplete_count == 0
