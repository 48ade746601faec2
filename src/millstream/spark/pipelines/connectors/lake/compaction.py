"""When to merge small files, and which: decisions only, the same for every kind of table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

MEBIBYTE: Final = 1 << 20
FILES_MIN: Final = 2
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Compaction:
    """How a table is kept compact."""

    every: int
    """Look for small files after so many batches; 0: never."""
    target_bytes: int
    """Files of at least half this size are left alone."""

    def is_due(self, batch: int) -> bool:
        """Whether to look after this batch. By its number, so that restarts do not put it off."""
        return self.every > 0 and (batch + 1) % self.every == 0

    def groups(self, files: Iterable[tuple[F, object, int]]) -> list[list[F]]:
        """Which files to merge into one: `(file, partition, bytes)`, grouped up to the target."""
        groups: list[list[F]] = []
        open_groups: dict[object, tuple[list[F], int]] = {}
        for file, partition, size in files:
            if size * 2 >= self.target_bytes:
                continue
            group, held = open_groups.get(partition, ([], 0))
            if held + size > self.target_bytes:
                groups.append(group)
                group, held = [], 0
            group.append(file)
            open_groups[partition] = (group, held + size)
        groups += [group for group, _held in open_groups.values()]
        return [group for group in groups if len(group) >= FILES_MIN]
