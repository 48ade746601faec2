"""What a member of a group wants to read: topics by name, or by what their names look like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from millstream.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of the three is given.

    `regex` is RE2, and the coordinator matches it where it can; else, and always with `matches`,
    the client does, on all topics that it may see.
    """

    topics: frozenset[str] = frozenset()
    regex: str | None = None
    matches: Callable[[str], bool] | None = None

    @property
    def is_pattern(self) -> bool:
        """Whether the topics depend on which ones exist."""
        return self.regex is not None or self.matches is not None

    def matcher(self) -> Callable[[str], bool]:
        """Decides by name, on the client; the whole name has to match."""
        if self.matches is not None:
            return self.matches
        if self.regex is not None:
            return _re2_matcher(self.regex)
        return self.topics.__contains__

    def select(self, names: Iterable[str]) -> frozenset[str]:
        """Which of the topics that exist are meant."""
        return frozenset(filter(self.matcher(), names))


@lru_cache(maxsize=16)
def _re2_matcher(expression: str) -> Callable[[str], bool]:
    import re2  # type: ignore[import-untyped]  # It has no stubs.

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode() if isinstance(reason, bytes) else reason
        raise InvalidRegularExpression(
            f"{expression!r} is not an RE2 expression: {text}; pass a compiled re.Pattern to have "
            "it matched with Python's syntax by this client"
        ) from error
    return lambda name: compiled.fullmatch(name) is not None
