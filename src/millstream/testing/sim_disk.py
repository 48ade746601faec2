"""What a disk is certain of and what it may lose: the nodes behind `SimFileSystem`.

A file remembers which ranges were written since its last sync, a directory which names changed.
`after_power_loss` keeps a random part of them: sectors may be new, old or torn, each name change
may have happened or not. It is as hostile as POSIX allows, which is more than most disks are.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from random import Random

    from millstream.types import ReadableBuffer

SECTOR_BYTES = 512
"""What a disk writes as a whole, usually; a torn sector is the exception."""

_TORN_SECTOR_PROBABILITY = 0.05


class _Fate(Enum):
    """How a crash treats all the unsynced changes of one file or directory.

    A coin for each change alone would almost never keep or lose everything.
    """

    KEEP = "keep"
    LOSE = "lose"
    PREFIX = "prefix"
    MIX = "mix"


class SimInode:
    """The content of one file: as it reads now, and as it certainly is on disk."""

    __slots__ = ("_dirty", "_durable", "allocated", "content", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.content = bytearray()
        self.allocated = 0
        self.modified_ms = modified_ms
        self._durable = bytearray()
        self._dirty: list[tuple[int, int]] = []

    def write(self, data: ReadableBuffer, position: int, now_ms: int) -> None:
        """Change the content, not the disk."""
        end = position + len(data)
        if position > len(self.content):
            self.content.extend(bytes(position - len(self.content)))
        self.content[position:end] = data
        self.allocated = max(self.allocated, end)
        self.modified_ms = now_ms
        self._dirty.append((position, end))

    def truncate(self, size: int, now_ms: int) -> None:
        """Change the length, not the disk."""
        if size < len(self.content):
            self._dirty.append((size, len(self.content)))
            del self.content[size:]
        else:
            self.content.extend(bytes(size - len(self.content)))
        self.allocated = min(self.allocated, size)
        self.modified_ms = now_ms

    def sync(self) -> None:
        """The disk has the content now."""
        size = len(self.content)
        if len(self._durable) > size:
            del self._durable[size:]
        self._durable.extend(bytes(size - len(self._durable)))
        for start, end in self._dirty:
            self._durable[start : min(end, size)] = self.content[start : min(end, size)]
        self._dirty.clear()

    def flip(self, position: int, bit: int) -> None:
        """Spoil a bit, on disk and for readers."""
        self.content[position] ^= 1 << bit
        if position < len(self._durable):
            self._durable[position] ^= 1 << bit

    def after_power_loss(self, random: Random) -> SimInode:
        """The file as the next start finds it."""
        image = self._surviving_image(random)
        survivor = SimInode(self.modified_ms)
        survivor.content = image
        survivor._durable = bytearray(image)
        survivor.allocated = min(self.allocated, len(image))
        return survivor

    def _surviving_image(self, random: Random) -> bytearray:
        sizes = sorted((len(self._durable), len(self.content)))
        fate = random.choice(list(_Fate))
        if fate is _Fate.KEEP:
            return bytearray(self.content)
        if fate is _Fate.LOSE:
            return bytearray(self._durable)
        size = random.choice([*sizes, random.randint(*sizes)])
        image = bytearray(self._durable[:size])
        image.extend(bytes(size - len(image)))
        sectors = self._dirty_sectors(size)
        cut = random.randint(0, len(sectors))
        for number, sector in enumerate(sectors):
            is_new = number < cut if fate is _Fate.PREFIX else random.random() < 0.5
            length = SECTOR_BYTES
            if random.random() < _TORN_SECTOR_PROBABILITY:
                is_new, length = True, random.randrange(SECTOR_BYTES)
            if is_new:
                start = sector * SECTOR_BYTES
                end = min(start + length, size, len(self.content))
                if start < end:
                    image[start:end] = self.content[start:end]
        return image

    def _dirty_sectors(self, size: int) -> list[int]:
        found: set[int] = set()
        for start, end in self._dirty:
            last = min(end, size) - 1
            if start <= last:
                found.update(range(start // SECTOR_BYTES, last // SECTOR_BYTES + 1))
        return sorted(found)


class _Link(NamedTuple):
    name: str
    node: SimNode


class _Unlink(NamedTuple):
    name: str
    node: SimNode


class _Rename(NamedTuple):
    old: str
    new: str
    node: SimNode


class SimDirectory:
    """The names in one directory: as they are now, and as they certainly are on disk."""

    __slots__ = ("_durable", "_pending", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, SimNode] = {}
        self._durable: dict[str, SimNode] = {}
        self._pending: list[_Link | _Unlink | _Rename] = []

    def link(self, name: str, node: SimNode) -> None:
        """Give a node a name."""
        self.entries[name] = node
        self._pending.append(_Link(name, node))

    def unlink(self, name: str) -> None:
        """Take a name away."""
        self._pending.append(_Unlink(name, self.entries.pop(name)))

    def rename(self, old: str, new: str) -> None:
        """Change a name in one step."""
        node = self.entries.pop(old)
        self.entries[new] = node
        self._pending.append(_Rename(old, new, node))

    def sync(self) -> None:
        """The disk has the names now."""
        self._durable = dict(self.entries)
        self._pending.clear()

    def allocated_bytes(self) -> int:
        """The room that everything below takes."""
        return sum(
            node.allocated if isinstance(node, SimInode) else node.allocated_bytes()
            for node in self.entries.values()
        )

    def after_power_loss(self, random: Random) -> SimDirectory:
        """The directory as the next start finds it, with everything below."""
        names = dict(self._durable)
        for change in self._surviving_changes(random):
            _apply(change, names)
        survivor = SimDirectory()
        survivor.entries = {name: node.after_power_loss(random) for name, node in names.items()}
        survivor._durable = dict(survivor.entries)
        return survivor

    def _surviving_changes(self, random: Random) -> list[_Link | _Unlink | _Rename]:
        match random.choice(list(_Fate)):
            case _Fate.KEEP:
                return self._pending
            case _Fate.LOSE:
                return []
            case _Fate.PREFIX:
                return self._pending[: random.randint(0, len(self._pending))]
            case _Fate.MIX:
                return [change for change in self._pending if random.random() < 0.5]


SimNode: TypeAlias = SimInode | SimDirectory


def _apply(change: _Link | _Unlink | _Rename, names: dict[str, SimNode]) -> None:
    """Make a change that survived, unless one it rests on did not."""
    match change:
        case _Link(name, node):
            names[name] = node
        case _Unlink(name, node):
            if names.get(name) is node:
                del names[name]
        case _Rename(old, new, node):
            if names.get(old) is node:
                del names[old]
                names[new] = node
