"""Keys and values with a type: text in, bytes on the way, text or JSON out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.record_format import Encoding, json_lines, value_lines, value_show
from millstream.cli.record_text import NewRecord
from millstream.cli.value_types import TYPES, as_json, as_text, make_sides
from millstream.records import Record
from tests.schema_registry import running_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.schema_registry import Registry

TOPIC = "t"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "seal", "type": "bytes"},
    ],
}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as made:
        yield made


def stored(record: NewRecord, offset: int = 7) -> Record:
    """A record as a broker gives it."""
    return Record(offset, 1000, record.key, record.value, ())


@pytest.mark.parametrize(
    ("name", "text", "data", "value"),
    [
        ("bytes", b"\xff", b"\xff", {"base64": "/w=="}),
        ("str", "ü".encode(), "ü".encode(), "ü"),
        ("json", b'{"a": 1}', b'{"a":1}', {"a": 1}),
        ("int16", b"-2", b"\xff\xfe", -2),
        ("int32", b"1", b"\0\0\0\1", 1),
        ("int64", b"1", b"\0\0\0\0\0\0\0\1", 1),
        ("float32", b"0.5", b"\x3f\0\0\0", 0.5),
        ("float64", b"0.5", b"\x3f\xe0\0\0\0\0\0\0", 0.5),
        (
            "uuid",
            b"00000000-0000-0000-0000-000000000001",
            b"00000000-0000-0000-0000-000000000001",
            "00000000-0000-0000-0000-000000000001",
        ),
    ],
)
def test_a_type_there_and_back(name: str, text: bytes, data: bytes, value: Any) -> None:
    sides = make_sides("str", name, None)

    sent = sides.encoded(TOPIC, NewRecord(b"k", text, ()))
    read = sides.decoded(TOPIC, 0, stored(sent))
    shown = json.loads(json_lines(Encoding.TEXT)(TOPIC, 0, as_json(read)))

    assert (sent.key, sent.value) == (b"k", data)
    assert (shown["key"], shown["value"]) == ("k", value)
    line = value_lines(value_show(Encoding.TEXT), None)(TOPIC, 0, as_text(read))
    assert line == (text if name in ("bytes", "str") else json.dumps(value).encode()) + b"\n" or (
        name == "uuid" and line == b'"' + text + b'"\n'
    )


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"-Infinity"])
def test_what_is_no_number_in_json_is_a_string_there(text: bytes) -> None:
    sides = make_sides("json", "float64", None)

    read = sides.decoded(TOPIC, 0, stored(sides.encoded(TOPIC, NewRecord(b"[0]", text, ()))))
    read = read._replace(key=[float(text)])
    line = json_lines(Encoding.TEXT)(TOPIC, 0, as_json(read))

    shown = json.loads(line, parse_constant=pytest.fail)
    assert (shown["key"], shown["value"]) == ([text.decode()], text.decode())
    assert as_text(read).value == text


def test_null_stays_null_whatever_the_type() -> None:
    sides = make_sides("int64", "json", None)

    sent = sides.encoded(TOPIC, NewRecord(None, None, ()))

    assert (sent.key, sent.value) == (None, None)
    assert as_text(sides.decoded(TOPIC, 0, stored(sent)))[2:4] == (None, None)


def test_avro_by_a_registry_is_read_with_the_schema_it_was_written_with(
    registry: Registry, tmp_path: Path
) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(ORDER))
    writing = make_sides("bytes", "avro", registry.url, None, schema)
    reading = make_sides("bytes", "avro", registry.url)

    sent = writing.encoded(
        TOPIC, NewRecord(None, b'{"id": 1, "day": 3, "seal": {"base64": "eA=="}}', ())
    )
    read = reading.decoded(TOPIC, 0, stored(sent))

    assert sent.value is not None
    assert sent.value[:1] == b"\0"
    assert list(registry.subjects) == ["t-value"]
    assert as_json(read).value == {"id": 1, "day": "1970-01-04", "seal": {"base64": "eA=="}}
    assert json.loads(as_text(read).value) == as_json(read).value


def test_json_of_a_schema_is_checked(registry: Registry, tmp_path: Path) -> None:
    schema = tmp_path / "order.json"
    schema.write_text('{"type": "object", "required": ["id"]}')
    sides = make_sides("jsonschema", "bytes", registry.url, schema)

    sent = sides.encoded(TOPIC, NewRecord(b'{"id": 1}', b"v", ()))

    assert sides.decoded(TOPIC, 0, stored(sent)).key == {"id": 1}
    assert list(registry.subjects) == ["t-key"]
    with pytest.raises(Exception, match="'id' is a required property"):
        sides.encoded(TOPIC, NewRecord(b"{}", b"v", ()))


def test_what_cannot_be_read_is_named_with_its_place() -> None:
    with pytest.raises(CommandFailed, match=r"t-3 at offset 7: .*--value-type bytes"):
        make_sides("bytes", "int64", None).decoded(TOPIC, 3, stored(NewRecord(None, b"x", ())))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((("bytes", "int46", None)), "did you mean int64"),
        ((("zzz", "bytes", None)), r"--key-type zzz means nothing\. There are bytes"),
        ((("bytes", "avro", None)), "--schema-registry"),
    ],
)
def test_wrong_types_are_told(options: tuple[Any, ...], said: str) -> None:
    with pytest.raises(UsageFault, match=said):
        make_sides(*options)


def test_a_schema_goes_with_a_type_that_has_one(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="avro or jsonschema"):
        make_sides("bytes", "json", None, None, tmp_path)
    with pytest.raises(CommandFailed, match="cannot read the schema"):
        make_sides("bytes", "avro", "http://localhost:1", None, tmp_path / "none")


def test_a_text_that_is_none_of_its_type_is_told() -> None:
    with pytest.raises(UsageFault, match="--value-type int32: 'twelve'"):
        make_sides("bytes", "int32", None).encoded(TOPIC, NewRecord(None, b"twelve", ()))


def test_every_name_of_the_library_is_a_type() -> None:
    from millstream.client.serialization import SERDES_BY_NAME

    assert set(SERDES_BY_NAME) == set(TYPES) - {"avro", "jsonschema"}
