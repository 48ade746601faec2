"""What a `BatchWriter` does not take: the words for it, and that nothing changes."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

from millstream.errors import MessageTooLarge
from millstream.types import INT64_MAX
from tests.unit.records.kernels import PLAIN
from tests.unit.records.test_writing import decoded, state

BAD_APPENDS = {
    "timestamp type": (
        (1.5, None, None),
        TypeError,
        "timestamp must be an integer, not float",
    ),
    "no timestamp": ((None, None, None), TypeError, "timestamp must be an integer, not NoneType"),
    "timestamp too large": (
        (2**63, None, None),
        OverflowError,
        "timestamp 9223372036854775808 does not fit 64 bits",
    ),
    "timestamp too small": (
        (-(2**63) - 1, None, None),
        OverflowError,
        "timestamp -9223372036854775809 does not fit 64 bits",
    ),
    "timestamp much too large": (
        (2**70, None, None),
        OverflowError,
        "timestamp 1180591620717411303424 does not fit 64 bits",
    ),
    "timestamp far from the first": (
        (INT64_MAX, None, None),
        OverflowError,
        "timestamp 9223372036854775807 is too far from the batch's first, -2",
    ),
    "text key": (
        (0, "key", None),
        TypeError,
        "key must be bytes, bytearray, memoryview or None, not str",
    ),
    "number as value": (
        (0, None, 5),
        TypeError,
        "value must be bytes, bytearray, memoryview or None, not int",
    ),
    "headers are no iterable": (
        (0, None, None, 5),
        TypeError,
        "headers must be a mapping or an iterable of (key, value) pairs, not int",
    ),
    "header is no pair": (
        (0, None, None, ["ab"]),
        TypeError,
        "a header must be a (key, value) pair, not str",
    ),
    "header of three": (
        (0, None, None, [("a", b"b", b"c")]),
        TypeError,
        "a header must be a (key, value) pair, not tuple",
    ),
    "bytes as header key": (
        (0, None, None, [(b"a", b"b")]),
        TypeError,
        "header key must be str, not bytes",
    ),
    "text as header value": (
        (0, None, None, {"a": "b"}),
        TypeError,
        "header value must be bytes, bytearray, memoryview or None, not str",
    ),
}


@pytest.mark.parametrize(("row", "error", "text"), BAD_APPENDS.values(), ids=BAD_APPENDS.keys())
def test_what_cannot_be_written_is_refused_and_changes_nothing(
    kernel: Any, row: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    writer = kernel.BatchWriter()
    writer.append(-2, b"first", None)
    before = state(writer), bytes(writer.body())

    with pytest.raises(error) as appending:
        writer.append(*row)
    with pytest.raises(error) as extending:
        writer.extend([row])

    assert str(appending.value) == str(extending.value) == text
    assert (state(writer), bytes(writer.body())) == before


def test_header_keys_that_have_no_bytes_are_refused(kernel: Any) -> None:
    writer = kernel.BatchWriter()

    with pytest.raises(UnicodeEncodeError):
        writer.append(0, None, None, [("\ud800", None)])

    assert writer.record_count == 0


@pytest.mark.parametrize(
    ("offset_delta", "error", "text"),
    [
        (5, ValueError, "offset delta 5 must be above the previous, 5"),
        (0, ValueError, "offset delta 0 must be above the previous, 5"),
        (-1, OverflowError, "offset delta -1 does not fit 31 bits"),
        (2**31, OverflowError, "offset delta 2147483648 does not fit 31 bits"),
        (2**80, OverflowError, f"offset delta {2**80} does not fit 31 bits"),
        ("6", TypeError, "offset delta must be an integer, not str"),
    ],
)
def test_offset_deltas_must_grow_and_fit(
    kernel: Any, offset_delta: Any, error: type[Exception], text: str
) -> None:
    writer = kernel.BatchWriter()
    writer.append(0, None, None, offset_delta=5)
    before = state(writer)

    with pytest.raises(error) as appending:
        writer.append(0, None, None, (), offset_delta)
    with pytest.raises(error) as copying:
        writer.append_raw(b"\0", offset_delta, 0)

    assert str(appending.value) == str(copying.value) == text
    assert state(writer) == before


def test_offset_deltas_run_out(kernel: Any) -> None:
    writer = kernel.BatchWriter()
    writer.append(0, None, None, offset_delta=2**31 - 2)
    rows = [(0, None, None)] * 2

    with pytest.raises(OverflowError, match="offset delta 2147483648 does not fit 31 bits"):
        writer.extend(rows)

    assert writer.record_count == 2


@pytest.mark.parametrize(
    ("row", "ending"),
    [
        ("abc", "not str"),
        (None, "not NoneType"),
        ((), "not 0 items"),
        ((0, b"k"), "not 2 items"),
        ((0, b"k", b"v", (), 0), "not 5 items"),
    ],
)
def test_rows_of_another_shape_are_refused_after_the_good_ones(
    kernel: Any, row: Any, ending: str
) -> None:
    writer = kernel.BatchWriter()
    shape = "a row must be a tuple of (timestamp, key, value) or (timestamp, key, value, headers), "

    with pytest.raises(TypeError) as caught:
        writer.extend([(0, None, b"1"), (0, None, b"2"), row, (0, None, b"3")])

    assert str(caught.value) == shape + ending
    assert [record[3] for record in decoded(kernel, writer)] == [b"1", b"2"]


def test_rows_that_stop_coming_leave_the_good_ones(kernel: Any) -> None:
    def rows() -> Any:
        yield 0, None, b"1"
        yield 0, None, b"2"
        raise RuntimeError("the source broke")

    writer = kernel.BatchWriter()

    with pytest.raises(RuntimeError, match="the source broke"):
        writer.extend(rows())

    assert [record[3] for record in decoded(kernel, writer)] == [b"1", b"2"]


def test_a_batch_cannot_pass_two_gibibytes(kernel: Any) -> None:
    writer = kernel.BatchWriter()
    small = writer.append(0, None, b"x")
    limit = "the limit is 2147483647"
    huge = memoryview(mmap.mmap(-1, 2**31 - 1))  # pages that nobody touches take no memory

    with pytest.raises(MessageTooLarge) as appending:
        writer.append(0, None, huge)
    with pytest.raises(MessageTooLarge) as extending:
        writer.extend([(0, None, huge)])
    with pytest.raises(MessageTooLarge) as copying:
        writer.append_raw(huge, 1, 0)
    with pytest.raises(MessageTooLarge) as sealing:
        writer.seal(body=huge)

    # The record's length and the value's take five bytes each at this size.
    expected = small + 5 + (1 + 1 + 1 + 1 + 5 + (2**31 - 1) + 1)
    assert str(appending.value) == f"the batch would have {expected} bytes, {limit}"
    assert str(extending.value) == str(appending.value)
    assert str(copying.value) == f"the batch would have {small + (2**31 - 1)} bytes, {limit}"
    assert str(sealing.value) == f"the batch would have {61 + (2**31 - 1)} bytes, {limit}"
    assert writer.size == small


def test_rows_by_reference_cannot_pass_two_gibibytes() -> None:
    """The plain writer holds references, so it gets there without the memory."""
    writer = PLAIN.BatchWriter()
    value = bytes(1 << 24)

    with pytest.raises(MessageTooLarge, match="the limit is 2147483647"):
        writer.extend([(0, None, value)] * 130)

    assert writer.record_count == 127
