"""The reference page of the exceptions, as Markdown, from their classes.

A test keeps docs/reference/errors.md current; `python -m millstream.errors.reference` prints it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream import errors
from millstream.errors.base import ApiError, MillstreamError
from millstream.errors.client import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD: Final = """\
# Exceptions

Everything that Millstream raises on purpose is a `MillstreamError`, and every exception can be
imported from `millstream` as well as from `millstream.errors`. `retriable` says whether the same
call may succeed later, unchanged: `is_retriable(error)` asks any of them. Clients retry by
themselves as long as their timeouts allow: a retriable error that arrives has been retried already.

```python
from millstream import MillstreamError, OperationTimeout, is_retriable
```
"""
_CLIENT: Final = "What a client finds by itself; all of these are `ClientError`s."
_API: Final = """\
What a broker answers with; all of these are `ApiError`s with the `code` and the `wire_name` that
Kafka's protocol gives them. A code that is not in this table arrives as `UnknownServerError`."""


def render() -> str:
    """The page."""
    classes = [getattr(errors, name) for name in dict.fromkeys(errors.__all__)]
    found: list[type[MillstreamError]] = [
        each for each in classes if isinstance(each, type) and issubclass(each, MillstreamError)
    ]
    coded = sorted((each for each in found if _has_code(each)), key=_code)
    of_client = [each for each in found if issubclass(each, ClientError)]
    others = [each for each in found if each not in {*coded, *of_client}]
    return "\n".join(
        [
            _HEAD,
            *_table("The trunk, and what is not about a connection", "", others),
            *_table("Found by clients", _CLIENT, of_client),
            *_table("Answered by brokers", _API, coded, has_codes=True),
        ]
    )


def _has_code(each: type[MillstreamError]) -> bool:
    return issubclass(each, ApiError) and hasattr(each, "code")


def _code(each: type[MillstreamError]) -> int:
    assert issubclass(each, ApiError)
    return each.code


def _table(
    title: str, text: str, classes: Iterable[type[MillstreamError]], *, has_codes: bool = False
) -> list[str]:
    head = ["| Exception | Base | Retriable | |", "|---|---|---|---|"]
    if has_codes:
        head = ["| Exception | Code | Retriable | |", "|---|---|---|---|"]
    rows = [_row(each, has_code=has_codes) for each in classes]
    return [f"## {title}", "", *([text, ""] if text else []), *head, *rows, ""]


def _row(each: type[MillstreamError], *, has_code: bool) -> str:
    second = ", ".join(f"`{base.__name__}`" for base in each.__bases__)
    if has_code:
        assert issubclass(each, ApiError)
        second = f"{each.code} `{each.wire_name}`"
    retriable = "yes" if getattr(each, "retriable", False) else ""
    sentence = " ".join((each.__doc__ or "").split()).replace("|", chr(92) + "|")
    return f"| `{each.__name__}` | {second} | {retriable} | {sentence} |"


if __name__ == "__main__":
    print(render())  # noqa: T201  # That is what it is for.
