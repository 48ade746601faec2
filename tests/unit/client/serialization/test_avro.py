"""Avro with a schema registry, beside Confluent's own serializer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.serialization import as_deserializer, as_serializer
from millstream.client.serialization.avro import AvroSerde
from millstream.client.serialization.framing import subject_naming, unframe
from millstream.client.serialization.schema_registry import Reference, Schema, SchemaRegistryClient
from millstream.errors import InvalidArgument, SchemaRegistryError, SerializationFailed

if TYPE_CHECKING:
    from tests.schema_registry import Registry

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
}


def test_avro_has_confluents_bytes_both_ways(
    registry: Registry, client: SchemaRegistryClient, confluent: Any, value_context: Any
) -> None:
    ours = AvroSerde[Any](client, ORDER)
    peer = confluent.SchemaRegistryClient({"url": registry.url})
    write = confluent.avro.AvroSerializer(peer, json.dumps(ORDER))
    read = confluent.avro.AvroDeserializer(peer)
    order = {"id": 7, "note": "x"}

    data = ours.serialize("orders", order, [])

    assert data == write(order, value_context)
    assert read(data, value_context) == order
    assert ours.deserialize("orders", data, ()) == order
    assert list(registry.subjects) == ["orders-value"]


def test_a_schema_is_asked_for_once(registry: Registry, client: SchemaRegistryClient) -> None:
    serde = AvroSerde[Any](client, ORDER)
    for number in range(5):
        data = serde.serialize("orders", {"id": number, "note": ""}, [])
        serde.deserialize("orders", data, ())

    assert len(registry.requests) == 2


def test_an_older_reader_is_resolved_to(client: SchemaRegistryClient) -> None:
    data = AvroSerde[Any](client, ORDER).serialize("orders", {"id": 7, "note": "x"}, [])
    without_note = ORDER | {"fields": [{"name": "id", "type": "long"}]}

    assert AvroSerde[Any](client, reader_schema=without_note).deserialize("orders", data, ()) == {
        "id": 7
    }


def test_objects_go_through_their_functions(client: SchemaRegistryClient) -> None:
    serde = AvroSerde[complex](
        client,
        {"type": "array", "items": "double"},
        to_dict=lambda value: [value.real, value.imag],
        from_dict=lambda pair: complex(*pair),
    )

    assert serde.deserialize("t", serde.serialize("t", 1 + 2j, []), ()) == 1 + 2j


def test_a_primitive_may_be_a_bare_word(client: SchemaRegistryClient) -> None:
    serde = AvroSerde[str](client, "string")

    assert serde.deserialize("t", serde.serialize("t", "hello", []), ()) == "hello"


def test_without_a_schema_the_latest_of_the_subject_writes(
    registry: Registry, client: SchemaRegistryClient
) -> None:
    client.register("orders-value", Schema(json.dumps(ORDER)))

    data = AvroSerde[Any](client).serialize("orders", {"id": 1, "note": ""}, [])

    assert data is not None
    assert unframe(data)[0] == 1


def test_a_schema_that_must_be_there_and_is_not_is_an_error(client: SchemaRegistryClient) -> None:
    serde = AvroSerde[Any](client, ORDER, auto_register=False)

    with pytest.raises(SchemaRegistryError, match="Subject 'orders-value' not found") as failure:
        serde.serialize("orders", {"id": 1, "note": ""}, [])

    assert failure.value.code == 40401
    client.register("orders-value", Schema(json.dumps(ORDER)))
    assert serde.serialize("orders", {"id": 1, "note": ""}, []) is not None


def test_keys_and_values_have_subjects_of_their_own(
    registry: Registry, client: SchemaRegistryClient
) -> None:
    serde = AvroSerde[Any](client, "string")

    as_serializer(serde, is_key=True).serialize("t", "k", [])
    as_serializer(serde).serialize("t", "v", [])

    assert sorted(registry.subjects) == ["t-key", "t-value"]
    assert as_deserializer(serde, is_key=True) is not serde


@pytest.mark.parametrize(
    ("naming", "subject"), [("record", "shop.Order"), ("topic-record", "orders-shop.Order")]
)
def test_subjects_may_be_named_by_record(
    registry: Registry, client: SchemaRegistryClient, naming: str, subject: str
) -> None:
    AvroSerde[Any](client, ORDER, subject_name=naming).serialize(
        "orders", {"id": 1, "note": ""}, []
    )

    assert list(registry.subjects) == [subject]


LIST_OF_ORDERS = {"type": "array", "items": "shop.Order"}
BASKET = {
    "type": "record",
    "name": "Basket",
    "fields": [{"name": "gift", "type": "shop.Order"}, {"name": "orders", "type": LIST_OF_ORDERS}],
}


@pytest.mark.parametrize(
    ("basket", "value"),
    [
        (LIST_OF_ORDERS, [{"id": 1, "note": "a"}, {"id": 2, "note": "b"}]),
        (BASKET, {"gift": {"id": 1, "note": ""}, "orders": [{"id": 2, "note": ""}]}),
        (["null", "shop.Order"], {"id": 1, "note": "a"}),
    ],
)
def test_a_schema_may_refer_to_another(
    client: SchemaRegistryClient, basket: Any, value: object
) -> None:
    client.register("order", Schema(json.dumps(ORDER)))
    schema = Schema(json.dumps(basket), references=(Reference("shop.Order", "order", 1),))

    data = AvroSerde[Any](client, schema).serialize("baskets", value, [])

    assert AvroSerde[Any](client).deserialize("baskets", data, ()) == value


def test_a_value_that_does_not_fit_the_schema_is_told(client: SchemaRegistryClient) -> None:
    with pytest.raises(SerializationFailed, match="AvroSerde cannot serialize dict"):
        AvroSerde[Any](client, ORDER).serialize("orders", {"id": "seven"}, [])


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\1\0\0\0\1x", b'{"id":7}'])
def test_bytes_without_a_schema_id_are_told(client: SchemaRegistryClient, data: bytes) -> None:
    with pytest.raises(SerializationFailed, match="not written with a schema registry"):
        AvroSerde[Any](client, ORDER).deserialize("orders", data, ())


def test_bytes_that_are_too_many_or_too_few_are_told(client: SchemaRegistryClient) -> None:
    serde = AvroSerde[Any](client, ORDER)
    data = serde.serialize("orders", {"id": 1, "note": "abc"}, [])
    assert data is not None

    for broken in (data[:-1], data + b"x"):
        with pytest.raises(SerializationFailed, match="AvroSerde cannot read"):
            serde.deserialize("orders", broken, ())


def test_tombstones_need_no_schema(registry: Registry, client: SchemaRegistryClient) -> None:
    serde = AvroSerde[Any](client, ORDER)

    assert serde.serialize("orders", None, []) is None
    assert serde.deserialize("orders", None, ()) is None
    assert registry.requests == []


def test_contradictory_options_are_refused(client: SchemaRegistryClient) -> None:
    with pytest.raises(InvalidArgument, match="auto_register=False"):
        AvroSerde[Any](client, ORDER, use_latest=True)
    with pytest.raises(InvalidArgument, match="topic, record, topic-record"):
        AvroSerde[Any](client, ORDER, subject_name="nonsense")


def test_an_unnamed_schema_has_no_subject_by_record() -> None:
    with pytest.raises(SerializationFailed, match="no name"):
        subject_naming("record")("t", False, "")
    assert subject_naming(lambda topic, is_key, name: "mine")("t", False, "") == "mine"
