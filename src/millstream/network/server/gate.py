"""Whether a connection is being read, and how it is closed.

A `KafkaChannel` has one gate; it stands between the channel and its transport. There can be
several reasons at once not to read, and each is taken away by another part. The gate knows
nothing of requests or time.
"""

from __future__ import annotations

from enum import IntFlag
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import Callable

    from millstream.network.server.connection_state import ConnectionState


class Mute(IntFlag):
    """Why a connection is not being read."""

    IN_FLIGHT = 1
    """Too many of its requests wait for their responses."""
    MEMORY = 2
    """The broker holds too many requests in memory."""
    THROTTLE = 4
    """A quota was exceeded."""
    OUTPUT = 8
    """The peer does not take its responses."""
    CLOSING = 16
    """Nothing more will be read from it."""
    TURN = 32
    """It has sent many requests at once: those of others come first."""
    HELD = 64
    """A request of it is being inspected elsewhere; those behind it wait for their turn."""


CLOSING: Final = Mute.CLOSING.value
TURN: Final = Mute.TURN.value


class InputGate:
    """`mute_reasons` of the state are 0 while the connection is read, or about to be."""

    __slots__ = ("_offer", "_state", "_transport", "is_paused")

    def __init__(self, state: ConnectionState) -> None:
        self._state = state
        self._transport: Transport | None = None
        self._offer: Callable[[], int] | None = None
        self.is_paused = False

    def connected(self, transport: Transport) -> None:
        """The connection is ready."""
        self._transport = transport
        self._offer = getattr(transport, "offer_unhandled", None)

    def disconnected(self) -> None:
        """The connection is gone."""
        self._transport = self._offer = None
        self._state.mute_reasons |= CLOSING

    def mute(self, reason: Mute) -> bool:
        """Stop reading. Whether nothing but its turn was awaited until now."""
        is_first = not self._state.mute_reasons & ~TURN
        self._state.mute_reasons |= reason.value
        if self._transport is None:
            return False
        if not self.is_paused:
            self.is_paused = True
            self._transport.pause_reading()
        return is_first

    def unmute(self, reason: Mute) -> bool:
        """Take a reason away. Whether it was the last one; `resume` has to be called then."""
        if not self._state.mute_reasons & reason.value:
            return False
        self._state.mute_reasons &= ~reason.value
        return not self._state.mute_reasons

    def offer_unhandled(self) -> int:
        """Offer received frames to the fast path: how many bytes it has taken. 0 without one."""
        return 0 if self._offer is None else self._offer()

    def resume(self) -> None:
        """Read again."""
        if self.is_paused and self._transport is not None:
            self.is_paused = False
            self._transport.resume_reading()

    def finish(self) -> bool:
        """Say goodbye after everything was sent. Whether the peer's own goodbye must be awaited.

        If a socket is closed while bytes of the peer are unread, the kernel resets the connection
        and throws away responses on their way. So it is closed in one direction first, and what
        still comes is read and ignored. A TLS transport has a goodbye of its own.
        """
        if self._transport is None:
            return False
        if not self._transport.can_write_eof():
            self._transport.close()
            return False
        try:
            self._transport.write_eof()
        except OSError:  # The peer was faster.
            self._transport.abort()
            return False
        self.resume()
        return True

    def abort(self) -> None:
        """Close now; whatever is unsent is lost."""
        self._state.mute_reasons |= CLOSING
        if self._transport is not None:
            self._transport.abort()
