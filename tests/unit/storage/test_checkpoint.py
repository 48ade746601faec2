"""Checkpoint files: Kafka's bytes, and a clear error for anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import KafkaStorageError
from millstream.storage.checkpoint import read_numbers, read_offsets, write_numbers, write_offsets
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem


def put(filesystem: FileSystem, path: str, data: bytes) -> None:
    filesystem.open(path, create=True).pwrite(data, 0)


def test_offsets_are_written_as_kafka_writes_them(filesystem: FileSystem, directory: str) -> None:
    offsets = {TopicPartition("orders", 0): 42, TopicPartition("a.b-c_d", 17): 1 << 40}

    write_offsets(filesystem, f"{directory}/c", offsets)

    assert filesystem.read_bytes(f"{directory}/c") == (
        b"0\n2\norders 0 42\na.b-c_d 17 1099511627776\n"
    )
    assert read_offsets(filesystem, f"{directory}/c") == offsets


def test_epochs_are_written_as_kafka_writes_them(filesystem: FileSystem, directory: str) -> None:
    write_numbers(filesystem, f"{directory}/e", [(0, 0), (5, 1000)])

    assert filesystem.read_bytes(f"{directory}/e") == b"0\n2\n0 0\n5 1000\n"
    assert read_numbers(filesystem, f"{directory}/e", columns=2) == [(0, 0), (5, 1000)]


def test_no_file_and_an_empty_file_are_empty_tables(filesystem: FileSystem, directory: str) -> None:
    put(filesystem, f"{directory}/empty", b"")

    assert read_offsets(filesystem, f"{directory}/none") == {}
    assert read_offsets(filesystem, f"{directory}/empty") == {}
    write_numbers(filesystem, f"{directory}/zero", [])
    assert read_numbers(filesystem, f"{directory}/zero", columns=2) == []


def test_a_new_table_replaces_the_old_one(filesystem: FileSystem, directory: str) -> None:
    write_offsets(filesystem, f"{directory}/c", {TopicPartition("long-name", 1): 123456})
    write_offsets(filesystem, f"{directory}/c", {TopicPartition("t", 0): 1})

    assert read_offsets(filesystem, f"{directory}/c") == {TopicPartition("t", 0): 1}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"1\n0\n", "line 1: version '1' is not known"),
        (b"0\n", "count of entries"),
        (b"0\ntwo\n", "line 2 is corrupt: 'two' is not a number"),
        (b"0\n2\na 0 1\n", "2 entries expected, 1 found"),
        (b"0\n1\na 0 1\nb 0 1\n", "1 entries expected, 2 found"),
        (b"0\n1\na 0\n", "line 3 is corrupt: 3 columns expected, 2 found"),
        (b"0\n1\na x 1\n", "line 3 is corrupt: 'x' is not a number"),
        (b"0\n1\na 0 1.5\n", "line 3 is corrupt: '1.5' is not a number"),
        (b"\xff\xfe\x00", "it is not text"),
        (b"\0" * 20, "version"),
    ],
)
def test_a_corrupt_table_is_an_error_that_names_the_place(
    filesystem: FileSystem, directory: str, content: bytes, complaint: str
) -> None:
    put(filesystem, f"{directory}/c", content)

    with pytest.raises(KafkaStorageError) as caught:
        read_offsets(filesystem, f"{directory}/c")

    assert f"{directory}/c" in str(caught.value)
    assert complaint in str(caught.value)
