"""A map that never changes: a changed copy shares all that did not change.

The images keep topics and partitions in it, so that one new topic among 10,000 does not cost a
copy of 10,000 entries. It is a dict with a small dict of later changes on top; the two are merged
when the upper one has grown to about the square root of the lower one. A read costs one or two
dict lookups, a change O(sqrt(n)) copied entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_REMOVED: Final[Any] = object()
_MERGED_ALWAYS_BELOW: Final = 128
"""A dict this small is copied as fast as it is layered."""


class SharedMap(Mapping[K, V]):
    """An immutable mapping with cheap changed copies."""

    __slots__ = ("_base", "_changes", "_size")

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._base: dict[K, V] = dict(entries)
        self._changes: dict[K, Any] = {}
        self._size = len(self._base)

    def evolve(self, changed: Mapping[K, V], removed: Iterable[K] = ()) -> SharedMap[K, V]:
        """A copy with some entries set and some gone; a key in both is set."""
        removals = dict.fromkeys(removed, _REMOVED)
        if not removals and not changed:
            return self
        changes = self._changes | removals | dict(changed)
        evolved: SharedMap[K, V] = SharedMap.__new__(SharedMap)
        base_size = len(self._base)
        if base_size < _MERGED_ALWAYS_BELOW or len(changes) ** 2 > base_size:
            evolved._base = _merge(self._base, changes)
            evolved._changes = {}
            evolved._size = len(evolved._base)
        else:
            evolved._base = self._base
            evolved._changes = changes
            evolved._size = base_size + sum(_growth(self._base, changes))
        return evolved

    def __getitem__(self, key: K) -> V:
        if self._changes:
            value = self._changes.get(key, self)
            if value is _REMOVED:
                raise KeyError(key)
            if value is not self:
                return value  # type: ignore[no-any-return]  # The layer also holds the mark of removal.
        return self._base[key]

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...

    # Overridden because the inherited method pays for an exception on every miss.
    def get(self, key: K, /, default: Any = None) -> Any:
        """The value of a key, or the default."""
        if self._changes:
            value = self._changes.get(key, self)
            if value is not self:
                return default if value is _REMOVED else value
        return self._base.get(key, default)

    def __contains__(self, key: object) -> bool:
        if self._changes:
            value = self._changes.get(key, self)  # type: ignore[arg-type]  # Any object may be asked for.
            if value is not self:
                return value is not _REMOVED
        return key in self._base

    def __iter__(self) -> Iterator[K]:
        if not self._changes:
            yield from self._base
            return
        changes = self._changes
        for key in self._base:
            if changes.get(key) is not _REMOVED:
                yield key
        for key, value in changes.items():
            if value is not _REMOVED and key not in self._base:
                yield key

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # Like a dict: its values need not be hashable.

    def __repr__(self) -> str:
        return f"SharedMap({dict(self.items())!r})"


def _merge(base: dict[K, V], changes: dict[K, Any]) -> dict[K, V]:
    merged: dict[K, V] = base | changes
    for key, value in changes.items():
        if value is _REMOVED:
            del merged[key]
    return merged


def _growth(base: Mapping[K, V], changes: Mapping[K, Any]) -> Iterator[int]:
    for key, value in changes.items():
        if value is _REMOVED:
            yield -1 if key in base else 0
        else:
            yield 0 if key in base else 1
