"""The files of a node's directories, by kind: found by their names, opened to be read only.

`log dump` looks at them. A broker may be running on them meanwhile: nothing here can write.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.metadata.bootstrap import BOOTSTRAP_FILE_NAME
from millstream.metadata.quorum_state_store import QUORUM_STATE_FILE
from millstream.storage.checkpoint import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from millstream.storage.disk import DiskFile, DiskFileSystem
from millstream.storage.file_names import (
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_partition_directory_name,
    parse_segment_file_name,
)
from millstream.storage.manager.meta_properties import META_PROPERTIES_FILE, PARTITION_METADATA_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class FileKind(Enum):
    """What a file is."""

    META_PROPERTIES = "owner of the directory"
    OFFSET_CHECKPOINT = "checkpoint of offsets"
    METADATA_SNAPSHOT = "snapshot of metadata"
    QUORUM_STATE = "state of the quorum"
    PARTITION_METADATA = "topic of the log"
    EPOCH_CHECKPOINT = "checkpoint of leader epochs"
    SEGMENT = "segment"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "index of aborted transactions"
    PRODUCER_SNAPSHOT = "snapshot of producers"


_KIND_BY_NAME: Final = {
    META_PROPERTIES_FILE: FileKind.META_PROPERTIES,
    RECOVERY_POINT_FILE: FileKind.OFFSET_CHECKPOINT,
    HIGH_WATERMARK_FILE: FileKind.OFFSET_CHECKPOINT,
    LOG_START_FILE: FileKind.OFFSET_CHECKPOINT,
    CLEANER_FILE: FileKind.OFFSET_CHECKPOINT,
    BOOTSTRAP_FILE_NAME: FileKind.METADATA_SNAPSHOT,
    QUORUM_STATE_FILE: FileKind.QUORUM_STATE,
    PARTITION_METADATA_FILE: FileKind.PARTITION_METADATA,
    LEADER_EPOCH_FILE: FileKind.EPOCH_CHECKPOINT,
}
_KIND_BY_EXTENSION: Final = {
    LOG: FileKind.SEGMENT,
    OFFSET_INDEX: FileKind.OFFSET_INDEX,
    TIME_INDEX: FileKind.TIME_INDEX,
    TRANSACTION_INDEX: FileKind.TRANSACTION_INDEX,
    SNAPSHOT: FileKind.PRODUCER_SNAPSHOT,
}
_METADATA_SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint", re.ASCII)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file and what its name and place say."""

    path: str
    kind: FileKind
    base_offset: int = 0
    """Of a file that belongs to a segment."""

    @property
    def directory(self) -> str:
        """Where it is."""
        return str(Path(self.path).parent)

    @property
    def topic(self) -> str | None:
        """Whose log it belongs to, by the name of its directory."""
        found = parse_partition_directory_name(Path(self.path).absolute().parent.name)
        return None if found is None else found.partition.topic

    @property
    def size(self) -> int:
        """Bytes in it now."""
        return os.stat(self.path).st_size  # noqa: PTH116 - The path is a text everywhere here.


class ReadOnlyFileSystem(DiskFileSystem):
    """The machine's files, of which none is ever opened to be written."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading, whatever was asked for."""
        return DiskFile(path, os.O_RDONLY | os.O_CLOEXEC)


def log_file(path: str) -> LogFile | None:
    """A file by its name; None if it is something else."""
    name = Path(path).name
    if name in _KIND_BY_NAME:
        return LogFile(path, _KIND_BY_NAME[name])
    if _METADATA_SNAPSHOT.fullmatch(name):
        return LogFile(path, FileKind.METADATA_SNAPSHOT)
    parsed = parse_segment_file_name(name)
    if parsed is None:
        return None
    return LogFile(path, _KIND_BY_EXTENSION[parsed.extension], parsed.base_offset)


def find_files(paths: Iterable[str]) -> list[LogFile]:
    """The files that were named, and all that are known in directories that were."""
    found: list[LogFile] = []
    for path in paths:
        if Path(path).is_dir():
            inside = list(_walk(Path(path)))
            if not inside:
                raise CommandFailed(f"{path} has no files of a log; name a data or log directory")
            found += inside
            continue
        if not Path(path).exists():
            raise CommandFailed(f"{path} does not exist")
        file = log_file(path)
        if file is None:
            raise UsageFault(
                f"{path}: its name tells no kind of file that is known (.log .index .timeindex "
                ".txnindex .snapshot .checkpoint, *-checkpoint, meta.properties, quorum-state)"
            )
        found.append(file)
    return found


def _walk(directory: Path) -> Iterator[LogFile]:
    """What is in a directory itself, segment by segment, then what is in those below."""
    files = [each for each in directory.iterdir() if each.is_file()]
    known = [found for each in files if (found := log_file(str(each))) is not None]
    kinds = list(FileKind)
    yield from sorted(known, key=lambda each: (each.base_offset, kinds.index(each.kind), each.path))
    for each in sorted(directory.iterdir()):
        if each.is_dir() and not each.is_symlink():
            yield from _walk(each)
