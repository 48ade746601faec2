"""Regular expressions that clients send: RE2, whose matching time no expression can blow up.

The library is imported with the first expression, because most brokers never see one.
"""

from __future__ import annotations

from typing import Protocol

from millstream.errors import InvalidRegularExpression


class Pattern(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str) -> object | None:
        """A match of the whole text, or None."""
        ...


def compile_pattern(expression: str) -> Pattern:
    """Compile an expression, or raise InvalidRegularExpression with what is wrong."""
    import re2  # type: ignore[import-untyped]  # It has no stubs.

    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode() if isinstance(reason, bytes) else reason
        raise InvalidRegularExpression(
            f"{expression!r} is not an RE2 expression: {text}"
        ) from error
    return compiled
