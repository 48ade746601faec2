"""Protobuf with a schema registry, beside Confluent's own serializer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from millstream.client.serialization.framing import decode_indexes, encode_indexes
from millstream.client.serialization.protobuf import ProtobufSerde
from millstream.errors import SerializationFailed

if TYPE_CHECKING:
    from millstream.client.serialization.schema_registry import SchemaRegistryClient
    from tests.schema_registry import Registry


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
    registry: Registry, client: SchemaRegistryClient, confluent: Any, value_context: Any, name: str
) -> None:
    message_type = message_types()[name]
    message = message_type()
    if name == "shop.Basket":
        message.total.cents = 7
    ours = ProtobufSerde[Any](client, message_type)
    peer = confluent.SchemaRegistryClient({"url": registry.url})
    options = {"use.deprecated.format": False}
    write = confluent.protobuf.ProtobufSerializer(message_type, peer, options)
    read = confluent.protobuf.ProtobufDeserializer(message_type, options, peer)

    data = ours.serialize("orders", message, [])

    assert data is not None
    assert data == write(message, value_context)
    assert read(data, value_context) == message
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
    assert registry.schemas[0]["schema"].splitlines() == [
        'syntax = "proto3";',
        "package shop;",
        "message Money {",
        "  int64 cents = 1;",
        "}",
    ]


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
