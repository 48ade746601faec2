"""Kafka's checkpoint files: small tables of numbers in text, replaced as a whole.

A version, a count, then one entry a line. `LogManager` keeps four of them with offsets per
partition; each log keeps one with its leader epochs and, if it has any, one of ours with what its
indexes of aborted transactions contain. A crash leaves the old table or the new one.
A file that is neither is an error that names file and line: nothing is guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import KafkaStorageError
from millstream.storage.filesystem import write_atomically
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.storage.filesystem import FileSystem

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
CLEANER_FILE: Final = "cleaner-offset-checkpoint"
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
ABORTED_FILE: Final = "aborted-transactions-checkpoint"

_VERSION: Final = "0"


def write_offsets(filesystem: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a table of one offset per partition."""
    lines = [f"{each.topic} {each.partition} {offset}" for each, offset in offsets.items()]
    write_atomically(filesystem, path, _render(lines))


def read_offsets(filesystem: FileSystem, path: str) -> dict[TopicPartition, int]:
    """The table; no file or an empty one is an empty table."""
    offsets = {}
    for number, (topic, partition, offset) in _read(filesystem, path, columns=3):
        where = f"{path}, line {number}"
        offsets[TopicPartition(topic, _number(partition, where))] = _number(offset, where)
    return offsets


def write_numbers(filesystem: FileSystem, path: str, rows: Iterable[Sequence[int]]) -> None:
    """Replace a table of rows of numbers."""
    write_atomically(filesystem, path, _render([" ".join(map(str, row)) for row in rows]))


def read_numbers(filesystem: FileSystem, path: str, columns: int) -> list[tuple[int, ...]]:
    """The table, in the file's order; no file or an empty one is an empty table."""
    return [
        tuple(_number(field, f"{path}, line {number}") for field in fields)
        for number, fields in _read(filesystem, path, columns)
    ]


def _render(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode()


def _read(filesystem: FileSystem, path: str, columns: int) -> list[tuple[int, list[str]]]:
    """The entries, split into columns, each with its line number."""
    try:
        data = filesystem.read_bytes(path)
    except FileNotFoundError:
        return []
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise KafkaStorageError(f"{path} is corrupt: it is not text ({error.reason})") from error
    if not lines:
        return []
    if lines[0].strip() != _VERSION:
        raise KafkaStorageError(f"{path}, line 1: version {lines[0]!r} is not known, only 0 is")
    if len(lines) < 2:
        raise KafkaStorageError(f"{path} is corrupt: the count of entries on line 2 is missing")
    expected = _number(lines[1], f"{path}, line 2")
    entries = [(number, line.split()) for number, line in enumerate(lines[2:], start=3)]
    if len(entries) != expected:
        raise KafkaStorageError(
            f"{path} is corrupt: {expected} entries expected, {len(entries)} found"
        )
    for number, fields in entries:
        if len(fields) != columns:
            raise KafkaStorageError(
                f"{path}, line {number} is corrupt: {columns} columns expected, {len(fields)} found"
            )
    return entries


def _number(text: str, where: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise KafkaStorageError(f"{where} is corrupt: {text!r} is not a number") from error
