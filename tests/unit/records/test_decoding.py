"""Reading the records section: what is accepted, and the words for what is not."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import CorruptMessage
from millstream.records.plain.varint import encode_varint
from millstream.types import INT64_MAX, INT64_MIN

BATCH_A = bytes.fromhex(
    "000000000000000000000049000000000297f4442a0000000000010000018bcfe568000000018bcfe56805"
    "ffffffffffffffffffffffffffff000000021c000000046b31047631020268027810000a020104763200"
)
BODY_A = BATCH_A[61:]
MINIMAL = b"\x0c\0\0\0\x01\x01\0"  # null key, null value


def fields(record: Any) -> tuple[Any, ...]:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def encoded(rest: bytes) -> bytes:
    """A record of these bytes after its length."""
    return encode_varint(len(rest)) + rest


def test_the_golden_batch_is_read(kernel: Any) -> None:
    records = kernel.decode_records(BODY_A, 2, 10, 1_700_000_000_000)

    assert [fields(record) for record in records] == [
        (10, 1_700_000_000_000, b"k1", b"v1", (("h", b"x"),)),
        (11, 1_700_000_000_005, None, b"v2", ()),
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(kernel: Any, kind: Any) -> None:
    records = kernel.decode_records(kind(BODY_A), 2, 0, 0)

    assert [record.value for record in records] == [b"v1", b"v2"]
    assert all(type(record.value) is bytes for record in records)


def test_a_stamped_batch_gives_every_record_the_append_time(kernel: Any) -> None:
    records = kernel.decode_records(BODY_A, 2, 0, INT64_MAX, append_timestamp=99)

    assert [record.timestamp for record in records] == [99, 99]


@pytest.mark.parametrize(
    ("from_offset", "to_offset", "offsets"),
    [(0, 100, [10, 11]), (10, 11, [10]), (11, 12, [11]), (12, 100, []), (11, 11, []), (0, 10, [])],
)
def test_only_the_offsets_asked_for_are_given(
    kernel: Any, from_offset: int, to_offset: int, offsets: list[int]
) -> None:
    records = kernel.decode_records(BODY_A, 2, 10, 0, None, from_offset, to_offset)

    assert [record.offset for record in records] == offsets


def test_no_records_are_no_records(kernel: Any) -> None:
    assert kernel.decode_records(b"", 0, 0, 0) == []
    assert kernel.scan_records(b"", 0) == []


def test_attributes_of_a_record_are_ignored(kernel: Any) -> None:
    assert kernel.decode_records(b"\x0c\xff\0\0\x01\x01\0", 1, 0, 0)[0].value is None


def test_offset_deltas_may_have_holes(kernel: Any) -> None:
    body = encoded(b"\0\0\x08\x01\x01\0") + encoded(b"\0\0\x10\x01\x01\0")

    assert [record.offset for record in kernel.decode_records(body, 2, 100, 0)] == [104, 108]


def test_varints_with_needless_zeros_are_accepted(kernel: Any) -> None:
    body = encoded(b"\0\x82\0\x84\x80\x80\x80\0\x81\0\x82\x80\0v\x80\0")

    (record,) = kernel.decode_records(body, 1, 0, 0)

    assert fields(record) == (2, 1, None, b"v", ())


def test_header_keys_that_are_not_utf8_survive(kernel: Any) -> None:
    body = encoded(b"\0\0\0\x01\x01\x02\x04\xff\xfe\x01")

    (record,) = kernel.decode_records(body, 1, 0, 0)

    assert record.headers == (("\udcff\udcfe", None),)


def test_large_numbers_are_read(kernel: Any) -> None:
    delta = encode_varint(-(1 << 62))
    body = encoded(b"\0" + delta + encode_varint(2**31 - 1) + b"\x01\x01\0")

    (record,) = kernel.decode_records(body, 1, 5, 7)

    assert (record.offset, record.timestamp) == (5 + 2**31 - 1, 7 - (1 << 62))


def test_scanning_tells_where_each_record_is(kernel: Any) -> None:
    assert kernel.scan_records(BODY_A, 2) == [
        (0, 0, b"k1", True, 0, 15),
        (1, 5, None, True, 15, 24),
    ]
    assert kernel.scan_records(MINIMAL, 1) == [(0, 0, None, False, 0, 7)]


def timed(delta: int, offset_delta: int) -> bytes:
    return encoded(b"\0" + encode_varint(delta) + encode_varint(offset_delta) + b"\x02k\x01\0")


def test_inspecting_tells_what_a_leader_must_know(kernel: Any) -> None:
    assert kernel.inspect_records(BODY_A, 2, 100, 0, 200) == (105, True, 1, [1], 0, [])
    assert kernel.inspect_records(BODY_A, 2, 100, 101, 104) == (
        105,
        True,
        1,
        [1],
        2,
        [(0, 100), (1, 105)],
    )


@pytest.mark.parametrize("deltas", [(0, 2), (1, 2), (0, 0), (1, 0)])
def test_inspecting_notices_offsets_out_of_order(kernel: Any, deltas: tuple[int, int]) -> None:
    body = timed(0, deltas[0]) + timed(0, deltas[1])

    assert kernel.inspect_records(body, 2, 5, 0, 9) == (5, False, 0, [], 0, [])


def test_the_timestamp_that_stands_for_none_is_always_allowed(kernel: Any) -> None:
    assert kernel.inspect_records(timed(0, 0), 1, -1, 100, 200) == (-1, True, 0, [], 0, [])


@pytest.mark.parametrize(("base", "delta"), [(INT64_MAX, 1), (INT64_MIN, -1)])
def test_a_timestamp_beyond_64_bits_is_never_allowed(kernel: Any, base: int, delta: int) -> None:
    found = kernel.inspect_records(timed(delta, 0), 1, base, INT64_MIN, INT64_MAX)

    assert found == (base, True, 0, [], 1, [(0, base)])


def test_at_most_a_hundred_faults_are_named_and_all_are_counted(kernel: Any) -> None:
    body = b"".join(encoded(b"\0\0" + encode_varint(n) + b"\x01\x01\0") for n in range(150))

    largest, is_in_order, *faults = kernel.inspect_records(body, 150, 7, 8, 9)

    assert (largest, is_in_order) == (7, True)
    assert faults == [150, list(range(100)), 150, [(n, 7) for n in range(100)]]


def test_the_first_record_that_is_not_earlier_is_found(kernel: Any) -> None:
    body = timed(0, 0) + timed(5, 1) + timed(3, 2) + timed(9, 3)

    assert kernel.find_since(body, 4, 100, 0, 0) == (0, 100)
    assert kernel.find_since(body, 4, 100, 101, 0) == (1, 105)
    assert kernel.find_since(body, 4, 100, 101, 2) == (2, 103)
    assert kernel.find_since(body, 4, 100, 106, 0) == (3, 109)
    assert kernel.find_since(body, 4, 100, 110, 0) is None
    assert kernel.find_since(body, 4, 100, 0, 4) is None
    with pytest.raises(CorruptMessage, match="record 4, byte"):
        kernel.find_since(body, 5, 100, 110, 0)


FAULTS = {
    "empty": (b"", 1, "record 0, byte 0: cut off in the length"),
    "length cut off": (b"\x80", 1, "record 0, byte 0: cut off in the length"),
    "second record missing": (MINIMAL, 2, "record 1, byte 7: cut off in the length"),
    "length too wide": (b"\xff" * 6, 1, "record 0, byte 0: the length does not fit 32 bits"),
    "length of 33 bits": (
        b"\x80\x80\x80\x80\x10",
        1,
        "record 0, byte 0: the length does not fit 32 bits",
    ),
    "negative length": (b"\x01", 1, "record 0, byte 0: the length is -1"),
    "length past the end": (b"\x0e\0", 1, "record 0, byte 0: the length is 7, with 1 bytes left"),
    "no attributes": (b"\0", 1, "record 0, byte 1: cut off in the attributes"),
    "no timestamp": (encoded(b"\0"), 1, "record 0, byte 2: cut off in the timestamp delta"),
    "timestamp cut off by the record's end": (
        encoded(b"\0\x80") + b"\0",
        1,
        "record 0, byte 2: cut off in the timestamp delta",
    ),
    "timestamp of 11 bytes": (
        encoded(b"\0" + b"\xff" * 10 + b"\0" * 5),
        1,
        "record 0, byte 2: the timestamp delta does not fit 64 bits",
    ),
    "timestamp of 65 bits": (
        encoded(b"\0" + b"\xff" * 9 + b"\x02" + b"\0" * 5),
        1,
        "record 0, byte 2: the timestamp delta does not fit 64 bits",
    ),
    "no offset": (encoded(b"\0\0"), 1, "record 0, byte 3: cut off in the offset delta"),
    "negative offset": (
        encoded(b"\0\0\x01\x01\x01\0"),
        1,
        "record 0, byte 3: the offset delta is -1",
    ),
    "offset too wide": (
        encoded(b"\0\0\x80\x80\x80\x80\x80\0\x01\x01\0"),
        1,
        "record 0, byte 3: the offset delta does not fit 32 bits",
    ),
    "no key": (encoded(b"\0\0\0"), 1, "record 0, byte 4: cut off in the key length"),
    "key length below -1": (
        encoded(b"\0\0\0\x03\x01\0"),
        1,
        "record 0, byte 4: the key length is -2",
    ),
    "key past the record": (
        encoded(b"\0\0\0\x08\x01\0") + MINIMAL,
        2,
        "record 0, byte 4: the key length is 4, with 2 bytes left",
    ),
    "no value": (encoded(b"\0\0\0\x01"), 1, "record 0, byte 5: cut off in the value length"),
    "value length below -1": (
        encoded(b"\0\0\0\x01\x05\0"),
        1,
        "record 0, byte 5: the value length is -3",
    ),
    "value past the record": (
        encoded(b"\0\0\0\x01\xfe\xff\xff\xff\x0f\0"),
        1,
        "record 0, byte 5: the value length is 2147483647, with 1 bytes left",
    ),
    "no headers": (encoded(b"\0\0\0\x01\x01"), 1, "record 0, byte 6: cut off in the header count"),
    "negative header count": (
        encoded(b"\0\0\0\x01\x01\x01"),
        1,
        "record 0, byte 6: the header count is -1",
    ),
    "more headers than bytes": (
        encoded(b"\0\0\0\x01\x01\x04\0\x01\0"),
        1,
        "record 0, byte 6: the header count is 2, with 3 bytes left",
    ),
    "an absurd header count": (
        encoded(b"\0\0\0\x01\x01\xfe\xff\xff\xff\x0f\0\0"),
        1,
        "record 0, byte 6: the header count is 2147483647, with 2 bytes left",
    ),
    "header count of two bytes": (
        encoded(b"\0\0\0\x01\x01\x81\x01"),
        1,
        "record 0, byte 6: the header count is -65",
    ),
    "null header key": (
        encoded(b"\0\0\0\x01\x01\x02\x01\x01"),
        1,
        "record 0, byte 7: the header key length is -1",
    ),
    "header key past the record": (
        encoded(b"\0\0\0\x01\x01\x02\x06\x01\x01"),
        1,
        "record 0, byte 7: the header key length is 3, with 2 bytes left",
    ),
    "header value cut off": (
        encoded(b"\0\0\0\x01\x01\x02\x02h"),
        1,
        "record 0, byte 9: cut off in the header value length",
    ),
    "header value length below -1": (
        encoded(b"\0\0\0\x01\x01\x02\x02h\x03"),
        1,
        "record 0, byte 9: the header value length is -2",
    ),
    "header value past the record": (
        encoded(b"\0\0\0\x01\x01\x02\x02h\x04x"),
        1,
        "record 0, byte 9: the header value length is 2, with 1 bytes left",
    ),
    "bytes left in the record": (
        encoded(b"\0\0\0\x01\x01\0??"),
        1,
        "record 0, byte 7: 2 bytes left over in the record",
    ),
    "bytes left after the last record": (
        MINIMAL + b"???",
        1,
        "byte 7: 3 bytes left over after 1 records",
    ),
    "bytes but no records": (b"?", 0, "byte 0: 1 bytes left over after 0 records"),
    "negative count": (MINIMAL, -1, "the record count is -1"),
    "an absurd count": (MINIMAL, 2**31 - 1, "record 1, byte 7: cut off in the length"),
}


@pytest.mark.parametrize(("body", "count", "text"), FAULTS.values(), ids=FAULTS.keys())
def test_bad_bytes_end_in_words(kernel: Any, body: bytes, count: int, text: str) -> None:
    with pytest.raises(CorruptMessage) as decoding:
        kernel.decode_records(body, count, 0, 0)
    with pytest.raises(CorruptMessage) as scanning:
        kernel.scan_records(body, count)
    with pytest.raises(CorruptMessage) as inspecting:
        kernel.inspect_records(body, count, 0, 0, 0)

    assert str(decoding.value) == text
    assert str(scanning.value) == text
    assert str(inspecting.value) == text


def test_records_that_are_not_asked_for_are_checked_too(kernel: Any) -> None:
    with pytest.raises(CorruptMessage, match="record 1, byte 7: cut off in the length"):
        kernel.decode_records(MINIMAL, 2, 0, 0, None, 50, 60)


def test_a_timestamp_beyond_64_bits_is_corrupt(kernel: Any) -> None:
    body = MINIMAL + encoded(b"\0\x02\x02\x01\x01\0")

    with pytest.raises(CorruptMessage) as caught:
        kernel.decode_records(body, 2, 0, INT64_MAX)
    assert str(caught.value) == "record 1, byte 7: the timestamp does not fit 64 bits"
    with pytest.raises(CorruptMessage) as caught:
        kernel.find_since(body, 2, INT64_MAX, 0, 1)
    assert str(caught.value) == "record 1, byte 7: the timestamp does not fit 64 bits"

    before_time = encoded(b"\0\x01\0\x01\x01\0")
    with pytest.raises(CorruptMessage) as caught:
        kernel.decode_records(before_time, 1, 0, -INT64_MAX - 1)
    assert str(caught.value) == "record 0, byte 0: the timestamp does not fit 64 bits"


@pytest.mark.parametrize("append_timestamp", [None, 5])
def test_an_offset_beyond_64_bits_is_corrupt(kernel: Any, append_timestamp: int | None) -> None:
    body = MINIMAL + encoded(b"\0\x02\x02\x01\x01\0")

    with pytest.raises(CorruptMessage) as caught:
        kernel.decode_records(body, 2, INT64_MAX, 0, append_timestamp)

    assert str(caught.value) == "record 1, byte 7: the offset does not fit 64 bits"
