"""The names of files and directories in a log directory, and how to read them back.

Kafka's, all of them: `orders-0` is a partition's log, `00000000000000000042.log` a segment of it.
A suffix says what became of it. Names only: nothing here touches the disk.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.types import TopicPartition

if TYPE_CHECKING:
    from millstream.types import Uuid

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_EXTENSIONS: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

DELETED: Final = ".deleted"
"""Waits for its removal; nobody reads it any more."""
CLEANED: Final = ".cleaned"
"""Half-written by the cleaner; worth nothing after a crash."""
SWAP: Final = ".swap"
"""Written whole by the cleaner; about to take the place of what it was made from."""

_NAME_LENGTH_MAX: Final = 255
_SEGMENT = re.compile(
    r"([0-9]{20})(\.(?:log|index|timeindex|txnindex|snapshot))(\.(?:deleted|cleaned|swap))?",
    re.ASCII,
)
_PARTITION = re.compile(
    r"([a-zA-Z0-9._-]+)-([0-9]+)(?:\.([0-9a-f]{32})-(delete|future|stray))?", re.ASCII
)


class SegmentFileName(NamedTuple):
    """What a file's name in a partition's directory says."""

    base_offset: int
    extension: str
    suffix: str


class PartitionDirectoryName(NamedTuple):
    """What a directory's name in a log directory says; `state` is empty for a log in use."""

    partition: TopicPartition
    state: str


def segment_file_name(base_offset: int, extension: str, suffix: str = "") -> str:
    """Such as `00000000000000000042.index.cleaned`."""
    return f"{base_offset:020d}{extension}{suffix}"


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """Read a name; None if the file is something else."""
    match = _SEGMENT.fullmatch(name)
    return match and SegmentFileName(int(match[1]), match[2], match[3] or "")


def partition_directory_name(partition: TopicPartition) -> str:
    """Such as `orders-0`."""
    return f"{partition.topic}-{partition.partition}"


def renamed_directory_name(partition: TopicPartition, unique_id: Uuid, state: str) -> str:
    """Such as `orders-0.<32 hex digits>-delete`; a long topic is cut so that the name fits."""
    tail = f"-{partition.partition}.{unique_id.hex()}-{state}"
    return partition.topic[: _NAME_LENGTH_MAX - len(tail)] + tail


def parse_partition_directory_name(name: str) -> PartitionDirectoryName | None:
    """Read a name; None if the directory is something else.

    The topic of a `-delete` directory may have been cut.
    """
    match = _PARTITION.fullmatch(name)
    if match is None:
        return None
    return PartitionDirectoryName(TopicPartition(match[1], int(match[2])), match[4] or "")
