"""The aborted transactions of one segment: what a read_committed reader must skip.

A `LogSegment` owns one. An entry is added when an abort marker is appended; most segments have
none and no file. Kafka's format: 34 bytes each, in order of their last offsets.
"""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import InvalidArgument, KafkaStorageError
from millstream.records.kernel import crc32c

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

_ENTRY = Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """A transaction that ended with an abort marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedSearch(NamedTuple):
    """What was found, and whether later segments need not be asked."""

    transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex:
    """The `.txnindex` file of a segment, read once when first asked for."""

    __slots__ = ("_base_offset", "_entries", "_filesystem", "path")

    def __init__(self, filesystem: FileSystem, path: str, base_offset: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self._filesystem = filesystem
        self._entries: list[AbortedTransaction] | None = None

    def entries(self) -> list[AbortedTransaction]:
        """All of them, in order."""
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def fingerprint(self) -> tuple[int, int]:
        """How many entries there are, and their checksum."""
        entries = self.entries()
        return len(entries), crc32c(b"".join(_ENTRY.pack(_VERSION, *each) for each in entries))

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction; the first one makes the file."""
        entries = self.entries()
        if entries and transaction.last_offset <= entries[-1].last_offset:
            raise InvalidArgument(
                f"{self.path}: an abort at offset {transaction.last_offset} "
                f"does not follow the one at {entries[-1].last_offset}"
            )
        file = self._filesystem.open(self.path, create=True)
        end = len(entries) * _ENTRY.size
        try:
            file.pwrite(_ENTRY.pack(_VERSION, *transaction), end)
        except OSError:
            # A part of an entry would make the file unreadable.
            with suppress(OSError):
                file.truncate(end)
            raise
        entries.append(transaction)

    def search(self, fetch_offset: int, upper_bound_offset: int) -> AbortedSearch:
        """The aborted transactions with records in [fetch_offset, upper_bound_offset)."""
        found = []
        for each in self.entries():
            if each.last_offset >= fetch_offset and each.first_offset < upper_bound_offset:
                found.append(each)
            # Nothing before its last stable offset was undecided then, so no later entry
            # can reach below it.
            if each.last_stable_offset >= upper_bound_offset:
                return AbortedSearch(found, is_complete=True)
        return AbortedSearch(found, is_complete=False)

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions that ended at or after an offset."""
        entries = self.entries()
        kept = sum(each.last_offset < offset for each in entries)
        if kept < len(entries):
            del entries[kept:]
            self._filesystem.open(self.path).truncate(kept * _ENTRY.size)

    def clear(self) -> None:
        """Begin again without entries: to rebuild."""
        self._entries = []
        if self._filesystem.exists(self.path):
            self._filesystem.open(self.path).truncate(0)

    def sync(self) -> None:
        """Bring the file to disk, if there is one."""
        if self._filesystem.exists(self.path):
            self._filesystem.open(self.path).sync()

    def move_to(self, path: str) -> None:
        """Follow the file to another name."""
        self.path = path

    def _load(self) -> list[AbortedTransaction]:
        try:
            data = self._filesystem.read_bytes(self.path)
        except FileNotFoundError:
            return []
        if len(data) % _ENTRY.size:
            raise self._corrupt(f"{len(data)} bytes are not a multiple of {_ENTRY.size}")
        entries: list[AbortedTransaction] = []
        for version, *fields in _ENTRY.iter_unpack(data):
            entry = AbortedTransaction(*fields)
            if version > _VERSION:
                raise self._corrupt(f"version {version} is not known")
            # A transaction has a record at least before its marker.
            if entry.last_offset < self._base_offset or entry.first_offset >= entry.last_offset:
                raise self._corrupt(f"{entry} cannot be in the segment at {self._base_offset}")
            entries.append(entry)
        return entries

    def _corrupt(self, problem: str) -> KafkaStorageError:
        return KafkaStorageError(f"{self.path} is corrupt: {problem}")
