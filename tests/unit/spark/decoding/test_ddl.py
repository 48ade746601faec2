"""Spark's DDL as it is read without Spark."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidArgument

pytest.importorskip("pyspark", reason="types are Spark's")

from millstream.spark.decoding.ddl import parse_ddl


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("id BIGINT, name string", "struct<id:bigint,name:string>"),
        (
            "id: long NOT NULL COMMENT 'the id', n DECIMAL(12, 3)",
            "struct<id:bigint,n:decimal(12,3)>",
        ),
        ("STRUCT<a: INT, b: DEC>", "struct<a:int,b:decimal(10,0)>"),
        ("a ARRAY<MAP<STRING, STRUCT<x: DATE>>>", "struct<a:array<map<string,struct<x:date>>>>"),
        ("`odd name` TINYINT, struct STRING", "struct<odd name:tinyint,struct:string>"),
        ("n NUMERIC(5)", "struct<n:decimal(5,0)>"),
    ],
)
def test_columns_are_as_spark_reads_them(text: str, means: str) -> None:
    assert parse_ddl(text).simpleString() == means


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'the end' is no name"),
        ("id", "'the end' is no type"),
        ("id BIGNT", "'bignt' is no type"),
        ("id INT name STRING", "'name' instead of ','"),
        ("a ARRAY<INT", "'' instead of '>'"),
        ("n DECIMAL(x)", "'x' is no number"),
        ("STRUCT<a: INT> b", "'b' instead of 'the end'"),
        ("<", "'<' is no name"),
    ],
)
def test_what_is_wrong_is_told(text: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        parse_ddl(text)
