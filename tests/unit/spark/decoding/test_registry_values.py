"""Avro and JSON of a schema registry to columns, beside Confluent's own serializers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.serialization.avro import AvroSerde
from millstream.client.serialization.schema_registry import Reference, Schema, SchemaRegistryClient
from millstream.errors import InvalidArgument, SchemaRegistryError
from tests.confluent_serdes import confluent_modules, value_of
from tests.schema_registry import Registry, running_registry

pa = pytest.importorskip("pyarrow", reason="columns are Arrow's")
pytest.importorskip("pyspark", reason="types are Spark's")
pytest.importorskip("fastavro", reason="Avro is read with it")

from pyspark.sql.types import LongType, StructField, StructType  # noqa: E402

from millstream.spark.decoding.decoder import make_decoder  # noqa: E402
from tests.unit.spark.decoding.registry_decoding import causes, decode  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


# Avro.

MONEY_AVRO = {
    "type": "record",
    "name": "Money",
    "namespace": "shop.types",
    "fields": [{"name": "cents", "type": "long"}],
}
OTHER_MONEY_AVRO = MONEY_AVRO | {
    "namespace": "bank",
    "fields": [{"name": "amount", "type": "string"}, {"name": "of", "type": "shop.types.Money"}],
}
ORDER_AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop.types",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": "Money"},
        {"name": "paid", "type": ["null", "bank.Money"], "default": None},
    ],
}


def register_avro(registry: Registry) -> tuple[SchemaRegistryClient, Schema]:
    client = SchemaRegistryClient(registry.url)
    client.register("money", Schema(json.dumps(MONEY_AVRO)))
    money = Reference("shop.types.Money", "money", 1)
    client.register("bank-money", Schema(json.dumps(OTHER_MONEY_AVRO), references=(money,)))
    references = (Reference("bank.Money", "bank-money", 1),)
    schema = Schema(json.dumps(ORDER_AVRO), references=references)
    client.register("orders-value", schema)
    return client, schema


def test_avro_of_a_registry_brings_the_schemas_that_it_refers_to(registry: Registry) -> None:
    client, schema = register_avro(registry)
    order = {
        "id": 7,
        "price": {"cents": 250},
        "paid": {"amount": "2.50", "of": {"cents": 250}},
    }
    confluent = confluent_modules()
    peer = confluent.SchemaRegistryClient({"url": registry.url})
    theirs = confluent.avro.AvroSerializer(
        peer, None, conf={"auto.register.schemas": False, "use.latest.version": True}
    )(order, value_of("orders"))
    ours = AvroSerde[Any](client, schema).serialize("orders", order, [])
    assert ours == theirs

    batch = decode(registry, [theirs], valueFormat="avro")

    assert causes(batch) == [None]
    assert batch.column("value").to_pylist() == [order]
    assert AvroSerde[Any](client, reader_schema=schema).deserialize("orders", theirs, ()) == order


def test_each_avro_value_is_read_with_the_schema_that_wrote_it(registry: Registry) -> None:
    client = SchemaRegistryClient(registry.url)
    first = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    named = {"name": "note", "type": "string", "default": "-"}
    second = first | {"fields": [named, {"name": "id", "type": "long"}]}
    old = AvroSerde[Any](client, first).serialize("orders", {"id": 1}, [])
    new = AvroSerde[Any](client, second).serialize("orders", {"id": 1 << 40, "note": "x"}, [])
    assert old is not None
    assert new is not None

    latest = decode(registry, [old, new], valueFormat="avro")
    only_ids = StructType([StructField("value", StructType([StructField("id", LongType())]))])
    narrow = decode(registry, [old, new], only_ids, valueFormat="avro", valueSubject="")

    expected = [{"note": "-", "id": 1}, {"note": "x", "id": 1 << 40}]
    assert latest.column("value").to_pylist() == expected
    assert narrow.column("value").to_pylist() == [{"id": 1}, {"id": 1 << 40}]


# JSON Schema.


def test_json_of_a_registry_brings_the_schemas_that_it_refers_to(registry: Registry) -> None:
    client = SchemaRegistryClient(registry.url)
    cents = {"$defs": {"a/b": {"type": "object", "properties": {"cents": {"type": "integer"}}}}}
    client.register("money", Schema(json.dumps(cents), "JSON"))
    price = {
        "type": "object",
        "properties": {"net": {"$ref": "money.json#/$defs/a~1b"}, "self": {"$ref": "#/$defs/s"}},
        "$defs": {"s": {"type": "string"}},
    }
    money = (Reference("money.json", "money", 1),)
    client.register("price", Schema(json.dumps(price), "JSON", money))
    order = {
        "$id": "https://shop.example/order.json",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"$ref": "https://shop.example/price.json"},
        },
    }
    schema = Schema(json.dumps(order), "JSON", (Reference("price.json", "price", 1),))
    client.register("orders-value", schema)

    batch = decode(
        registry,
        [b'\0\0\0\0\1{"id": 1, "price": {"net": {"cents": 5}, "self": "x"}}'],
        valueFormat="json",
    )

    assert batch.column("value").to_pylist() == [
        {"id": 1, "price": {"net": {"cents": 5}, "self": "x"}}
    ]


@pytest.mark.parametrize("columns", ["id BIGINT", "id BIGINT, m MAP<STRING, INT>"])
def test_json_without_the_registrys_frame_is_a_fault(registry: Registry, columns: str) -> None:
    values = [
        b'\0\0\0\0\1{"id": 1}',
        b'{"id": 2, "more": "than five bytes"}',
        b"\0\0\0",
        b'\0\0\0\0\1{"id": "x"}',
        b'\0\0\0\0\1{"id": 5}',
    ]

    batch = decode(registry, values, valueFormat="json", valueSchema=columns)

    found = [each and each["id"] for each in batch.column("value").to_pylist()]
    assert found == [1, None, None, None, 5]
    told = ["schema registry" in each if each else None for each in causes(batch)]
    assert told == [None, True, True, False, None]
    assert batch.column("_error")[1].as_py()["value"] == values[1]


# All.


def test_a_registry_that_is_away_is_no_fault_of_the_records(registry: Registry) -> None:
    client, schema = register_avro(registry)
    order = {"id": 1, "price": {"cents": 1}, "paid": None}
    data = AvroSerde[Any](client, schema).serialize("orders", order, [])
    decoder = make_decoder(
        {
            "schemaRegistryUrl": registry.url,
            "valueSubject": "orders-value",
            "valueFormat": "avro",
        }
    )
    assert decoder is not None
    batch = pa.record_batch({"value": pa.array([data], pa.binary())})

    registry.failures_left = 1_000
    with pytest.raises(SchemaRegistryError, match="Error while forwarding"):
        decoder.decode(batch)
    registry.failures_left = 0
    assert causes(decoder.decode(batch)) == [None]


def test_a_subject_of_another_kind_is_told(registry: Registry) -> None:
    register_avro(registry)

    with pytest.raises(InvalidArgument, match="has schemas of AVRO, which are not for"):
        decode(registry, [], valueFormat="protobuf")


@pytest.mark.parametrize("value_format", ["avro", "protobuf"])
def test_columns_alone_do_not_say_what_bytes_mean(value_format: str) -> None:
    schema = StructType([StructField("value", StructType([StructField("id", LongType())]))])

    with pytest.raises(InvalidArgument, match="needs valueSchema"):
        make_decoder({"valueFormat": value_format}, schema)
