"""Varints, strings and bytes, old and compact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import DecodeError, EncodeError
from millstream.protocol import primitives

Reader = Callable[[bytes, int], tuple[Any, int]]

PAIRS: list[tuple[Callable[[Any], bytes], Reader, st.SearchStrategy[Any]]] = [
    (primitives.encode_uvarint, primitives.read_uvarint, st.integers(0, (1 << 32) - 1)),
    (primitives.encode_varint, primitives.read_varint, st.integers(-(1 << 31), (1 << 31) - 1)),
    (primitives.encode_varlong, primitives.read_varlong, st.integers(-(1 << 63), (1 << 63) - 1)),
    (primitives.encode_string, primitives.read_string, st.none() | st.text(max_size=300)),
    (
        primitives.encode_compact_string,
        primitives.read_compact_string,
        st.none() | st.text(max_size=300),
    ),
    (primitives.encode_bytes, primitives.read_bytes, st.none() | st.binary(max_size=300)),
    (
        primitives.encode_compact_bytes,
        primitives.read_compact_bytes,
        st.none() | st.binary(max_size=300),
    ),
]


@pytest.mark.parametrize(("encode", "read", "values"), PAIRS)
@given(data=st.data())
def test_what_is_written_is_read(
    encode: Callable[[Any], bytes],
    read: Reader,
    values: st.SearchStrategy[Any],
    data: st.DataObject,
) -> None:
    value = data.draw(values)

    encoded = encode(value)

    assert read(b"?" + encoded + b"?", 1) == (value, 1 + len(encoded))
    with pytest.raises(DecodeError):
        read(encoded[:-1], 0)


@pytest.mark.parametrize(
    ("value", "golden"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16383, "ff7f"),
        (16384, "808001"),
        (1 << 31, "8080808008"),
    ],
)
def test_uvarints_are_little_endian_base_128(value: int, golden: str) -> None:
    assert primitives.encode_uvarint(value).hex() == golden


@pytest.mark.parametrize(
    ("value", "golden"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001")]
)
def test_varints_are_zig_zag(value: int, golden: str) -> None:
    assert primitives.encode_varint(value).hex() == golden
    assert primitives.encode_varlong(value).hex() == golden


@pytest.mark.parametrize(
    ("read", "raw", "problem"),
    [
        (primitives.read_uvarint, "", "truncated inside a varint"),
        (primitives.read_uvarint, "80", "truncated inside a varint"),
        (primitives.read_uvarint, "808080", "truncated inside a varint"),
        (primitives.read_uvarint, "8080808080", "does not end within 5 bytes"),
        (primitives.read_uvarint, "ffffffff1f", "more than 32 bits"),
        (primitives.read_varlong, "ff" * 9 + "03", "more than 64 bits"),
        (primitives.read_varlong, "80" * 10, "does not end within 10 bytes"),
        (primitives.read_string, "fffe", "length is -2"),
        (primitives.read_string, "000461", "4 bytes needed, 1 left"),
        (primitives.read_string, "0001ff", "not UTF-8"),
        (primitives.read_bytes, "80000000", "length is -2147483648"),
        (primitives.read_compact_string, "02ff", "not UTF-8"),
        (primitives.read_compact_bytes, "05", "4 bytes needed, 0 left"),
    ],
)
def test_bad_bytes_are_named(read: Reader, raw: str, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem) as caught:
        read(b"?" + bytes.fromhex(raw), 1)

    assert caught.value.position >= 1


def test_a_compact_string_has_the_limit_of_the_old_one() -> None:
    longest, too_long = "x" * 32767, "x" * 32768

    assert (
        primitives.read_compact_string(primitives.encode_compact_string(longest), 0)[0] == longest
    )
    with pytest.raises(EncodeError, match="limit 32767"):
        primitives.encode_compact_string(too_long)
    with pytest.raises(DecodeError, match="limit 32767"):
        primitives.read_compact_string(primitives.encode_compact_bytes(too_long.encode()), 0)


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (primitives.encode_uvarint, -1),
        (primitives.encode_uvarint, 1 << 32),
        (primitives.encode_varint, 1 << 31),
        (primitives.encode_varlong, 1 << 63),
        (primitives.encode_string, "\ud800"),
    ],
)
def test_what_does_not_fit_is_refused(encode: Callable[[Any], bytes], value: object) -> None:
    with pytest.raises(EncodeError):
        encode(value)
