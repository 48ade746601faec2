"""The buffer between the I/O thread and the application: runs, turns, bounds, waiting."""

from __future__ import annotations

import pickle
import threading
from typing import TYPE_CHECKING

import pytest

from millstream.client.consumer.completed_fetches import Failed, Placed
from millstream.client.consumer.fetch_buffer import FetchBuffer
from millstream.client.consumer.membership.events import Assigned
from millstream.client.consumer.starting_point import COMMITTED, AtOffset
from millstream.errors import CorruptBatch, SerializationFailed, TopicAuthorizationFailed
from millstream.records import RecordBatchBuilder
from millstream.records.fetched import fetched_batches
from millstream.records.kernel import ArrowRecordsBuilder, FetchedBatches
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

P0, P1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)


def batches(partition: TopicPartition, *values: bytes, base: int = 0) -> FetchedBatches:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(0, None, value)
    data = builder.build(base_offset=base, leader_epoch=4)
    return fetched_batches(data, partition.topic, partition.partition, base)


@pytest.fixture
def rooms() -> list[bool]:
    return []


@pytest.fixture
def buffer(rooms: list[bool]) -> FetchBuffer:
    buffer = FetchBuffer(100, lambda: rooms.append(True))
    buffer.assign([P0, P1], AtOffset(0))
    return buffer


def run_of(buffer: FetchBuffer, partition: TopicPartition) -> int:
    return buffer.starts([partition])[0][1]


def put(buffer: FetchBuffer, partition: TopicPartition, *values: bytes, base: int = 0) -> int:
    entry = batches(partition, *values, base=base)
    assert buffer.put(partition, run_of(buffer, partition), entry)
    return entry.size


def values(buffer: FetchBuffer, count: int = 100) -> list[bytes | None]:
    return [each.value for each in buffer.take(count)]


def test_partitions_take_turns(buffer: FetchBuffer) -> None:
    put(buffer, P0, b"a", b"b")
    put(buffer, P1, b"c")
    put(buffer, P0, b"d", base=2)

    assert values(buffer) == [b"a", b"b", b"c", b"d"]
    assert buffer.byte_count == 0


def test_a_part_of_a_batch_keeps_its_turn(buffer: FetchBuffer) -> None:
    put(buffer, P0, b"a", b"b")
    put(buffer, P1, b"c")

    assert [values(buffer, 1), values(buffer, 2)] == [[b"a"], [b"b", b"c"]]


def test_one_partition_at_a_time_on_request(buffer: FetchBuffer) -> None:
    put(buffer, P0, b"a")
    put(buffer, P1, b"b")

    assert [each.value for each in buffer.take(10, of_one=True)] == [b"a"]


def test_what_was_fetched_for_an_older_run_is_refused(buffer: FetchBuffer) -> None:
    run = run_of(buffer, P0)
    put(buffer, P0, b"a")

    assert buffer.seek(P0, AtOffset(7)) != run

    assert not buffer.put(P0, run, batches(P0, b"old"))
    assert values(buffer) == []
    assert buffer.position(P0) == 7
    assert buffer.seek(OTHER, AtOffset(0)) is None
    assert not buffer.put(OTHER, 1, batches(OTHER, b"x"))


def test_what_is_read_no_longer_is_dropped(buffer: FetchBuffer) -> None:
    put(buffer, P0, b"a")
    buffer.unassign([P0, OTHER])

    assert values(buffer) == []
    assert (buffer.byte_count, buffer.position(P0)) == (0, None)
    assert buffer.assignment() == {P1}


def test_positions_are_as_given_out_and_as_processed(buffer: FetchBuffer) -> None:
    put(buffer, P0, b"a", b"b")
    values(buffer, 1)

    assert buffer.positions(processed=False) == {P0: (1, 4), P1: (0, -1)}
    assert buffer.positions(processed=True) == {P0: (0, -1), P1: (0, -1)}
    buffer.settle()
    assert buffer.positions(processed=True) == {P0: (1, 4), P1: (0, -1)}


def test_a_place_is_taken_when_what_is_before_it_was_read(buffer: FetchBuffer) -> None:
    put(buffer, P0, b"a")
    buffer.put(P0, run_of(buffer, P0), Placed(50, 2))
    assert buffer.position(P0) == 0

    assert values(buffer) == [b"a"]

    assert buffer.position(P0) == 50
    assert buffer.positions(processed=True)[P0] == (50, 2)


def test_a_position_that_is_not_known_yet(buffer: FetchBuffer) -> None:
    buffer.assign([OTHER], COMMITTED)
    assert buffer.position(OTHER) is None
    assert not buffer.is_placed(OTHER)
    assert OTHER not in buffer.positions(processed=False)

    buffer.put(OTHER, run_of(buffer, OTHER), Failed(TopicAuthorizationFailed("no")))

    assert buffer.is_placed(OTHER)
    with pytest.raises(TopicAuthorizationFailed):
        buffer.position(OTHER)


def test_errors_come_in_order_and_once(buffer: FetchBuffer) -> None:
    put(buffer, P0, b"a")
    buffer.put(P0, run_of(buffer, P0), Failed(TopicAuthorizationFailed("no")))
    put(buffer, P1, b"b")

    assert values(buffer) == [b"a", b"b"]
    with pytest.raises(TopicAuthorizationFailed):
        buffer.take(10)
    assert values(buffer) == []


def test_records_that_cannot_be_read_stay_in_the_way(buffer: FetchBuffer) -> None:
    def refuse(topic: str, data: bytes, headers: object) -> bytes:
        raise ValueError("no")

    builder = RecordBatchBuilder()
    builder.append(0, None, b"x")
    entry = fetched_batches(builder.build(), "t", 1, 0, value_deserializer=refuse)
    put(buffer, P0, b"a")
    buffer.put(P1, run_of(buffer, P1), entry)

    assert values(buffer) == [b"a"]
    for _ in range(2):
        with pytest.raises(SerializationFailed):
            buffer.take(10)


def test_paused_partitions_are_passed_over_and_do_not_count(buffer: FetchBuffer) -> None:
    size = put(buffer, P0, b"a")
    assert buffer.set_paused(P0, True)
    put(buffer, P0, b"b", base=1)
    put(buffer, P1, b"c")

    assert buffer.byte_count == size
    assert values(buffer) == [b"c"]
    assert buffer.paused() == {P0}
    assert buffer.set_paused(P0, False)
    assert buffer.byte_count == 2 * size
    assert values(buffer) == [b"a", b"b"]
    assert not buffer.set_paused(OTHER, True)


def test_whoever_fetches_is_told_when_the_buffer_is_half_empty(
    buffer: FetchBuffer, rooms: list[bool]
) -> None:
    put(buffer, P0, b"a" * 20)
    put(buffer, P0, b"b" * 20, base=1)
    assert buffer.is_full()

    values(buffer, 1)
    assert rooms == []
    values(buffer, 1)
    assert rooms == [True]
    assert not buffer.is_full()


@pytest.mark.parametrize("way", ["seek", "unassign", "pause"])
def test_dropping_or_pausing_makes_room_too(
    buffer: FetchBuffer, rooms: list[bool], way: str
) -> None:
    put(buffer, P0, b"a" * 100)
    assert buffer.is_full()

    if way == "seek":
        buffer.seek(P0, AtOffset(0))
    elif way == "unassign":
        buffer.unassign([P0])
    else:
        buffer.set_paused(P0, True)

    assert rooms == [True]


def test_rows_are_of_one_topic(buffer: FetchBuffer) -> None:
    buffer.assign([OTHER], AtOffset(0))
    put(buffer, P0, b"a")
    put(buffer, P1, b"b")
    put(buffer, OTHER, b"c")
    builder = ArrowRecordsBuilder()

    assert buffer.take_arrow(builder, 1000) in (P0, P1)
    assert len(builder.finish()) == 2
    assert buffer.take_arrow(builder, 1000) == OTHER
    assert len(builder.finish()) == 1
    assert buffer.take_arrow(builder, 1000) is None


def test_rows_up_to_an_end_leave_the_rest_alone(buffer: FetchBuffer) -> None:
    put(buffer, P0, b"a", b"b", b"c")
    builder = ArrowRecordsBuilder()

    assert buffer.take_arrow(builder, 1000, {P0: 2}) == P0
    assert builder.row_count == 2
    assert (buffer.position(P0), buffer.byte_count) == (2, 0)
    assert buffer.take_arrow(builder, 1000, {P0: 2}) is None


def test_rows_before_an_error_come_first(buffer: FetchBuffer) -> None:
    put(buffer, P0, b"a")
    good = batches(P1, b"b")
    broken = bytearray(RecordBatchBuilder().build(last_offset_delta=0))
    broken[57:61] = b"\0\0\0\x05"
    entry = fetched_batches(bytes(broken), "t", 1, 0, check_crc=False)
    buffer.put(P1, run_of(buffer, P1), entry)
    builder = ArrowRecordsBuilder()

    assert buffer.take_arrow(builder, 1000) == P0
    with pytest.raises(Exception, match="cut off"):
        buffer.take_arrow(builder, 1000)
    assert good.size > 0


def test_rewinding_drops_what_the_application_has_not_seen(buffer: FetchBuffer) -> None:
    put(buffer, P0, b"a", b"b")
    values(buffer, 1)

    assert buffer.rewind(P0, run_of(buffer, P0)) == (1, 4)
    assert values(buffer) == []
    assert buffer.rewind(P0, 999) is None
    assert buffer.rewind(OTHER, 1) is None


def test_ends_of_logs_are_remembered_for_the_run(buffer: FetchBuffer) -> None:
    buffer.learn_end(P0, run_of(buffer, P0), 40)
    buffer.learn_end(P1, 999, 40)

    assert (buffer.end_offset(P0), buffer.end_offset(P1), buffer.end_offset(OTHER)) == (
        40,
        None,
        None,
    )


# ---- waiting ----


def test_a_wait_ends_with_what_another_thread_puts(buffer: FetchBuffer) -> None:
    run = run_of(buffer, P0)
    putting = threading.Thread(target=lambda: buffer.put(P0, run, batches(P0, b"a")))
    putting.start()

    while not buffer.has_something():
        buffer.wait(buffer.has_something, 10.0)
    putting.join()

    assert values(buffer) == [b"a"]


def test_waits_do_not_begin_when_there_is_something(buffer: FetchBuffer) -> None:
    buffer.put_event(Assigned(frozenset()))
    buffer.wait(buffer.has_event, None)
    assert buffer.next_event() == Assigned(frozenset())
    assert buffer.next_event() is None

    buffer.notify()
    buffer.wait(buffer.has_event, None)
    buffer.wake()
    buffer.wait(buffer.has_news, None)
    assert buffer.take_wake()
    assert not buffer.take_wake()

    error = TopicAuthorizationFailed("no")
    buffer.put_error(error)
    buffer.wait(buffer.has_something, None)
    assert buffer.next_error() is error
    assert buffer.next_error() is None


def test_a_callback_is_called_once_and_not_when_it_is_too_late(buffer: FetchBuffer) -> None:
    called: list[int] = []
    assert buffer.call_on_change(buffer.has_something, lambda: called.append(1))
    put(buffer, P0, b"a")
    put(buffer, P1, b"b")
    assert called == [1]

    assert not buffer.call_on_change(buffer.has_something, lambda: called.append(2))
    assert values(buffer) == [b"a", b"b"]
    assert buffer.call_on_change(buffer.has_something, lambda: called.append(3))
    assert buffer.call_on_change(buffer.has_something, None)
    put(buffer, P0, b"c", base=1)
    assert called == [1]


class TestBatchesThatCannotBeRead:
    @staticmethod
    def put_corrupt(buffer: FetchBuffer) -> None:
        """Of partition 0: offset 0, a corrupt batch with 1 and 2, and 3."""
        builders = [RecordBatchBuilder() for _ in range(3)]
        for builder, values in zip(builders, ([b"a"], [b"b", b"c"], [b"d"]), strict=True):
            for value in values:
                builder.append(0, None, value)
        parts = [
            bytearray(each.build(base_offset=base, leader_epoch=4))
            for each, base in zip(builders, (0, 1, 3), strict=True)
        ]
        parts[1][-1] ^= 1
        entry = fetched_batches(b"".join(parts), P0.topic, P0.partition, 0)
        assert buffer.put(P0, run_of(buffer, P0), entry)

    @staticmethod
    def buffer(on_corrupt: Callable[[CorruptBatch], object] | None = None) -> FetchBuffer:
        buffer = FetchBuffer(1000, lambda: None, on_corrupt)
        buffer.assign([P0, P1], AtOffset(0))
        return buffer

    def test_the_error_says_where_it_is_and_how_to_go_on(self) -> None:
        buffer = self.buffer()
        self.put_corrupt(buffer)

        assert values(buffer) == [b"a"]
        with pytest.raises(CorruptBatch, match=r"t-0: .* offset 1 cannot .* seek to 3") as raised:
            buffer.take(10)

        assert (raised.value.topic, raised.value.partition) == ("t", 0)
        assert (raised.value.offset, raised.value.next_offset) == (1, 3)
        assert len(raised.value.data) > 61
        copy = pickle.loads(pickle.dumps(raised.value))
        assert (str(copy), copy.data) == (str(raised.value), raised.value.data)

    def test_it_is_told_once_and_keeps_no_other_partition_waiting(self) -> None:
        buffer = self.buffer()
        self.put_corrupt(buffer)
        buffer.take(10)
        assert buffer.known_corrupt() is None
        with pytest.raises(CorruptBatch):
            buffer.take(10)

        assert not buffer.has_something()
        put(buffer, P1, b"other")
        put(buffer, P0, b"more", base=4)

        assert values(buffer) == [b"other"]
        assert values(buffer) == []
        known = buffer.known_corrupt()
        assert known is not None
        assert known.offset == 1

    @pytest.mark.parametrize("leave", ["seek", "unassign", "pause"])
    def test_it_is_forgotten_when_the_application_moves_on(self, leave: str) -> None:
        buffer = self.buffer()
        self.put_corrupt(buffer)
        buffer.take(10)
        with pytest.raises(CorruptBatch):
            buffer.take(10)

        if leave == "seek":
            buffer.seek(P0, AtOffset(3))
        elif leave == "unassign":
            buffer.unassign([P0])
        else:
            buffer.set_paused(P0, True)

        assert buffer.known_corrupt() is None

    def test_a_handler_sees_it_and_then_it_is_skipped(self) -> None:
        seen: list[CorruptBatch] = []
        buffer = self.buffer(seen.append)
        self.put_corrupt(buffer)

        assert values(buffer) + values(buffer) == [b"a", b"d"]
        assert [(each.offset, each.next_offset) for each in seen] == [(1, 3)]
        assert buffer.position(P0) == 4

    def test_columns_skip_it_too(self) -> None:
        buffer = self.buffer(lambda _: None)
        self.put_corrupt(buffer)
        builder = ArrowRecordsBuilder()

        while buffer.take_arrow(builder, 1000) is not None:
            pass

        assert builder.row_count == 2

    def test_a_handler_that_fails_skips_nothing(self) -> None:
        def fail(_: CorruptBatch) -> None:
            raise OSError("no room for dead letters")

        buffer = self.buffer(fail)
        self.put_corrupt(buffer)
        buffer.take(10)

        for _ in range(2):
            with pytest.raises(OSError, match="dead letters"):
                buffer.take(10)
        assert buffer.position(P0) == 1
