"""JSON values to columns, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="columns are Arrow's")
pytest.importorskip("pyspark", reason="types are Spark's")

from millstream.spark.decoding.decoder import make_decoder  # noqa: E402

SCHEMA = "id BIGINT, name STRING, at TIMESTAMP"


def decode(values: list[bytes | None], schema: str = SCHEMA, **options: str) -> Any:
    decoder = make_decoder({"valueFormat": "json", "valueSchema": schema, **options})
    assert decoder is not None
    offsets = list(range(len(values)))
    return decoder.decode(
        pa.record_batch({"value": pa.array(values, pa.binary()), "offset": offsets})
    )


def test_good_values_become_a_struct_in_the_place_of_the_bytes() -> None:
    batch = decode([b'{"id":1,"name":"a","at":"2026-01-01T00:00:00Z","more":[1]}', b'{"id":2}'])

    assert batch.schema.names == ["value", "offset", "_error"]
    assert batch.column("value").to_pylist() == [
        {"id": 1, "name": "a", "at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"id": 2, "name": None, "at": None},
    ]
    assert batch.column("_error").null_count == 2


BAD = [
    b"",
    b"{",
    b"nonsense",
    b"[1]",
    b'{"id":"x"}',
    b'{"id":1.5}',
    b'{"id":99999999999999999999}',
    b'{"name":5}',
    b'{"at":"yesterday"}',
    b'{"id":1}{"id":2}',
    b'{"name":"\xff"}',
    b'{"id":1} trailing',
]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_value_is_told_in_its_own_row_and_spoils_no_other(bad: bytes) -> None:
    batch = decode([b'{"id":1}', bad, b'{"id":3}'])

    assert [value and value["id"] for value in batch.column("value").to_pylist()] == [1, None, 3]
    errors = batch.column("_error").to_pylist()
    assert errors[0] is None
    assert errors[2] is None
    assert errors[1]["value"] == bad
    assert errors[1]["cause"]


def test_all_the_bad_ones_at_once() -> None:
    batch = decode([*BAD, b'{"id":7}', *BAD])

    assert batch.column("_error").null_count == 1
    assert batch.column("value")[len(BAD)].as_py()["id"] == 7


def test_two_broken_halves_are_not_joined_to_one_document() -> None:
    batch = decode([b'{"id":1', b"}", b'{"id":2}{"id":3}', b'{"id":4}'])

    assert [value and value["id"] for value in batch.column("value").to_pylist()] == [
        *(None,) * 3,
        4,
    ]


@pytest.mark.parametrize(
    "odd",
    [b' {"id": 5}\n', b'{"id":4,"id":5}', b'{"id":\n5}', '{"id":5,"name":"ä\\u00e4"}'.encode()],
)
def test_odd_but_right_documents_are_read(odd: bytes) -> None:
    batch = decode([odd, b'{"id":1}'])

    assert batch.column("value")[0].as_py()["id"] == 5
    assert batch.column("_error").null_count == 2


@pytest.mark.parametrize("others", ["", ", m MAP<STRING, INT>"])
@pytest.mark.parametrize("neighbour", [b'{"n":1}', b"bad"])
def test_a_long_decimal_keeps_its_digits_whatever_stands_beside_it(
    others: str, neighbour: bytes
) -> None:
    batch = decode([b' {"n": 123456789012345678.12}', neighbour], "n DECIMAL(38, 2)" + others)

    assert batch.column("value")[0].as_py()["n"] == Decimal("123456789012345678.12")


@pytest.mark.parametrize("others", ["", ", m MAP<STRING, INT>"])
@pytest.mark.parametrize("bad", [b'{"i":1.5}', b'{"i":true}', b'{"d":true}', b'{"d":"1"}'])
def test_a_number_of_another_kind_is_a_fault_and_not_cut(others: str, bad: bytes) -> None:
    batch = decode([bad], "i INT, d DOUBLE" + others)

    assert batch.column("value")[0].as_py() is None
    assert batch.column("_error")[0].as_py()["cause"]


def test_tombstones_and_null_documents_are_null_without_an_error() -> None:
    batch = decode([None, b'{"id":1}', b"null", None])

    assert batch.column("value").is_valid().to_pylist() == [False, True, False, False]
    assert batch.column("_error").null_count == 4


def test_no_rows_at_all() -> None:
    assert decode([]).num_rows == 0
    assert decode([None]).column("value").null_count == 1


@pytest.mark.parametrize("with_map", [False, True])
def test_every_type_is_read_by_both_ways(with_map: bool) -> None:
    schema = (
        "b BOOLEAN, i INT, s SMALLINT, f FLOAT, d DOUBLE, n DECIMAL(10,2), day DATE, "
        "at TIMESTAMP, tags ARRAY<STRING>, inner STRUCT<x: INT, days: ARRAY<DATE>>"
    )
    if with_map:
        schema += ", m MAP<STRING, INT>, raw BINARY"
    document: dict[str, Any] = {
        "b": True,
        "i": 1,
        "s": 2,
        "f": 0.5,
        "d": 0.25,
        "n": "12.50",
        "day": "2026-02-03",
        "at": "2026-01-01T01:00:00.5+01:00",
        "tags": ["x", None],
        "inner": {"x": 1, "days": ["2026-02-04"]},
    }
    if with_map:
        document |= {"m": {"k": 1}, "raw": "aGk="}

    batch = decode([json.dumps(document).encode(), b"{}", b'{"i":"no"}'], schema)

    first, second, third = batch.column("value").to_pylist()
    assert third is None
    assert set(second.values()) == {None}
    assert first["at"] == datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    assert first["n"] == Decimal("12.50")
    assert first["day"] == date(2026, 2, 3)
    assert first["inner"] == {"x": 1, "days": [date(2026, 2, 4)]}
    assert first["tags"] == ["x", None]
    if with_map:
        assert first["m"] == [("k", 1)]
        assert first["raw"] == b"hi"


def test_the_frame_of_a_registry_is_passed_over() -> None:
    batch = decode([b'\0\0\0\0\x01{"id":1}', b"\0\0"], schemaRegistryUrl="http://127.0.0.1:1")

    assert batch.column("value")[0].as_py()["id"] == 1
    assert batch.column("_error").is_valid().to_pylist() == [False, True]
