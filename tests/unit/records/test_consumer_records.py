"""What a fetch brought, for applications: records, rows, what is left out; both kernels."""

from __future__ import annotations

import gc
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import CorruptMessage, RecordNotReadable
from millstream.records import (
    Compression,
    ControlType,
    EndTxnMarker,
    RecordBatchBuilder,
    TimestampType,
    end_txn_marker,
)
from millstream.records.fetched import decompress_body, fetched_batches, rewrite_legacy
from tests.unit.records.test_legacy import message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.types import ReadableBuffer

ABORT = EndTxnMarker(ControlType.ABORT, 0)
COMMIT = EndTxnMarker(ControlType.COMMIT, 0)


def batch(*values: bytes, base: int = 0, epoch: int = 3, **settings: Any) -> bytes:
    builder = RecordBatchBuilder()
    for index, value in enumerate(values):
        builder.append(1000 + index, b"k%d" % index, value, (("h", b"1"),) if index == 0 else ())
    return builder.build(base_offset=base, leader_epoch=epoch, **settings)


def fetched(
    kernel: Any,
    data: ReadableBuffer,
    position: int = 0,
    *,
    aborted: Sequence[tuple[int, int]] | None = None,
    check_crc: bool = True,
    **deserializers: Any,
) -> Any:
    return kernel.FetchedBatches(
        data,
        "orders",
        7,
        position,
        decompress=decompress_body,
        read_legacy=rewrite_legacy,
        check_crc=check_crc,
        aborted=aborted,
        **deserializers,
    )


def values(batches: Any, count: int = 100) -> list[bytes]:
    return [record.value for record in batches.take(count)]


def test_a_record_says_where_it_is_from(kernel: Any) -> None:
    (record, _) = fetched(kernel, batch(b"a", b"b", base=40)).take(10)

    assert record == kernel.ConsumerRecord(
        "orders", 7, 40, 1000, b"k0", b"a", (("h", b"1"),), 0, leader_epoch=3
    )
    assert (record.topic, record.partition, record.offset) == ("orders", 7, 40)
    assert (record.timestamp, record.timestamp_type, record.leader_epoch) == (1000, 0, 3)
    assert (record.key, record.value, record.headers) == (b"k0", b"a", (("h", b"1"),))
    assert repr(record) == (
        "ConsumerRecord(topic='orders', partition=7, offset=40, timestamp=1000, key=b'k0', "
        "value=b'a', headers=(('h', b'1'),))"
    )


def test_records_are_values(kernel: Any) -> None:
    (record, other) = fetched(kernel, batch(b"a", b"b")).take(10)

    assert record != other
    assert record != "a record"
    assert len({record, pickle.loads(pickle.dumps(record))}) == 1
    with pytest.raises(AttributeError):
        record.value = b"other"


def test_batches_are_taken_in_pieces_across_their_borders(kernel: Any) -> None:
    batches = fetched(kernel, batch(b"a", b"b", b"c") + batch(b"d", b"e", base=3))

    taken = [values(batches, 2), values(batches, 2), values(batches, 2)]

    assert taken == [[b"a", b"b"], [b"c", b"d"], [b"e"]]
    assert batches.is_empty
    assert (batches.position, batches.leader_epoch) == (5, 3)
    assert values(batches) == []


def test_what_lies_before_the_position_is_left_out(kernel: Any) -> None:
    batches = fetched(kernel, batch(b"a") + batch(b"b", b"c", b"d", base=1), position=2)

    assert batches.position == 2
    assert values(batches) == [b"c", b"d"]


def test_the_end_is_known_before_anything_is_taken(kernel: Any) -> None:
    batches = fetched(kernel, batch(b"a", b"b") + batch(b"c", base=2, epoch=4))

    assert (batches.end_offset, batches.end_epoch) == (3, 4)
    assert not batches.is_empty


def test_a_batch_that_the_fetch_cut_off_is_not_read(kernel: Any) -> None:
    whole = batch(b"a", b"b")

    batches = fetched(kernel, whole + batch(b"c", base=2)[:-1])

    assert batches.end_offset == 2
    assert values(batches) == [b"a", b"b"]
    assert batches.is_empty


@pytest.mark.parametrize("size", [1, 17, 30, 70])
def test_less_than_a_batch_is_seen_as_cut_off(kernel: Any, size: int) -> None:
    batches = fetched(kernel, batch(b"a", b"b")[:size])

    assert batches.is_cut_off
    assert batches.is_empty


def test_nothing_is_nothing(kernel: Any) -> None:
    batches = fetched(kernel, b"", position=9)

    assert not batches.is_cut_off
    assert (batches.is_empty, batches.end_offset, values(batches)) == (True, 9, [])


@pytest.mark.parametrize("codec", list(Compression))
def test_every_codec_is_read(kernel: Any, codec: Compression) -> None:
    data = batch(b"a" * 100, b"b" * 100, compression=codec)

    assert values(fetched(kernel, data)) == [b"a" * 100, b"b" * 100]


def test_the_broker_s_time_is_every_record_s(kernel: Any) -> None:
    data = batch(b"a", b"b", timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=5000)

    taken = fetched(kernel, data).take(5)

    assert [record.timestamp for record in taken] == [5000, 5000]
    assert taken[0].timestamp_type == TimestampType.LOG_APPEND_TIME


def test_an_emptied_batch_moves_the_position_on(kernel: Any) -> None:
    empty = RecordBatchBuilder().build(base_offset=5, last_offset_delta=9)

    batches = fetched(kernel, empty, position=5)

    assert (values(batches), batches.position, batches.is_empty) == ([], 15, True)


# ---- transactions ----


def transaction(value: bytes, base: int, producer: int) -> bytes:
    return batch(value, base=base, is_transactional=True, producer_id=producer, producer_epoch=0)


def marker(end: EndTxnMarker, base: int, producer: int) -> bytes:
    return end_txn_marker(
        end, producer_id=producer, producer_epoch=0, timestamp=1, base_offset=base, leader_epoch=3
    )


def test_markers_are_never_given(kernel: Any) -> None:
    batches = fetched(kernel, transaction(b"a", 0, 1) + marker(COMMIT, 1, 1))

    assert values(batches) == [b"a"]
    assert batches.is_empty
    assert batches.position == 2


def test_an_aborted_transaction_is_left_out_and_the_producer_s_next_is_not(kernel: Any) -> None:
    data = (
        transaction(b"aborted", 0, 1)
        + transaction(b"other", 1, 2)
        + batch(b"plain", base=2)
        + marker(ABORT, 3, 1)
        + transaction(b"again", 4, 1)
        + marker(COMMIT, 5, 1)
    )

    assert values(fetched(kernel, data, aborted=[(1, 0)])) == [b"other", b"plain", b"again"]
    assert values(fetched(kernel, data)) == [b"aborted", b"other", b"plain", b"again"]


def test_two_aborted_transactions_of_one_producer(kernel: Any) -> None:
    data = (
        transaction(b"x", 0, 1)
        + marker(ABORT, 1, 1)
        + transaction(b"good", 2, 1)
        + marker(COMMIT, 3, 1)
        + transaction(b"y", 4, 1)
        + marker(ABORT, 5, 1)
    )

    batches = fetched(kernel, data, aborted=[(1, 4), (1, 0)])

    assert values(batches) == [b"good"]
    assert batches.position == 6


def test_an_abort_that_began_before_the_fetch_hides_from_the_first_batch_on(kernel: Any) -> None:
    data = transaction(b"x", 10, 1) + marker(ABORT, 11, 1)

    assert values(fetched(kernel, data, 10, aborted=[(1, 2)])) == []


def test_a_marker_that_compaction_has_taken_ends_nothing(kernel: Any) -> None:
    emptied = RecordBatchBuilder().build(
        base_offset=1,
        last_offset_delta=0,
        is_control=True,
        is_transactional=True,
        producer_id=1,
        producer_epoch=0,
    )
    data = transaction(b"x", 0, 1) + emptied + transaction(b"y", 2, 1)

    assert values(fetched(kernel, data, aborted=[(1, 0)])) == []


# ---- faults ----


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def test_a_wrong_checksum_is_told_after_what_is_before_it(kernel: Any) -> None:
    good = batch(b"a")
    batches = fetched(kernel, good + flipped(batch(b"b", base=1), -1 + len(good)))

    assert values(batches) == [b"a"]
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="the batch at offset 1 has checksum"):
            batches.take(10)
    assert batches.position == 1


def test_checksums_can_be_left_unchecked(kernel: Any) -> None:
    data = flipped(batch(b"a"), 18)

    assert values(fetched(kernel, data, check_crc=False)) == [b"a"]


def test_records_before_a_broken_one_are_given(kernel: Any) -> None:
    data = bytearray(batch(b"a", b"b"))
    data[-1] = 0x7E  # the header count of the last record
    batches = fetched(kernel, bytes(data), check_crc=False)

    assert values(batches) == [b"a"]
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="record 1, byte"):
            batches.take(1)


def test_bytes_behind_the_last_record_are_told(kernel: Any) -> None:
    data = bytearray(batch(b"a", b"b"))
    data[57:61] = (1).to_bytes(4, "big")
    batches = fetched(kernel, bytes(data), check_crc=False)

    assert values(batches) == [b"a"]
    with pytest.raises(CorruptMessage, match="left over after 1 records"):
        batches.take(1)


def test_a_negative_count_is_told(kernel: Any) -> None:
    data = bytearray(batch(b"a"))
    data[57:61] = b"\xff\xff\xff\xff"

    with pytest.raises(CorruptMessage, match="the record count is -1"):
        fetched(kernel, bytes(data), check_crc=False).take(1)


@pytest.mark.parametrize(
    ("at", "replacement", "problem"),
    [
        (16, b"\x05", "a batch of magic 5, which is not known"),
        (8, b"\x00\x00\x00\x05", "a batch of length 5, which is too short for magic 2"),
    ],
)
def test_what_is_no_batch_is_refused(
    kernel: Any, at: int, replacement: bytes, problem: str
) -> None:
    bad = batch(b"b", base=1)
    bad = bad[:at] + replacement + bad[at + len(replacement) :]

    with pytest.raises(CorruptMessage, match=problem):
        fetched(kernel, bad)

    batches = fetched(kernel, batch(b"a") + bad)
    assert (values(batches), batches.end_offset) == ([b"a"], 1)


# ---- deserializers ----


def test_keys_and_values_are_deserialized_where_they_are_not_null(kernel: Any) -> None:
    builder = RecordBatchBuilder()
    builder.append(0, b"1", b"2")
    builder.append(0, None, None)
    deserializers: dict[str, Any] = {
        "key_deserializer": lambda topic, data, headers: int(data),
        "value_deserializer": lambda topic, data, headers: (topic, float(data), headers),
    }

    (first, second) = fetched(kernel, builder.build(), **deserializers).take(2)

    assert (first.key, first.value) == (1, ("orders", 2.0, ()))
    assert (second.key, second.value) == (None, None)


@pytest.mark.parametrize("part", ["key", "value"])
def test_what_cannot_be_deserialized_stays_in_the_way(kernel: Any, part: str) -> None:
    def refuse_the_second(topic: str, data: bytes, headers: object) -> bytes:
        if data in (b"b", b"k1"):
            raise ValueError("no")
        return data

    deserializer: dict[str, Any] = {f"{part}_deserializer": refuse_the_second}
    batches = fetched(kernel, batch(b"a", b"b", b"c", base=5), 5, **deserializer)

    assert values(batches) == [b"a"]
    for _ in range(2):
        with pytest.raises(
            RecordNotReadable, match=rf"orders-7: the {part} of .* offset 6 .*seek to 7"
        ) as caught:
            batches.take(10)
        bad = caught.value
        assert (bad.topic, bad.partition, bad.offset) == ("orders", 7, 6)


def test_an_interrupt_loses_no_record(kernel: Any) -> None:
    interrupts = [KeyboardInterrupt]

    def interrupted(topic: str, data: bytes, headers: object) -> bytes:
        if data == b"b" and interrupts:
            raise interrupts.pop()
        return data

    batches = fetched(kernel, batch(b"a", b"b"), value_deserializer=interrupted)
    with pytest.raises(KeyboardInterrupt):
        batches.take(10)

    assert values(batches) == [b"a", b"b"]


# ---- old formats ----


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_given_like_others(kernel: Any, magic: int) -> None:
    data = message(magic, offset=3, key=b"k", value=b"old") + batch(b"new", base=4)

    batches = fetched(kernel, data, 3)
    taken = batches.take(10)

    assert [(record.offset, record.value) for record in taken] == [(3, b"old"), (4, b"new")]
    assert [record.leader_epoch for record in taken] == [-1, 3]
    assert taken[0].timestamp == (1000 if magic else -1)
    assert batches.end_offset == 5


def test_an_old_message_stamped_by_its_broker(kernel: Any) -> None:
    (record,) = fetched(kernel, message(1, value=b"x", attributes=8, timestamp=77)).take(1)

    assert (record.timestamp, record.timestamp_type) == (77, 1)


def test_a_broken_old_message_is_refused(kernel: Any) -> None:
    data = flipped(message(1, value=b"x"), 33)

    with pytest.raises(CorruptMessage):
        fetched(kernel, data).take(1)


def test_the_factory_knows_codecs_and_old_formats() -> None:
    data = batch(b"a", compression=Compression.ZSTD) + message(1, offset=1, value=b"old")

    assert values(fetched_batches(data, "t", 0, 0)) == [b"a", b"old"]


def test_a_batch_can_be_passed_over(kernel: Any) -> None:
    first, second = batch(b"a"), batch(b"b", base=1)
    found = fetched(kernel, first + second)

    assert found.next_batch() == first
    found.skip_batch()

    assert found.position == 1
    assert [each.value for each in found.take(9)] == [b"b"]
    assert found.next_batch() == b""
    found.skip_batch()
    assert found.position == 2


def test_the_collector_may_find_it_in_a_cycle(kernel: Any) -> None:
    data = bytearray(batch(b"a"))
    cycle: list[Any] = [fetched(kernel, memoryview(b"xx" + data)[2:])]
    cycle.append(cycle)
    kept = [fetched(kernel, memoryview(data))]
    kept.append(kept)

    del cycle, kept
    gc.collect()

    data.append(0)  # Nobody holds the bytes any more.
