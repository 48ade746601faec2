"""Protobuf of a schema registry to columns, as Confluent's own serializer has written it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.serialization.schema_registry import Reference, Schema, SchemaRegistryClient
from millstream.errors import InvalidArgument, SchemaRegistryError
from tests.confluent_serdes import confluent_modules, value_of
from tests.schema_registry import Registry, running_registry

pa = pytest.importorskip("pyarrow", reason="columns are Arrow's")
pytest.importorskip("pyspark", reason="types are Spark's")
pytest.importorskip("google.protobuf", reason="Protobuf is read with it")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402
from google.protobuf import timestamp_pb2 as timestamp_file  # noqa: E402

from millstream.spark.decoding.decoder import make_decoder  # noqa: E402
from tests.unit.spark.decoding.registry_decoding import causes, decode  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS_PROTO = """
syntax: "proto3" name: "orders.proto" package: "shop"
dependency: "money.proto" dependency: "google/protobuf/timestamp.proto"
message_type {
  name: "Order"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "price" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL
          type_name: ".shop.Money" }
  field { name: "at" number: 3 type: TYPE_MESSAGE label: LABEL_OPTIONAL
          type_name: ".google.protobuf.Timestamp" }
}
message_type {
  name: "Refund"
  field { name: "order" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "counts" number: 2 type: TYPE_MESSAGE label: LABEL_REPEATED
          type_name: ".shop.Refund.CountsEntry" }
  nested_type {
    name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
  }
  nested_type {
    name: "Reason"
    field { name: "text" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  }
}
"""
MONEY_PROTO = """
syntax: "proto3" name: "money.proto" package: "shop"
message_type {
  name: "Money"
  field { name: "cents" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
}
"""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


@pytest.fixture(scope="module")
def messages() -> dict[str, Any]:
    """Classes as a producer has them, in a pool of its own."""
    from google.protobuf import text_format

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_file.DESCRIPTOR.serialized_pb)
    for text in (MONEY_PROTO, ORDERS_PROTO):
        pool.Add(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()))
    names = ("shop.Order", "shop.Refund", "shop.Refund.Reason", "shop.Money")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names
    }


def write_protobuf(registry: Registry, message: Any, topic: str = "orders") -> bytes:
    """A message as Confluent's serializer writes it."""
    confluent = confluent_modules()
    peer = confluent.SchemaRegistryClient({"url": registry.url})
    options = {"use.deprecated.format": False}
    write = confluent.protobuf.ProtobufSerializer(type(message), peer, options)
    written: bytes = write(message, value_of(topic))
    return written


def test_protobuf_of_a_registry_brings_the_files_that_it_imports(
    registry: Registry, messages: dict[str, Any]
) -> None:
    order = messages["shop.Order"](id=7, price={"cents": 250}, at={"seconds": 1_700_000_000})

    batch = decode(registry, [write_protobuf(registry, order)], valueFormat="protobuf")

    assert causes(batch) == [None]
    assert batch.column("value").to_pylist() == [
        {
            "id": 7,
            "price": {"cents": 250},
            "at": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        }
    ]
    assert registry.schemas[1]["schema"].startswith("syntax")  # Unless asked for as serialized.


def test_another_message_of_the_file_is_a_fault_and_not_a_row(
    registry: Registry, messages: dict[str, Any]
) -> None:
    order = write_protobuf(registry, messages["shop.Order"](id=7))
    refund = write_protobuf(registry, messages["shop.Refund"](order=8))

    orders = decode(registry, [order, refund], valueFormat="protobuf")
    refunds = decode(registry, [order, refund], valueFormat="protobuf", valueMessage="shop.Refund")

    assert [each and each["id"] for each in orders.column("value").to_pylist()] == [7, None]
    assert causes(orders)[1] == "it was written as shop.Refund (schema 2), not as shop.Order"
    assert [each and each["order"] for each in refunds.column("value").to_pylist()] == [None, 8]


def test_a_message_within_a_message_is_found_whoever_counts_the_maps_before_it(
    registry: Registry, messages: dict[str, Any]
) -> None:
    by_python = write_protobuf(registry, messages["shop.Refund.Reason"](text="late"))
    by_java = by_python.replace(b"\x04\x02\x02", b"\x04\x02\x00")
    assert by_java != by_python

    batch = decode(
        registry,
        [by_python, by_java, by_python.replace(b"\x04\x02\x02", b"\x04\x02\x04")],
        valueFormat="protobuf",
        valueMessage="shop.Refund.Reason",
    )

    assert batch.column("value").to_pylist() == [{"text": "late"}, {"text": "late"}, None]
    assert causes(batch)[2] == "the schema has no message at the indexes [1, 2]"


def test_an_older_version_is_read_with_the_columns_of_the_latest(
    registry: Registry, messages: dict[str, Any]
) -> None:
    old = write_protobuf(registry, messages["shop.Order"](id=7))
    file = descriptor_pb2.FileDescriptorProto()
    messages["shop.Order"].DESCRIPTOR.file.CopyToProto(file)
    file.message_type[0].field.add(name="note", number=4, type=9, label=1)
    text = base64.b64encode(file.SerializeToString()).decode()
    client = SchemaRegistryClient(registry.url)
    client.register(
        "orders-value", Schema(text, "PROTOBUF", (Reference("money.proto", "money.proto", 1),))
    )

    batch = decode(registry, [old], valueFormat="protobuf")

    assert batch.column("value").to_pylist() == [{"id": 7, "price": None, "at": None, "note": ""}]


def test_bytes_that_are_no_frame_are_faults(registry: Registry, messages: dict[str, Any]) -> None:
    good = write_protobuf(registry, messages["shop.Order"](id=7))
    bad = [b"", b"\x01" + good[1:], good[:5], good[:1] + b"\0\0\0\x63" + good[5:]]

    found = causes(decode(registry, [good, *bad], valueFormat="protobuf"))

    assert found[0] is None
    assert ["not written with a schema registry" in str(each) for each in found[1:3]] == [True] * 2
    assert found[3] == "truncated message indexes"
    assert "Schema not found" in str(found[4])


def test_descriptors_of_protoc_serve_where_the_registry_has_the_ids_only(
    registry: Registry, messages: dict[str, Any]
) -> None:
    good = write_protobuf(registry, messages["shop.Order"](id=7))
    refund = write_protobuf(registry, messages["shop.Refund"](order=8))
    files = []
    for name in ("shop.Order", "shop.Money"):  # In no good order, and Timestamp is missing.
        files.append(descriptor_pb2.FileDescriptorProto())
        messages[name].DESCRIPTOR.file.CopyToProto(files[-1])
    described = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()

    batch = decode(
        registry,
        [good, refund],
        valueFormat="protobuf",
        valueSubject="",
        valueSchema=base64.b64encode(described).decode(),
        valueMessage="shop.Order",
    )

    assert batch.column("value")[0].as_py()["id"] == 7
    assert "written as shop.Refund" in str(causes(batch)[1])


def test_a_file_that_nobody_has_is_told(registry: Registry) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["lost.proto"])
    file.message_type.add(name="A")
    text = base64.b64encode(file.SerializeToString()).decode()
    SchemaRegistryClient(registry.url).register("orders-value", Schema(text, "PROTOBUF"))

    with pytest.raises(InvalidArgument, match=r"imports lost\.proto, which is not there"):
        decode(registry, [], valueFormat="protobuf")


def test_files_that_do_not_fit_together_are_told(registry: Registry) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto")
    file.message_type.add(name="A").field.add(
        name="b", number=1, type=11, label=1, type_name=".Nowhere"
    )
    text = base64.b64encode(file.SerializeToString()).decode()

    with pytest.raises(InvalidArgument, match="Nowhere"):
        make_decoder({"valueFormat": "protobuf", "valueSchema": text})


def test_options_of_confluents_need_not_be_there(registry: Registry) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["confluent/meta.proto"])
    file.message_type.add(name="A").field.add(name="id", number=1, type=3, label=1)
    text = base64.b64encode(file.SerializeToString()).decode()
    SchemaRegistryClient(registry.url).register("orders-value", Schema(text, "PROTOBUF"))

    batch = decode(registry, [b"\0\0\0\0\1\0\x08\x05"], valueFormat="protobuf")

    assert batch.column("value").to_pylist() == [{"id": 5}]


def test_a_registry_that_is_away_is_no_fault_of_the_records(
    registry: Registry, messages: dict[str, Any]
) -> None:
    data = write_protobuf(registry, messages["shop.Order"](id=7))
    decoder = make_decoder(
        {
            "schemaRegistryUrl": registry.url,
            "valueSubject": "orders-value",
            "valueFormat": "protobuf",
        }
    )
    assert decoder is not None
    batch = pa.record_batch({"value": pa.array([data], pa.binary())})

    registry.failures_left = 1_000
    with pytest.raises(SchemaRegistryError, match="Error while forwarding"):
        decoder.decode(batch)
    registry.failures_left = 0
    assert causes(decoder.decode(batch)) == [None]
