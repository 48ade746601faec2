"""The small files that say whose a directory is and how it was left.

`meta.properties` (in each log directory): which cluster, node and directory. `partition.metadata`
(in each log): the topic id, and a checksum of it, which Kafka passes over. `.kafka_cleanshutdown`:
the last process stopped in order. Kafka's
formats, byte for byte where Kafka's own are fixed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import InconsistentClusterId, KafkaStorageError
from millstream.records.kernel import crc32c
from millstream.storage.filesystem import write_atomically
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.storage.filesystem import FileSystem

META_PROPERTIES_FILE: Final = "meta.properties"
PARTITION_METADATA_FILE: Final = "partition.metadata"
_PARTITION_METADATA_START: Final = "version: 0\ntopic_id: "
_PARTITION_METADATA_CHARS: Final = len(_PARTITION_METADATA_START) + 22
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"

_PROPERTY = re.compile(r"\s*((?:[^=:\s\\]|\\.)+)\s*[=:\s]\s*(.*)")
_ESCAPE = re.compile(r"\\(.)")
_NEEDS_ESCAPE = re.compile(r"([\\=:#!])")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Who owns a log directory. Version 0 is read (it had no directory id), 1 is written."""

    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None = None
    version: int = 1

    @classmethod
    def parse(cls, text: str, path: str) -> MetaProperties:
        """Read Java's properties format."""
        found = _parse_properties(text)
        version = _number(found, "version", path)
        if version not in (0, 1):
            raise KafkaStorageError(f"{path}: version {version} is not known, only 0 and 1 are")
        node_key = "broker.id" if version == 0 else "node.id"
        if version == 1 and "cluster.id" not in found:
            raise KafkaStorageError(f"{path}: cluster.id is missing")
        directory_id = found.get("directory.id")
        try:
            parsed_id = None if directory_id is None else Uuid.parse(directory_id)
        except ValueError as error:
            raise KafkaStorageError(f"{path}: directory.id is {error}") from error
        is_needed = version == 1 or node_key in found
        node_id = _number(found, node_key, path) if is_needed else None
        return cls(found.get("cluster.id"), node_id, parsed_id, version)

    def render(self) -> str:
        """Write version 1."""
        values = {
            "version": "1",
            "cluster.id": self.cluster_id,
            "node.id": None if self.node_id is None else str(self.node_id),
            "directory.id": None if self.directory_id is None else str(self.directory_id),
        }
        return "#\n" + "".join(
            f"{name}={_NEEDS_ESCAPE.sub(_escaped, value)}\n"
            for name, value in values.items()
            if value is not None
        )


def read_meta_properties(filesystem: FileSystem, log_dir: str) -> MetaProperties | None:
    """Whose the directory is; None if nobody has taken it yet."""
    path = f"{log_dir}/{META_PROPERTIES_FILE}"
    text = _read_text(filesystem, path)
    return None if text is None else MetaProperties.parse(text, path)


def write_meta_properties(filesystem: FileSystem, log_dir: str, meta: MetaProperties) -> None:
    """Take a directory."""
    path = f"{log_dir}/{META_PROPERTIES_FILE}"
    write_atomically(filesystem, path, meta.render().encode())


def require_one_owner(metas: Mapping[str, MetaProperties], cluster_id: str, node_id: int) -> None:
    """Refuse directories of another cluster or node, and two with the same directory id."""
    seen: dict[Uuid, str] = {}
    for log_dir, meta in metas.items():
        if meta.cluster_id is not None and meta.cluster_id != cluster_id:
            raise InconsistentClusterId(
                f"{log_dir} belongs to cluster {meta.cluster_id}, this is cluster {cluster_id}; "
                "give this node another directory"
            )
        if meta.node_id is not None and meta.node_id != node_id:
            raise KafkaStorageError(
                f"{log_dir} belongs to node {meta.node_id}, this is node {node_id}; "
                "give this node another directory"
            )
        if meta.directory_id is not None:
            if meta.directory_id in seen:
                raise KafkaStorageError(
                    f"{log_dir} and {seen[meta.directory_id]} both have the directory id "
                    f"{meta.directory_id}; one is a copy of the other"
                )
            seen[meta.directory_id] = log_dir


def read_partition_metadata(filesystem: FileSystem, directory: str) -> Uuid | None:
    """The topic id of a log; None if none was written."""
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    text = _read_text(filesystem, path)
    if text is None or _is_unfinished(text):
        return None
    fields = {
        name.strip(): value.strip()
        for name, separator, value in (line.partition(":") for line in text.splitlines())
        if separator
    }
    if fields.get("version") != "0":
        raise KafkaStorageError(f"{path}: version {fields.get('version')!r} is not known")
    try:
        topic_id = Uuid.parse(fields.get("topic_id", ""))
    except ValueError as error:
        raise KafkaStorageError(f"{path}: topic_id is {error}") from error
    if topic_id == Uuid.ZERO:
        raise KafkaStorageError(f"{path}: topic_id is the zero id, which no topic has")
    # Files of Kafka have no checksum, and a power loss may have taken the end of one.
    if not _checksum(topic_id).startswith(fields.get("crc", "").rstrip("\0")):
        raise KafkaStorageError(
            f"{path} is damaged: topic_id {topic_id} has another checksum. If the log is that of "
            "the topic with its name, remove the file: the id is then written anew"
        )
    return topic_id


def _checksum(topic_id: Uuid) -> str:
    return f"{crc32c(topic_id):08x}"


def _is_unfinished(text: str) -> bool:
    """Whether a power loss took the end, or all, of what was not on disk yet.

    Then the log is of the topic that has its name: before another could take the name, the rename
    of the old log was on disk.
    """
    found = text.rstrip("\0")
    return len(found) < _PARTITION_METADATA_CHARS and _PARTITION_METADATA_START.startswith(
        found[: len(_PARTITION_METADATA_START)]
    )


def write_partition_metadata(
    filesystem: FileSystem, directory: str, topic_id: Uuid, *, sync: bool = True
) -> str:
    """Record the topic id; the file. Without `sync` somebody else brings it to disk."""
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    data = f"{_PARTITION_METADATA_START}{topic_id}\ncrc: {_checksum(topic_id)}".encode()
    write_atomically(filesystem, path, data, sync=sync)
    return path


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    """The last process closed every log of the directory; it had this broker epoch, if known."""

    broker_epoch: int | None


def read_clean_shutdown(filesystem: FileSystem, log_dir: str) -> CleanShutdown | None:
    """The marker; None after a crash. Older Kafkas left an empty one, without an epoch."""
    text = _read_text(filesystem, f"{log_dir}/{CLEAN_SHUTDOWN_FILE}")
    if text is None:
        return None
    try:
        broker_epoch = json.loads(text)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return CleanShutdown(None)
    return CleanShutdown(broker_epoch if isinstance(broker_epoch, int) else None)


def write_clean_shutdown(filesystem: FileSystem, log_dir: str, broker_epoch: int) -> None:
    """Leave the marker: the very last thing a clean stop does to a directory."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(filesystem, f"{log_dir}/{CLEAN_SHUTDOWN_FILE}", content.encode())


def remove_clean_shutdown(filesystem: FileSystem, log_dir: str) -> None:
    """Take the marker away, durably, before the first change to a directory.

    One that is gone may have been removed by a process that died before the disk knew, and a power
    loss would bring it back.
    """
    filesystem.remove(f"{log_dir}/{CLEAN_SHUTDOWN_FILE}")
    filesystem.sync_directory(log_dir)


def _read_text(filesystem: FileSystem, path: str) -> str | None:
    try:
        return filesystem.read_bytes(path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise KafkaStorageError(f"{path} is corrupt: it is not text ({error.reason})") from error


def _parse_properties(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and stripped[0] not in "#!" and (match := _PROPERTY.fullmatch(stripped)):
            found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(r"\1", text)


def _escaped(match: re.Match[str]) -> str:
    return f"\\{match[1]}"


def _number(found: Mapping[str, str], name: str, path: str) -> int:
    if name not in found:
        raise KafkaStorageError(f"{path}: {name} is missing")
    try:
        return int(found[name])
    except ValueError as error:
        raise KafkaStorageError(f"{path}: {name} is {found[name]!r}, not a number") from error
