"""Avro and Protobuf values to columns, with and without a registry."""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from millstream.client.serialization.avro import AvroSerde
from millstream.client.serialization.schema_registry import Schema, SchemaRegistryClient
from millstream.errors import InvalidArgument
from tests.schema_registry import running_registry

pa = pytest.importorskip("pyarrow", reason="columns are Arrow's")
pytest.importorskip("pyspark", reason="types are Spark's")
fastavro = pytest.importorskip("fastavro", reason="Avro is read with it")
pytest.importorskip("google.protobuf", reason="Protobuf is read with it")

from google.protobuf import descriptor_pb2, message_factory  # noqa: E402

from millstream.spark.decoding.avro_values import avro_type  # noqa: E402
from millstream.spark.decoding.decoder import make_decoder  # noqa: E402
from millstream.spark.decoding.json_schema import json_schema_type  # noqa: E402
from millstream.spark.decoding.protobuf_values import protobuf_type  # noqa: E402

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "last", "type": ["null", "State"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "lines", "type": {"type": "array", "items": ["int", "long"]}},
    ],
}
VALUE: dict[str, Any] = {
    "id": 7,
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "amount": Decimal("12.50"),
    "note": None,
    "state": "PAID",
    "last": "NEW",
    "tags": {"a": 1},
    "token": UUID(int=5),
    "lines": [1, 1 << 40],
}


def decode(values: list[bytes], **options: str) -> Any:
    decoder = make_decoder(options)
    assert decoder is not None
    return decoder.decode(pa.record_batch({"value": pa.array(values, pa.binary())}))


def avro_bytes(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return out.getvalue()


def test_avro_of_a_given_schema_becomes_columns() -> None:
    good = avro_bytes(VALUE)

    batch = decode(
        [good, b"\x01", good + b"more"], valueFormat="avro", valueSchema=json.dumps(ORDER)
    )

    first, *bad = batch.column("value").to_pylist()
    assert first == {**VALUE, "tags": [("a", 1)], "token": str(VALUE["token"])}
    assert bad == [None, None]
    assert batch.column("_error")[2].as_py()["cause"] == "4 bytes are left over"


def test_avro_of_a_registry_is_resolved_to_the_latest_schema() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    new = {**old, "fields": [*old["fields"], {"name": "x", "type": "string", "default": "-"}]}
    with running_registry() as registry:
        client = SchemaRegistryClient(registry.url)
        framed = AvroSerde[Any](client, old).serialize("t", {"id": 3}, [])
        assert framed is not None
        client.register("t-value", Schema(json.dumps(new)))

        batch = decode(
            [framed, b"not framed"],
            valueFormat="avro",
            schemaRegistryUrl=registry.url,
            valueSubject="t-value",
        )

    assert batch.column("value").to_pylist() == [{"id": 3, "x": "-"}, None]
    assert "schema registry" in batch.column("_error")[1].as_py()["cause"]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "no JSON"),
        ('"string"', "no record"),
        ('{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}', "refers to itself"),
        (
            '{"type":"record","name":"R","fields":[{"name":"r","type":["int","string"]}]}',
            "no type in Spark",
        ),
    ],
)
def test_avro_schemas_without_columns_are_told(schema: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        avro_type(schema)


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    order.field.add(name="big", number=2, type=field.TYPE_UINT64, label=field.LABEL_OPTIONAL)
    order.field.add(name="tags", number=3, type=field.TYPE_STRING, label=field.LABEL_REPEATED)
    order.field.add(name="raw", number=4, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    order.field.add(
        name="state",
        number=5,
        type=field.TYPE_ENUM,
        type_name=".shop.State",
        label=field.LABEL_OPTIONAL,
    )
    inner = order.nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    order.field.add(
        name="inner",
        number=6,
        type=field.TYPE_MESSAGE,
        type_name=".shop.Order.Inner",
        label=field.LABEL_OPTIONAL,
    )
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    order.field.add(
        name="counts",
        number=7,
        type=field.TYPE_MESSAGE,
        type_name=".shop.Order.CountsEntry",
        label=field.LABEL_REPEATED,
    )
    return file


def order_class(file: descriptor_pb2.FileDescriptorProto) -> Any:
    return message_factory.GetMessages([file])["shop.Order"]


def test_protobuf_becomes_columns() -> None:
    file = proto_file()
    order = order_class(file)(id=7, big=(1 << 63) + 1, tags=["a"], raw=b"r", state=1)
    order.counts["k"] = 2
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()

    batch = decode(
        [order.SerializeToString(), b"\xff"],
        valueFormat="protobuf",
        valueSchema=base64.b64encode(descriptors).decode(),
        valueMessage="shop.Order",
    )

    assert batch.column("value").to_pylist() == [
        {
            "id": 7,
            "big": Decimal((1 << 63) + 1),
            "tags": ["a"],
            "raw": b"r",
            "state": "PAID",
            "inner": None,
            "counts": [("k", 2)],
        },
        None,
    ]


def test_a_single_file_and_its_first_message_are_found() -> None:
    text = base64.b64encode(proto_file().SerializeToString()).decode()

    assert protobuf_type(text, None).names[:2] == ["id", "big"]


@pytest.mark.parametrize(
    ("schema", "message", "says"),
    [
        ("syntax = 'proto3';", None, "no descriptor set"),
        (base64.b64encode(proto_file().SerializeToString()).decode(), "shop.Nothing", "no such"),
        (
            base64.b64encode(
                descriptor_pb2.FileDescriptorProto(name="e.proto").SerializeToString()
            ).decode(),
            None,
            "no message",
        ),
    ],
)
def test_protobuf_schemas_without_columns_are_told(
    schema: str, message: str | None, says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        protobuf_type(schema, message)


def test_a_json_schema_of_a_registry_gives_the_columns() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["null", "number"]},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "who": {"$ref": "#/$defs/Who"},
            "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "$defs": {"Who": {"type": "object", "properties": {"name": {"type": "string"}}}},
    }

    assert json_schema_type(json.dumps(schema)).simpleString() == (
        "struct<id:bigint,price:double,at:timestamp,tags:array<string>,counts:map<string,bigint>,"
        "who:struct<name:string>,maybe:boolean>"
    )


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ('{"type":"string"}', "not of an object"),
        ('{"type":"object","properties":{"x":{}}}', "give the columns as valueSchema"),
        ('{"$ref":"http://elsewhere"}', "refers to"),
        ('{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}', "nested more than"),
    ],
)
def test_json_schemas_without_columns_are_told(schema: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        json_schema_type(schema)


@pytest.mark.parametrize(
    ("kind", "logical", "expected"),
    [
        ("int", "time-millis", 1_500),
        ("long", "time-micros", 1_500),
        ("long", "local-timestamp-millis", datetime(1970, 1, 1, 0, 0, 1, 500_000)),  # noqa: DTZ001
        ("long", "local-timestamp-micros", datetime(1970, 1, 1, 0, 0, 0, 1_500)),  # noqa: DTZ001
    ],
)
def test_times_of_day_are_numbers_and_local_times_have_no_zone(
    kind: str, logical: str, expected: object
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "t", "type": kind}]}
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), {"t": 1_500})
    schema["fields"] = [{"name": "t", "type": {"type": kind, "logicalType": logical}}]
    decoder = make_decoder({"valueFormat": "avro", "valueSchema": json.dumps(schema)})
    assert decoder is not None

    batch = decoder.decode(pa.record_batch({"value": pa.array([data.getvalue()], pa.binary())}))

    assert batch.column("value").to_pylist() == [{"t": expected}]
