"""JSON with a schema, beside Confluent's own serializer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic
import pytest

from millstream.client.serialization.json_schema import JsonSchemaSerde
from millstream.client.serialization.schema_registry import Reference, Schema, SchemaRegistryClient
from millstream.errors import InvalidArgument, SerializationFailed

if TYPE_CHECKING:
    from tests.schema_registry import Registry

ORDER_JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}},
    "required": ["id"],
}


class Order(pydantic.BaseModel):
    id: int


class Parcel(msgspec.Struct):
    id: int


def test_json_schema_has_confluents_bytes_both_ways(
    registry: Registry, client: SchemaRegistryClient, confluent: Any, value_context: Any
) -> None:
    ours = JsonSchemaSerde[Any](client, json.dumps(ORDER_JSON))
    peer = confluent.SchemaRegistryClient({"url": registry.url})
    write = confluent.json_schema.JSONSerializer(json.dumps(ORDER_JSON), peer)
    read = confluent.json_schema.JSONDeserializer(json.dumps(ORDER_JSON))

    data = ours.serialize("orders", {"id": 7}, [])
    theirs = write({"id": 7}, value_context)

    assert data is not None
    assert data[:5] == theirs[:5]  # They put spaces into the JSON after it.
    assert read(data, value_context) == {"id": 7}
    assert ours.deserialize("orders", theirs, ()) == {"id": 7}


def test_json_is_checked_when_written_and_when_read(client: SchemaRegistryClient) -> None:
    strict = JsonSchemaSerde[Any](client, ORDER_JSON)
    careless = JsonSchemaSerde[Any](client, ORDER_JSON, validate=False)
    wrong = careless.serialize("orders", {"id": "seven"}, [])

    with pytest.raises(SerializationFailed, match="'seven' is not of type 'integer'"):
        strict.serialize("orders", {"id": "seven"}, [])
    with pytest.raises(SerializationFailed, match="'seven' is not of type 'integer'"):
        strict.deserialize("orders", wrong, ())
    assert careless.deserialize("orders", wrong, ()) == {"id": "seven"}


def test_a_reader_without_a_schema_checks_against_the_writers(client: SchemaRegistryClient) -> None:
    wrong = JsonSchemaSerde[Any](client, ORDER_JSON, validate=False).serialize("t", {}, [])

    with pytest.raises(SerializationFailed, match="'id' is a required property"):
        JsonSchemaSerde[Any](client).deserialize("t", wrong, ())


@pytest.mark.parametrize("value", [Order(id=7), Parcel(id=7)])
def test_models_bring_their_schema(
    registry: Registry, client: SchemaRegistryClient, value: Order | Parcel
) -> None:
    serde = JsonSchemaSerde[Any](client, model=type(value))

    data = serde.serialize("orders", value, [])

    assert serde.deserialize("orders", data, ()) == value
    assert "integer" in registry.schemas[0]["schema"]
    assert registry.schemas[0]["schemaType"] == "JSON"


def test_a_json_schema_may_refer_to_another(client: SchemaRegistryClient) -> None:
    client.register("order", Schema(json.dumps(ORDER_JSON), "JSON"))
    client.register(
        "baskets-value",
        Schema(
            json.dumps({"type": "array", "items": {"$ref": "order.json"}}),
            "JSON",
            (Reference("order.json", "order", 1),),
        ),
    )
    serde = JsonSchemaSerde[Any](client, auto_register=False, use_latest=True)

    assert serde.serialize("baskets", [{"id": 1}], []) is not None
    with pytest.raises(SerializationFailed, match="required property"):
        serde.serialize("baskets", [{}], [])


@pytest.mark.parametrize("own_address", ["", "https://shop.example/basket.json"])
def test_references_may_refer_to_others_and_stand_for_addresses(
    client: SchemaRegistryClient, own_address: str
) -> None:
    client.register("order", Schema(json.dumps(ORDER_JSON), "JSON"))
    orders = {"type": "array", "items": {"$ref": "order.json"}}
    order = Reference("order.json", "order", 1)
    client.register("orders", Schema(json.dumps(orders), "JSON", (order,)))
    basket: dict[str, Any] = {"$id": own_address} if own_address else {}
    basket |= {"type": "object", "properties": {"orders": {"$ref": "orders.json"}}}
    schema = Schema(json.dumps(basket), "JSON", (Reference("orders.json", "orders", 1),))
    serde = JsonSchemaSerde[Any](client, schema)

    data = serde.serialize("baskets", {"orders": [{"id": 1}]}, [])

    assert JsonSchemaSerde[Any](client).deserialize("baskets", data, ()) == {"orders": [{"id": 1}]}
    with pytest.raises(SerializationFailed, match="required property"):
        serde.serialize("baskets", {"orders": [{}]}, [])


def test_a_schema_and_a_model_are_too_much(client: SchemaRegistryClient) -> None:
    with pytest.raises(InvalidArgument, match="a schema or a model"):
        JsonSchemaSerde[Any](client, ORDER_JSON, model=Order)
