"""Values that cannot be decoded, through Spark to a dead-letter topic: batches, streams, restarts.

What is promised: every bad record has a letter, once for each time that a task reads it. A batch
that is done is not read again, so restarts in good order repeat none; a batch that is run again
does. The headers name the record, so a reader of letters knows the second from the first. Pipelines
bury by a query of their own, exactly once (`test_pipeline_runs`).
"""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from millstream.spark.worker_clients import close_all
from tests.spark.source_world import SourceWorld
from tests.spark.test_sink_stream import forget_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from millstream.testing.embedded import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration

JSON = {"valueFormat": "json", "valueSchema": "id BIGINT"}
PLACE = ("millstream.retry.topic", "millstream.retry.partition", "millstream.retry.offset")


@pytest.fixture
def world(millstream_broker: EmbeddedBroker) -> Iterator[SourceWorld]:
    yield SourceWorld(millstream_broker)
    close_all()


def avro() -> tuple[dict[str, str], bytes]:
    """Options, and the value {"id": 1}."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"id": 1})
    return {"valueFormat": "avro", "valueSchema": json.dumps(schema)}, out.getvalue()


def protobuf() -> tuple[dict[str, str], bytes]:
    """The same."""
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="p", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="R")
    message.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    described = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return {
        "valueFormat": "protobuf",
        "valueSchema": base64.b64encode(described).decode(),
    }, b"\x08\x01"


def as_json() -> tuple[dict[str, str], bytes]:
    """The same."""
    return JSON, b'{"id": 1}'


def letters(world: SourceWorld, graves: str) -> list[tuple[bytes, tuple[str, ...]]]:
    """Value and place of every letter, in order."""
    found = []
    for row in world.rows(subscribe=graves, includeHeaders="true"):
        headers = {each["key"]: each["value"].decode() for each in row["headers"]}
        assert headers["millstream.retry.error.type"] == "millstream.errors.SerializationFailed"
        found.append((row["value"], tuple(headers[name] for name in PLACE)))
    return sorted(found)


@pytest.mark.parametrize("form", [as_json, avro, protobuf])
def test_a_batch_buries_what_it_cannot_decode_and_gives_the_rest(
    form: Callable[[], tuple[dict[str, str], bytes]],
    world: SourceWorld,
    spark: SparkSession,
    millstream_topic: TopicFactory,
) -> None:
    decoding, good = form()
    topic, graves = millstream_topic("values", partitions=2), millstream_topic("graves")
    world.produce(topic, good, b"\xff\xff")
    world.produce(topic, b"\xff", good, partition=1)
    buried = {"onDecodeError": "deadLetter", "deadLetterTopic": graves}

    read = spark.read.format("millstream").options(
        **world.options(subscribe=topic, **decoding, **buried)
    )
    rows = read.load().selectExpr("value.id", "partition", "offset").collect()

    assert sorted(map(tuple, rows)) == [(1, 0, 0), (1, 1, 1)]
    assert letters(world, graves) == [
        (b"\xff", (topic, "1", "0")),
        (b"\xff\xff", (topic, "0", "1")),
    ]


def test_a_stream_that_goes_on_buries_no_record_again_unless_a_batch_is_run_again(
    world: SourceWorld, spark: SparkSession, millstream_topic: TopicFactory, tmp_path: Path
) -> None:
    topic, graves = millstream_topic("values"), millstream_topic("graves")
    ids: list[int] = []
    options: dict[str, Any] = world.options(
        subscribe=topic,
        startingOffsets="earliest",
        onDecodeError="deadLetter",
        deadLetterTopic=graves,
        **JSON,
    )

    def note(batch: DataFrame, _number: int) -> None:
        ids.extend(row.id for row in batch.collect())

    def run() -> None:
        frame = spark.readStream.format("millstream").options(**options).load()
        writing = frame.selectExpr("value.id").writeStream.foreachBatch(note)
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writing.trigger(availableNow=True).start().awaitTermination(90)

    first, second = (b"bad", (topic, "0", "1")), (b"worse", (topic, "0", "2"))
    world.produce(topic, b'{"id": 0}', b"bad")
    run()
    world.produce(topic, b"worse", b'{"id": 3}')
    run()
    assert (ids, letters(world, graves)) == ([0, 3], [first, second])

    forget_commit(tmp_path / "checkpoint", 1)
    run()
    assert (ids, letters(world, graves)) == ([0, 3, 3], [first, second, second])
