"""Writing the records section and the header: bytes, bookkeeping, and what is refused."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from millstream.types import INT64_MAX
from tests.unit.records.kernels import PLAIN
from tests.unit.records.test_decoding import BATCH_A, fields

INT64_MIN = -INT64_MAX - 1
TIME = 1_700_000_000_000
COMMIT_MARKER = bytes.fromhex(
    "000000000000000200000042000000000288b050630030000000000000018bcfe5680a0000018bcfe5680a"
    "0000000000000fa00000ffffffff000000012000000008000000010c00000000000700"
)


class Index:
    """An integer that is not an int, as numpy's are."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


def state(writer: Any) -> tuple[int, ...]:
    return (
        writer.size,
        writer.record_count,
        writer.base_timestamp,
        writer.max_timestamp,
        writer.last_offset_delta,
    )


def decoded(kernel: Any, writer: Any) -> list[tuple[Any, ...]]:
    records = kernel.decode_records(writer.body(), writer.record_count, 0, writer.base_timestamp)
    return [fields(record) for record in records]


def test_the_golden_batch_is_written(kernel: Any) -> None:
    writer = kernel.BatchWriter()
    writer.append(TIME, b"k1", b"v1", [("h", b"x")])
    size = writer.append(TIME + 5, None, b"v2")

    batch = writer.seal(leader_epoch=0)

    assert batch == BATCH_A
    assert type(batch) is bytes
    assert size == writer.size == len(batch)


def test_the_golden_commit_marker_is_written(kernel: Any) -> None:
    writer = kernel.BatchWriter()
    writer.append(TIME + 10, b"\0\0\0\x01", b"\0\0\0\0\0\x07")

    batch = writer.seal(
        base_offset=2, leader_epoch=0, attributes=0x30, producer_id=4000, producer_epoch=0
    )

    assert batch == COMMIT_MARKER


def test_a_new_writer_is_empty_and_a_cleared_one_is_new(kernel: Any) -> None:
    writer = kernel.BatchWriter(capacity=1)
    empty = (61, 0, -1, -1, -1)
    assert state(writer) == empty
    assert bytes(writer.body()) == b""

    writer.append(5, None, b"x")
    writer.clear()

    assert state(writer) == empty
    assert bytes(writer.body()) == b""


def test_the_writer_keeps_count(kernel: Any) -> None:
    writer = kernel.BatchWriter()

    sizes = [writer.append(TIME + delta, None, b"x" * 10) for delta in (0, 7, -3)]

    assert sizes[-1] == 61 + len(writer.body())
    assert sizes == sorted(sizes)
    assert state(writer) == (sizes[-1], 3, TIME, TIME + 7, 2)


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 127, 128, 8191, 8192, 20_000, 1 << 21])
def test_values_of_every_size_come_back(kernel: Any, size: int) -> None:
    writer = kernel.BatchWriter()
    value = bytes(size)

    writer.append(0, value, None)
    writer.append(0, None, value, {"h": value})
    writer.extend([(0, value, value), (0, None, None)])

    assert decoded(kernel, writer) == [
        (0, 0, value, None, ()),
        (1, 0, None, value, (("h", value),)),
        (2, 0, value, value, ()),
        (3, 0, None, None, ()),
    ]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_written(kernel: Any, kind: Any) -> None:
    writer = kernel.BatchWriter()

    writer.append(0, kind(b"key"), kind(b"value"), [("h", kind(b"x"))])
    writer.extend([(0, kind(b"key"), b"value"), (0, b"key", kind(b"value"))])

    assert [record[2:4] for record in decoded(kernel, writer)] == [(b"key", b"value")] * 3


def test_memoryviews_count_in_bytes_and_need_not_be_contiguous(kernel: Any) -> None:
    writer = kernel.BatchWriter()
    words = memoryview(bytes(range(8))).cast("H")

    writer.append(0, words, memoryview(b"a-b-c-")[::2])

    assert decoded(kernel, writer)[0][2:4] == (bytes(range(8)), b"abc")


def test_what_is_written_does_not_change_with_its_source(kernel: Any) -> None:
    writer = kernel.BatchWriter()
    value = bytearray(b"before")

    writer.append(0, value, value, {"h": value})
    value[:] = b"behind"

    assert decoded(kernel, writer)[0][2:] == (b"before", b"before", (("h", b"before"),))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, ()),
        ((), ()),
        ([], ()),
        ({}, ()),
        ([("a", b"1"), ("a", None)], (("a", b"1"), ("a", None))),
        ((["a", b""],), (("a", b""),)),
        ({"a": b"1", "b": None}, (("a", b"1"), ("b", None))),
        (OrderedDict(x=b"y"), (("x", b"y"),)),
        ([("", b"")], (("", b""),)),
        ([("grün \U0001f33e", b"")], (("grün \U0001f33e", b""),)),
        ([("\udcff", b"")], (("\udcff", b""),)),
        ([("h" * 9000, None)] * 70, (("h" * 9000, None),) * 70),
    ],
)
def test_headers_of_every_shape_come_back(
    kernel: Any, headers: Any, expected: tuple[Any, ...]
) -> None:
    writer = kernel.BatchWriter()

    writer.append(0, None, None, headers)

    assert decoded(kernel, writer)[0][4] == expected


def test_headers_may_come_from_an_iterator(kernel: Any) -> None:
    writer = kernel.BatchWriter()

    writer.append(0, None, None, iter([("it", b"")]))

    assert decoded(kernel, writer)[0][4] == (("it", b""),)


@pytest.mark.parametrize(
    "timestamps",
    [(-1, -1), (0, -(2**40)), (-5, 2**41), (INT64_MIN, -1), (0, INT64_MAX), (-1, INT64_MIN)],
)
def test_timestamps_of_every_century_come_back(kernel: Any, timestamps: tuple[int, int]) -> None:
    one_by_one, in_bulk = kernel.BatchWriter(), kernel.BatchWriter()

    for timestamp in timestamps:
        one_by_one.append(timestamp, None, None)
    in_bulk.extend([(timestamp, None, None) for timestamp in timestamps])

    assert [record[1] for record in decoded(kernel, one_by_one)] == list(timestamps)
    assert one_by_one.max_timestamp == max(timestamps)
    assert bytes(in_bulk.body()) == bytes(one_by_one.body())
    assert state(in_bulk) == state(one_by_one)


def test_integers_of_other_types_are_taken(kernel: Any) -> None:
    writer = kernel.BatchWriter()

    writer.append(Index(5), None, None, offset_delta=Index(3))
    writer.extend([(Index(6), None, None)])

    assert [record[:2] for record in decoded(kernel, writer)] == [(3, 5), (4, 6)]


def test_offset_deltas_may_be_given(kernel: Any) -> None:
    writer = kernel.BatchWriter()

    writer.append(0, None, None, offset_delta=5)
    writer.append(0, None, None)
    writer.append(0, None, None, (), 9000)
    writer.append(0, None, None, offset_delta=2**31 - 1)

    assert [record[0] for record in decoded(kernel, writer)] == [5, 6, 9000, 2**31 - 1]
    assert writer.last_offset_delta == 2**31 - 1


def test_extend_takes_rows_of_every_shape(kernel: Any) -> None:
    rows = [
        (TIME, b"k", b"v"),
        (TIME + 1, None, b"v", {"h": b"x"}),
        [TIME + 9_000, b"k", None],
        (TIME - 1, None, None, None),
        (True, b"k" * 9000, b"v" * 9000),
    ]
    one_by_one, in_bulk = kernel.BatchWriter(), kernel.BatchWriter()

    for row in rows:
        one_by_one.append(*row)
    size = in_bulk.extend(iter(rows))

    assert size == in_bulk.size
    assert in_bulk.seal() == one_by_one.seal()
    assert in_bulk.extend([]) == size


@pytest.mark.parametrize("row_count", [8_300])
def test_extend_writes_many_rows(kernel: Any, row_count: int) -> None:
    writer = kernel.BatchWriter()

    writer.extend([(TIME + i, b"%d" % i, None) for i in range(row_count)])

    assert [r[:3] for r in decoded(kernel, writer)] == [
        (i, TIME + i, b"%d" % i) for i in range(row_count)
    ]


def test_a_batch_relative_to_a_given_time(kernel: Any) -> None:
    writer = kernel.BatchWriter(base_timestamp=1000)
    assert writer.base_timestamp == 1000
    assert writer.max_timestamp == -1

    writer.append(990, None, None)
    writer.extend([(995, None, None), (992, None, None)])

    assert state(writer)[2:4] == (1000, 995)
    assert [record[1] for record in decoded(kernel, writer)] == [990, 995, 992]
    writer.clear()
    assert writer.base_timestamp == 1000


@pytest.mark.parametrize(
    ("base_timestamp", "error", "text"),
    [
        ("now", TypeError, "timestamp must be an integer, not str"),
        (2**63, OverflowError, "timestamp 9223372036854775808 does not fit 64 bits"),
    ],
)
def test_a_given_time_must_be_one(
    kernel: Any, base_timestamp: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        kernel.BatchWriter(base_timestamp=base_timestamp)

    assert str(caught.value) == text


def test_the_first_timestamp_may_be_too_far_from_a_given_time(kernel: Any) -> None:
    writer = kernel.BatchWriter(base_timestamp=-2)

    with pytest.raises(OverflowError, match="is too far from the batch's first, -2"):
        writer.append(INT64_MAX, None, None)

    assert writer.record_count == 0


class Rows:
    """As much of an Arrow chunk as the plain writer asks for."""

    def __init__(self, *values: bytes) -> None:
        self._values = values

    def row(self, index: int) -> tuple[int | None, bytes | None, bytes, tuple[()]]:
        return None if index % 2 else index, None, self._values[index], ()


def test_rows_of_a_chunk_are_written_up_to_the_limit() -> None:
    chunk = Rows(b"a" * 100, b"b" * 10, b"c" * 10, b"d" * 100)
    writer = PLAIN.BatchWriter()

    assert writer.extend_arrow(chunk, 0, 0, 100, 7) == 0
    assert writer.extend_arrow(chunk, 0, 4, 1, 7) == 1, "an empty writer takes one row whatever"
    assert writer.extend_arrow(chunk, 1, 4, 1, 7) == 0
    assert writer.extend_arrow(chunk, 1, 4, writer.size + 40, 7) == 2
    assert writer.extend_arrow(chunk, 3, 4, 1000, 7) == 1

    assert [(record[1], record[3][:1]) for record in decoded(PLAIN, writer)] == [
        (0, b"a"),
        (7, b"b"),
        (2, b"c"),
        (7, b"d"),
    ]
