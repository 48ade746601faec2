"""Limits of single listeners: `listener.name.outside.max.connections=100` and its like.

They come on top of the limits of the whole broker, which have the same names without the prefix.
Apache Kafka writes the listener in small letters there; its case does not matter here either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from millstream.config import (
    Fault,
    UpdateMode,
    at_least,
    key,
    keys_of,
    parse,
    parse_faults,
    validate,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.config import Key

_PREFIXED: Final = re.compile(r"(listener\.name\.([^.]+)\.)(.+)")
_INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What one listener may have."""

    max_connections: int = key(
        "max.connections",
        _INT_MAX,
        at_least(1),
        "How many connections of the listener may be open; new ones wait.",
        update_mode=UpdateMode.PER_BROKER,
    )
    max_connection_creation_rate: int = key(
        "max.connection.creation.rate",
        _INT_MAX,
        at_least(1),
        "How many connections the listener accepts per second; more wait in the listen queue.",
        update_mode=UpdateMode.PER_BROKER,
    )

    def __post_init__(self) -> None:
        validate(self)


_KEYS: Final = {declared.name: declared for declared in keys_of(ListenerLimits).values()}


def limited_listener(name: str) -> str | None:
    """The listener that a setting limits, in capitals; None for any other setting."""
    match = _PREFIXED.fullmatch(name)
    return match[2].upper() if match is not None and match[3] in _KEYS else None


def limit_key(name: str) -> Key | None:
    """The declaration of a setting that limits a listener, under its whole name."""
    match = _PREFIXED.fullmatch(name)
    declared = None if match is None else _KEYS.get(match[3])
    return None if declared is None else replace(declared, name=name)


def listener_limits(texts: Mapping[str, str]) -> dict[str, ListenerLimits]:
    """The limits by listener, or InvalidConfig."""
    return {
        listener: parse(ListenerLimits, given)
        for listener, (_, given) in _by_listener(texts).items()
    }


def listener_limit_faults(texts: Mapping[str, str]) -> list[Fault]:
    """All that is wrong with them."""
    return [
        Fault(prefix + fault.key, fault.value, fault.must_be)
        for prefix, given in _by_listener(texts).values()
        for fault in parse_faults(ListenerLimits, given)
    ]


def _by_listener(texts: Mapping[str, str]) -> dict[str, tuple[str, dict[str, str]]]:
    """Listener to the prefix of its settings, and those without it."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for name, text in texts.items():
        match = _PREFIXED.fullmatch(name)
        if match is not None and match[3] in _KEYS:
            found.setdefault(match[2].upper(), (match[1], {}))[1][match[3]] = text
    return found
