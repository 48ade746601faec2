"""What became of each item of a call: a result, or an error that does not spoil the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from millstream.errors import MillstreamError

K = TypeVar("K")
V = TypeVar("V")


class Outcomes(Mapping[K, V], Generic[K, V]):
    """A mapping from items to results; looking up an item that failed raises its error.

    `errors` has the failures, `results` the rest. Call `raise_first` to insist on all of them.
    """

    __slots__ = ("errors", "results")

    def __init__(self, results: Mapping[K, V], errors: Mapping[K, MillstreamError]) -> None:
        self.results: Mapping[K, V] = dict(results)
        """What succeeded."""
        self.errors: Mapping[K, MillstreamError] = dict(errors)
        """What failed, and why."""

    def __getitem__(self, item: K) -> V:
        if item in self.errors:
            raise self.errors[item]
        return self.results[item]

    def __iter__(self) -> Iterator[K]:
        yield from self.results
        yield from self.errors

    def __len__(self) -> int:
        return len(self.results) + len(self.errors)

    def __repr__(self) -> str:
        return f"Outcomes(results={self.results!r}, errors={self.errors!r})"

    def raise_first(self) -> Self:
        """Raise the first error, if there is any; otherwise itself, for going on with it."""
        for error in self.errors.values():
            raise error
        return self
