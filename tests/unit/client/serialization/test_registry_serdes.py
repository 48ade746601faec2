"""Serdes with a schema registry, beside Confluent's own serializers on the same registry."""

from __future__ import annotations

import base64
import json
import warnings
from typing import TYPE_CHECKING, Any

import msgspec
import pydantic
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from millstream.client.serialization import as_deserializer, as_serializer
from millstream.client.serialization.avro import AvroSerde
from millstream.client.serialization.framing import (
    decode_indexes,
    encode_indexes,
    subject_naming,
    unframe,
)
from millstream.client.serialization.json_schema import JsonSchemaSerde
from millstream.client.serialization.protobuf import ProtobufSerde
from millstream.client.serialization.schema_registry import (
    Reference,
    Schema,
    SchemaRegistryClient,
)
from millstream.errors import InvalidArgument, SchemaRegistryError, SerializationFailed
from tests.schema_registry import Registry, running_registry

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
}
ORDER_JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}},
    "required": ["id"],
}


@pytest.fixture(scope="module")
def confluent() -> Any:
    """Confluent's schema registry modules; one of their dependencies warns when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import confluent_kafka.schema_registry.avro
        import confluent_kafka.schema_registry.json_schema
        import confluent_kafka.schema_registry.protobuf

    return confluent_kafka.schema_registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


@pytest.fixture
def client(registry: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient(registry.url)


def value_context() -> Any:
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext("orders", MessageField.VALUE)


# Avro.


def test_avro_has_confluents_bytes_both_ways(
    registry: Registry, client: SchemaRegistryClient, confluent: Any
) -> None:
    ours = AvroSerde[Any](client, ORDER)
    peer = confluent.SchemaRegistryClient({"url": registry.url})
    write = confluent.avro.AvroSerializer(peer, json.dumps(ORDER))
    read = confluent.avro.AvroDeserializer(peer)
    order = {"id": 7, "note": "x"}

    data = ours.serialize("orders", order, [])

    assert data == write(order, value_context())
    assert read(data, value_context()) == order
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
    with pytest.raises(InvalidArgument, match="a schema or a model"):
        JsonSchemaSerde[Any](client, ORDER_JSON, model=Order)


def test_an_unnamed_schema_has_no_subject_by_record() -> None:
    with pytest.raises(SerializationFailed, match="no name"):
        subject_naming("record")("t", False, "")
    assert subject_naming(lambda topic, is_key, name: "mine")("t", False, "") == "mine"


# JSON Schema.


class Order(pydantic.BaseModel):
    id: int


class Parcel(msgspec.Struct):
    id: int


def test_json_schema_has_confluents_bytes_both_ways(
    registry: Registry, client: SchemaRegistryClient, confluent: Any
) -> None:
    ours = JsonSchemaSerde[Any](client, json.dumps(ORDER_JSON))
    peer = confluent.SchemaRegistryClient({"url": registry.url})
    write = confluent.json_schema.JSONSerializer(json.dumps(ORDER_JSON), peer)
    read = confluent.json_schema.JSONDeserializer(json.dumps(ORDER_JSON))

    data = ours.serialize("orders", {"id": 7}, [])
    theirs = write({"id": 7}, value_context())

    assert data is not None
    assert data[:5] == theirs[:5]  # They put spaces into the JSON after it.
    assert read(data, value_context()) == {"id": 7}
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


# Protobuf.


def message_types() -> dict[str, Any]:
    """`shop.Basket` with a nested `Line`, and `shop.Money` that it imports."""
    money = descriptor_pb2.FileDescriptorProto(
        name="money.proto",
        package="shop",
        syntax="proto3",
        message_type=[_message("Money", ("cents", "TYPE_INT64", ""))],
    )
    basket = descriptor_pb2.FileDescriptorProto(
        name="basket.proto",
        package="shop",
        syntax="proto3",
        dependency=["money.proto"],
        message_type=[
            _message("Other"),
            _message("Basket", ("total", "TYPE_MESSAGE", ".shop.Money")),
        ],
    )
    basket.message_type[1].nested_type.append(_message("Line", ("sku", "TYPE_STRING", "")))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(money)
    pool.Add(basket)
    names = ("shop.Money", "shop.Basket", "shop.Basket.Line", "shop.Other")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names
    }


def _message(name: str, *fields: tuple[str, str, str]) -> descriptor_pb2.DescriptorProto:
    kinds = descriptor_pb2.FieldDescriptorProto
    return descriptor_pb2.DescriptorProto(
        name=name,
        field=[
            kinds(
                name=field,
                number=number,
                label=kinds.LABEL_OPTIONAL,
                type=kinds.Type.Value(kind),
                type_name=type_name or None,
            )
            for number, (field, kind, type_name) in enumerate(fields, 1)
        ],
    )


@pytest.mark.parametrize("name", ["shop.Money", "shop.Basket", "shop.Basket.Line"])
def test_protobuf_has_confluents_bytes_both_ways(
    registry: Registry, client: SchemaRegistryClient, confluent: Any, name: str
) -> None:
    message_type = message_types()[name]
    message = message_type()
    if name == "shop.Basket":
        message.total.cents = 7
    ours = ProtobufSerde[Any](client, message_type)
    peer = confluent.SchemaRegistryClient({"url": registry.url})
    options = {"use.deprecated.format": False}
    write = confluent.protobuf.ProtobufSerializer(message_type, peer, options)
    read = confluent.protobuf.ProtobufDeserializer(message_type, options)

    data = ours.serialize("orders", message, [])

    assert data is not None
    assert data == write(message, value_context())
    assert read(data, value_context()) == message
    assert ours.deserialize("orders", data, ()) == message


def test_imported_files_are_registered_under_their_names(
    registry: Registry, client: SchemaRegistryClient
) -> None:
    basket = message_types()["shop.Basket"]

    ProtobufSerde[Any](client, basket, subject_name="record").serialize("t", basket(), [])

    assert sorted(registry.subjects) == ["money.proto", "shop.Basket"]
    assert registry.schemas[1]["references"] == [
        {"name": "money.proto", "subject": "money.proto", "version": 1}
    ]
    assert base64.b64decode(registry.schemas[0]["schema"]).startswith(b"\n\x0bmoney.proto")


def test_another_message_is_refused(client: SchemaRegistryClient) -> None:
    types = message_types()

    with pytest.raises(SerializationFailed, match=r"not a shop\.Money"):
        ProtobufSerde[Any](client, types["shop.Money"]).serialize("t", types["shop.Other"](), [])


@pytest.mark.parametrize("path", [[0], [1], [1, 0], [200, 3, 70_000]])
def test_the_path_to_a_message_round_trips(path: list[int]) -> None:
    assert decode_indexes(encode_indexes(path) + b"rest", 0) == (path, len(encode_indexes(path)))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x01", b"\x04\x00", b"\xfe\x01"])
def test_a_broken_path_is_told(data: bytes) -> None:
    with pytest.raises(SerializationFailed):
        decode_indexes(data, 0)


# The registry's client.


def test_the_registry_can_be_asked_for_everything(client: SchemaRegistryClient) -> None:
    schema = Schema('"string"')
    assert client.register("a/b", schema, normalize=True) == 1
    assert client.subjects() == ["a/b"]
    assert client.versions("a/b") == [1]
    assert client.version("a/b").schema == schema
    assert client.lookup("a/b", schema).version == 1
    assert client.compatibility() == "BACKWARD"
    client.set_compatibility("FULL", "a")
    assert client.compatibility("a") == "FULL"
    assert client.is_compatible("a/b", Schema('"compatible"'))
    assert not client.is_compatible("a/b", schema)
    assert client.delete("a/b", permanent=True) == [1]
    assert client.subjects() == []


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"username": "u", "password": "p"}, "Basic dTpw"),
        ({"token": "t"}, "Bearer t"),
        ({}, None),
    ],
)
def test_credentials_are_sent(
    registry: Registry, options: dict[str, Any], sent: str | None
) -> None:
    SchemaRegistryClient(registry.url, **options).subjects()

    assert registry.authorizations == {sent}


def test_a_registry_that_is_ill_is_asked_again_and_a_dead_one_is_passed_over(
    registry: Registry,
) -> None:
    registry.failures_left = 2
    client = SchemaRegistryClient(["http://127.0.0.1:9", registry.url])

    assert client.subjects() == []
    registry.failures_left = 99
    with pytest.raises(SchemaRegistryError, match="Error while forwarding") as failure:
        client.subjects()
    assert failure.value.code == 50003


def test_an_answer_that_is_not_the_api_is_told(registry: Registry) -> None:
    with pytest.raises(SchemaRegistryError, match="404"):
        SchemaRegistryClient(registry.url + "/elsewhere").subjects()
    with pytest.raises(SchemaRegistryError, match="does not answer"):
        SchemaRegistryClient("http://127.0.0.1:9", retries=0).subjects()


@pytest.mark.parametrize("url", ["", "localhost:8081", "ftp://host", []])
def test_an_address_must_be_one(url: Any) -> None:
    with pytest.raises(InvalidArgument, match="http://host:port"):
        SchemaRegistryClient(url)
