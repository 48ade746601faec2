"""What the indexes of aborted transactions contain, so that the loss of one is noticed.

Most segments have no such index, so nothing tells that one is missing, and without it readers of
committed records would get aborted ones. A log that has any keeps a table of them: the segment's
base offset, the number of entries, and their checksum. It is written when a segment is closed or
replaced and when the log is closed; the loader compares and rebuilds what differs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.errors import KafkaStorageError
from millstream.storage.checkpoint import ABORTED_FILE, read_numbers, write_numbers

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.segment import LogSegment

_logger = logging.getLogger(__name__)


def write_aborted(filesystem: FileSystem, directory: str, segments: Iterable[LogSegment]) -> None:
    """Replace the table of a log; one that never had an aborted transaction has no file."""
    rows = [
        (segment.base_offset, *segment.indexes.transactions.fingerprint())
        for segment in segments
        if segment.indexes.transactions.entries()
    ]
    path = f"{directory}/{ABORTED_FILE}"
    if rows or filesystem.exists(path):
        write_numbers(filesystem, path, rows)


def find_damaged(
    filesystem: FileSystem, directory: str, segments: Iterable[LogSegment], indexed: Container[int]
) -> list[tuple[LogSegment, str]]:
    """The segments whose index of aborted transactions is not what it was, and how.

    `indexed` are the base offsets of those that have such a file.
    """
    try:
        rows = read_numbers(filesystem, f"{directory}/{ABORTED_FILE}", columns=3)
    except KafkaStorageError as error:
        _logger.warning("the loss of an index of aborted transactions cannot be seen: %s", error)
        rows = []
    expected = {base_offset: (count, checksum) for base_offset, count, checksum in rows}
    damaged = []
    for segment in segments:
        if segment.base_offset not in indexed and segment.base_offset not in expected:
            continue
        problem = _problem(segment, expected.get(segment.base_offset))
        if problem is not None:
            damaged.append((segment, problem))
    return damaged


def _problem(segment: LogSegment, expected: tuple[int, int] | None) -> str | None:
    index = segment.indexes.transactions
    try:
        found = index.fingerprint()
    except KafkaStorageError as error:
        return str(error)
    if expected is None or found == expected:
        return None
    return f"{index.path} has {found[0]} entries, there were {expected[0]}, or they are others"
