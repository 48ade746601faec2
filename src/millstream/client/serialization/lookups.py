"""Look-ups of schemas that must not happen where they would block an event loop.

A session or an asyncio producer calls a serde through `without_lookups`. A serde that has to ask
its registry then raises `LookupNeeded` instead; the client has the look-up done where waiting harms
nobody, and calls the serde again. Everywhere else serdes ask at once.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LOOKUPS_MAX: Final = 16
"""A serde that asks more often for one record does not remember what it asked for."""


class _State(threading.local):
    are_refused = False


_state: Final = _State()


class LookupNeeded(MillstreamError):
    """A registry must be asked first, which may take its time."""

    look_up: Callable[[], object] | None = None
    """Asks, so that the serde knows the answer the next time; may raise what serdes raise."""


def without_lookups(call: Callable[[], T]) -> T:
    """What a call gives; LookupNeeded if a serde in it would have to ask a registry."""
    _state.are_refused = True
    try:
        return call()
    finally:
        _state.are_refused = False


def check_lookups() -> None:
    """Raise LookupNeeded within `without_lookups`."""
    if _state.are_refused:
        raise LookupNeeded("a schema registry has to be asked")
