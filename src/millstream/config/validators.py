"""What a setting may be: a test of a value, and the same rule in words for the error and the docs.

Used in the `key(...)` declarations of every package. A validator sees a value that already has
the right type; it never raises and never changes the value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Validator:
    """A rule for one value: `allowed` completes the sentence "must be ..."."""

    allowed: str
    accepts: Callable[[Any], bool]

    def or_exactly(self, value: object) -> Validator:
        """The same rule with one value more, such as -1 for "no limit"."""
        return Validator(
            f"{self.allowed}, or {value}",
            lambda candidate: bool(candidate == value) or self.accepts(candidate),
        )


def any_value() -> Validator:
    """Every value of the setting's type."""
    return Validator("any value", lambda _: True)


def at_least(minimum: float) -> Validator:
    """A number that is not smaller."""
    return Validator(f"at least {minimum}", lambda value: bool(value >= minimum))


def between(minimum: float, maximum: float) -> Validator:
    """A number in a closed range."""
    return Validator(
        f"from {minimum} to {maximum}", lambda value: bool(minimum <= value <= maximum)
    )


def one_of(*choices: str) -> Validator:
    """One of the names, written exactly so."""
    return Validator(f"one of {', '.join(choices)}", lambda value: value in choices)


def subset_of(*choices: str) -> Validator:
    """A list, possibly empty, of these names."""
    return Validator(
        f"a list of {', '.join(choices)} (or empty)",
        lambda values: all(value in choices for value in values),
    )


def non_empty() -> Validator:
    """A string or list with something in it."""
    return Validator("non-empty", lambda value: len(value) > 0)


def each(accepts: Callable[[str], bool], allowed: str) -> Validator:
    """A list whose every item passes."""
    return Validator(allowed, lambda values: all(accepts(value) for value in values))
