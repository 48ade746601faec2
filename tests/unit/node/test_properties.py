"""Where settings come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidConfig
from millstream.node.properties import (
    from_environment,
    parse_assignments,
    parse_properties,
    read_properties,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("  a = 1 \n b : 2\nc 3", {"a": "1 ", "b": "2", "c": "3"}),
        ("# no\n! no\n\na=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x=y", {"a": "x=y"}),
        ("a=", {"a": ""}),
        ("a", {"a": ""}),
        ("listeners=A://:1,\\\n    B://:2\nb=1", {"listeners": "A://:1,B://:2", "b": "1"}),
        ("path=C\\:\\\\x\\tz", {"path": "C:\\x\tz"}),
        ("a\\ b=\\u00e9", {"a b": "é"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*missing\.properties: No such file"):
        read_properties(str(tmp_path / "missing.properties"))
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match="binary is not a text file"):
        read_properties(str(binary))


def test_assignments_keep_what_follows_the_first_equals_sign() -> None:
    assert parse_assignments(["a=b=c", " x =1"]) == {"a": "b=c", "x": "1"}


@pytest.mark.parametrize("text", ["a", "=1", " =1"])
def test_an_assignment_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="write it as key=value"):
        parse_assignments([text])


def test_the_environment_names_keys_in_capitals() -> None:
    known = ["log.retention.ms", "millstream.durability", "node.id"]
    environment = {
        "MILLSTREAM_LOG_RETENTION_MS": "5",
        "MILLSTREAM_DURABILITY": "disk",
        "MILLSTREAM_NODE_IDD": "7",
        "MILLSTREAM_IMPL": "python",
        "MILLSTREAM_BOOTSTRAP_SERVER": "localhost:9092",
        "MILLSTREAM_SCHEMA_REGISTRY": "http://localhost:8081",
        "HOME": "/",
    }

    found, unknown = from_environment(environment, known)

    assert found == {"log.retention.ms": "5", "millstream.durability": "disk"}
    assert unknown == ["MILLSTREAM_NODE_IDD"]
