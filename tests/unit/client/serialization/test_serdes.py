"""Plain serdes: the bytes Java writes, None both ways, errors that name value and topic."""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.serialization import (
    BytesSerde,
    FloatSerde,
    IntSerde,
    JsonSerde,
    MsgspecSerde,
    PydanticSerde,
    Serde,
    StrSerde,
    UuidSerde,
    as_deserializer,
    as_serializer,
)
from millstream.client.serialization import json as json_module
from millstream.client.serialization.packages import require
from millstream.errors import InvalidArgument, SerializationFailed

SOME_UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")


class Order(msgspec.Struct):
    id: int
    note: str = ""


class Customer(pydantic.BaseModel):
    name: str
    age: int


@dataclass
class Point:
    x: int
    y: int


class Color(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (BytesSerde(), b"abc", b"abc"),
        (StrSerde(), "größe", b"gr\xc3\xb6\xc3\x9fe"),
        (StrSerde("utf-16-be"), "ab", b"\0a\0b"),
        (IntSerde(16), -2, b"\xff\xfe"),
        (IntSerde(32), 1, b"\0\0\0\1"),
        (IntSerde(), 1 << 40, b"\0\0\1\0\0\0\0\0"),
        (FloatSerde(32), 1.5, b"\x3f\xc0\0\0"),
        (FloatSerde(), 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        (UuidSerde(), SOME_UUID, b"12345678-1234-5678-1234-567812345678"),
        (JsonSerde(), {"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode()),
        (MsgspecSerde(Order), Order(1, "x"), b'{"id":1,"note":"x"}'),
        (MsgspecSerde(Order, format="msgpack"), Order(1), b"\x82\xa2id\x01\xa4note\xa0"),
        (PydanticSerde(Customer), Customer(name="A", age=3), b'{"name":"A","age":3}'),
    ],
)
def test_values_have_the_bytes_that_others_write_and_come_back(
    serde: Serde[Any], value: object, data: bytes
) -> None:
    assert serde.serialize("t", value, []) == data
    assert serde.deserialize("t", data, ()) == value
    assert serde.serialize("t", None, []) is None
    assert serde.deserialize("t", None, ()) is None


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (BytesSerde(), "text"),
        (StrSerde(), b"bytes"),
        (IntSerde(16), 1 << 20),
        (FloatSerde(), "1.5"),
        (UuidSerde(), "12345678-1234-5678-1234-567812345678"),
        (JsonSerde(), object()),
        (JsonSerde(), float("nan") if json_module._orjson is None else {1: object()}),
        (MsgspecSerde(Order), object()),
        (PydanticSerde(Customer), {"name": "A"}),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_topic(serde: Serde[Any], value: object) -> None:
    with pytest.raises(SerializationFailed, match=r"cannot serialize .* for topic 'orders'"):
        serde.serialize("orders", value, [])


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (StrSerde(), b"\xff\xff"),
        (IntSerde(), b"\0"),
        (FloatSerde(32), b""),
        (UuidSerde(), b"nonsense"),
        (JsonSerde(), b"{"),
        (MsgspecSerde(Order), b'{"id":"x"}'),
        (PydanticSerde(Customer), b'{"name":"A","age":"many"}'),
    ],
)
def test_bytes_that_are_something_else_are_told_with_their_topic(
    serde: Serde[Any], data: bytes
) -> None:
    with pytest.raises(SerializationFailed, match=r"cannot read .* of topic 'orders'"):
        serde.deserialize("orders", data, ())


def test_what_is_shown_of_a_long_value_is_short() -> None:
    with pytest.raises(SerializationFailed) as failure:
        StrSerde().serialize("t", b"x" * 10_000, [])  # type: ignore[arg-type]

    assert len(str(failure.value)) < 200


def test_buffers_may_be_sent_as_bytes() -> None:
    assert BytesSerde().encode(bytearray(b"ab")) == b"ab"  # type: ignore[arg-type]
    assert BytesSerde().encode(memoryview(b"ab")) == b"ab"  # type: ignore[arg-type]


@pytest.mark.parametrize("bits", [8, 24])
def test_numbers_have_the_widths_that_java_has(bits: Any) -> None:
    with pytest.raises(InvalidArgument, match="32"):
        IntSerde(bits)
    with pytest.raises(InvalidArgument, match="32"):
        FloatSerde(bits)


RICH = {
    "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "day": datetime.date(2026, 1, 2),
    "id": SOME_UUID,
    "color": Color.RED,
    "point": Point(1, 2),
}
RICH_JSON = {
    "at": "2026-01-02T03:04:05+00:00",
    "day": "2026-01-02",
    "id": str(SOME_UUID),
    "color": "red",
    "point": {"x": 1, "y": 2},
}


@pytest.mark.parametrize("has_orjson", [True, False])
def test_json_knows_common_values_with_either_library(
    monkeypatch: pytest.MonkeyPatch, *, has_orjson: bool
) -> None:
    if not has_orjson:
        monkeypatch.setattr(json_module, "_orjson", None)
    serde = JsonSerde()

    assert serde.decode(serde.encode(RICH)) == RICH_JSON
    with pytest.raises(SerializationFailed, match="JSON"):
        serde.serialize("t", {"x": object()}, [])


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_both_json_libraries_read_what_the_other_writes(value: object) -> None:
    by_either = json_module.JsonSerde().encode(value)
    by_standard = json_module._dump_with_standard_library(value, json_module.plain_value)

    assert by_either == by_standard
    assert JsonSerde().decode(by_standard) == value


def test_json_takes_a_function_for_values_it_does_not_know() -> None:
    assert JsonSerde(default=lambda value: sorted(value)).encode({3, 1}) == b"[1,3]"


@pytest.mark.parametrize(
    ("given_as", "value", "data"),
    [
        ("json", [1], b"[1]"),
        ("int32", 7, b"\0\0\0\7"),
        ("org.apache.kafka.common.serialization.StringSerializer", "a", b"a"),
        ("org.apache.kafka.common.serialization.LongSerializer", 1, b"\0\0\0\0\0\0\0\1"),
        (StrSerde, "a", b"a"),
        (StrSerde(), "a", b"a"),
        (None, b"a", b"a"),
        (lambda value: str(value).encode(), 12, b"12"),
    ],
)
def test_a_serializer_may_be_a_name_a_class_an_object_a_function_or_nothing(
    given_as: object, value: object, data: bytes
) -> None:
    assert as_serializer(given_as).serialize("t", value, []) == data


@pytest.mark.parametrize(
    ("given_as", "data", "value"),
    [
        ("json", b"[1]", [1]),
        ("org.apache.kafka.common.serialization.DoubleDeserializer", b"\x3f\xf8" + bytes(6), 1.5),
        (int, b"12", 12),
        (None, b"a", b"a"),
    ],
)
def test_a_deserializer_may_be_a_name_or_a_function(
    given_as: object, data: bytes, value: object
) -> None:
    deserializer = as_deserializer(given_as)

    assert deserializer.deserialize("t", data, ()) == value
    assert deserializer.deserialize("t", None, ()) is None


def test_functions_fail_like_serdes() -> None:
    with pytest.raises(SerializationFailed, match="int cannot read 1 bytes b'x' of topic 't'"):
        as_deserializer(int).deserialize("t", b"x", ())
    with pytest.raises(SerializationFailed, match="cannot serialize str 'x' for topic 't'"):
        as_serializer(bytes.fromhex).serialize("t", "x", [])
    assert as_serializer(bytes.fromhex).serialize("t", None, []) is None


def test_errors_of_our_own_pass_through_functions() -> None:
    def refuse(_: object) -> bytes:
        raise InvalidArgument("no")

    with pytest.raises(InvalidArgument, match=r"^no$"):
        as_serializer(refuse).serialize("t", 1, [])
    with pytest.raises(InvalidArgument, match=r"^no$"):
        as_deserializer(refuse).deserialize("t", b"", ())


def test_a_misspelt_name_names_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'json'"):
        as_serializer("jsn")
    with pytest.raises(InvalidArgument, match="Known: bytes, str"):
        as_deserializer("org.apache.kafka.common.serialization.ListDeserializer")


def test_something_else_is_refused_with_what_would_do() -> None:
    with pytest.raises(InvalidArgument, match=r"serialize\(topic, value, headers\)"):
        as_serializer(3)
    with pytest.raises(InvalidArgument, match=r"deserialize\(topic, data, headers\)"):
        as_deserializer(3)


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(InvalidArgument, match="XSerde needs the package no_such: pip install such"):
        require("no_such", "XSerde", distribution="such")
