"""What Spark gets when it asks for `format("millstream")`."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StringType, StructType

from millstream.errors import InvalidArgument
from millstream.spark.datasource import MillstreamDataSource
from millstream.spark.sink.stream_writer import MillstreamStreamWriter
from millstream.spark.sink.writer import MillstreamWriter
from millstream.spark.source.batch_reader import FilteringBatchReader, TopicBatchReader
from millstream.spark.source.stream_reader import TopicStreamReader

OPTIONS = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "orders"}
PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"


def source(**options: Any) -> MillstreamDataSource:
    return MillstreamDataSource(options={**OPTIONS, **options})


def test_spark_finds_the_format_by_its_name() -> None:
    from pyspark_millstream import DefaultSource

    assert DefaultSource.name() == "millstream"
    assert DefaultSource is MillstreamDataSource


def test_an_old_pyspark_is_told_when_the_format_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.1")

    told = r'format\("millstream"\) needs PySpark 4\.2 or newer, found 4\.1\.1: pip install'
    with pytest.raises(InvalidArgument, match=told):
        source()


def test_columns_are_those_of_sparks_own_connector() -> None:
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]

    assert source().schema().names == columns
    assert source(includeHeaders="true").schema().names == [*columns, "headers"]


def test_a_decoded_value_is_a_struct_and_faults_have_a_column() -> None:
    schema = source(valueFormat="json", valueSchema="id BIGINT").schema()

    assert schema["value"].dataType.simpleString() == "struct<id:bigint>"
    assert schema.names[-1] == "_error"


def test_only_the_worker_that_hands_filters_over_gets_a_reader_that_takes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = source().schema()
    monkeypatch.delitem(sys.modules, PUSHDOWN, raising=False)
    assert type(source().reader(schema)) is TopicBatchReader

    monkeypatch.setitem(sys.modules, PUSHDOWN, ModuleType(PUSHDOWN))
    assert type(source().reader(schema)) is FilteringBatchReader


def test_that_worker_may_also_be_the_main_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.machinery import ModuleSpec

    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(PUSHDOWN, None)
    monkeypatch.delitem(sys.modules, PUSHDOWN, raising=False)
    monkeypatch.setitem(sys.modules, "__main__", main)

    assert type(source().reader(source().schema())) is FilteringBatchReader


def test_readers_travel_to_executors() -> None:
    schema = source().schema()
    for reader in (source().reader(schema), source().streamReader(schema)):
        assert type(pickle.loads(pickle.dumps(reader))) is type(reader)
    assert isinstance(source().streamReader(schema), TopicStreamReader)


def test_writers_are_of_the_sink() -> None:
    rows = StructType().add("value", BinaryType())
    sink = MillstreamDataSource(options={"kafka.bootstrap.servers": "nowhere:1", "topic": "orders"})

    assert isinstance(sink.writer(rows, overwrite=False), MillstreamWriter)
    assert isinstance(sink.streamWriter(rows, overwrite=False), MillstreamStreamWriter)


def test_faults_of_options_are_told_when_a_reader_is_made() -> None:
    with pytest.raises(InvalidArgument, match=r"did you mean minPartitions\?"):
        source(minPartition="3").reader(StructType().add("topic", StringType()))
