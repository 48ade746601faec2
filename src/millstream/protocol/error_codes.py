"""The error codes in a message, wherever they are in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.message import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator


def error_codes(message: Struct) -> Iterator[int]:
    """Every error code: of the whole, of topics, of partitions, of whatever it lists."""
    for name in type(message).__slots__:
        value = getattr(message, name)
        if name == "error_code":
            yield value
        elif isinstance(value, Struct):
            yield from error_codes(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from error_codes(each)
