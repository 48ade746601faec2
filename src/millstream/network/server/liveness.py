"""When a connection is dead: silent for too long, or taking nothing of what it is sent.

`KafkaChannel` has one, tells it the time and what happened, and asks at deadlines. It decides and
does nothing; it holds no timer.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.network.server.config import SocketServerConfig
    from millstream.network.server.connection_state import ConnectionState

NEVER_MS: Final = (1 << 63) - 1


class Expiry(Enum):
    """Why a connection should be closed."""

    IDLE = "nothing was received or sent for %d ms"
    STALLED = "it took nothing of a response for %d ms"
    LINGERED = "it did not close its end"


class Liveness:
    """The times of one connection, all by the monotonic clock."""

    __slots__ = (
        "_progress_bytes",
        "_progress_ms",
        "_state",
        "idle_max_ms",
        "linger_until_ms",
        "stall_max_ms",
        "throttled_until_ms",
    )

    def __init__(self, config: SocketServerConfig, state: ConnectionState, now_ms: int) -> None:
        self._state = state
        self.idle_max_ms = config.connections_max_idle_ms
        self.stall_max_ms = config.write_stall_max_ms
        state.last_active_ms = now_ms
        self.throttled_until_ms = 0
        self.linger_until_ms = NEVER_MS
        self._progress_bytes = -1
        self._progress_ms = 0

    @property
    def idle_deadline_ms(self) -> int:
        """When it will have been silent for too long."""
        return NEVER_MS if self.idle_max_ms < 0 else self._state.last_active_ms + self.idle_max_ms

    @property
    def stall_deadline_ms(self) -> int:
        """When its peer will have taken nothing for too long, if it is blocked."""
        return self._progress_ms + self.stall_max_ms

    def note_progress(self, now_ms: int) -> None:
        """Output waits: it is progress if less of it was sent before."""
        if self._state.bytes_out != self._progress_bytes:
            self._progress_bytes = self._state.bytes_out
            self._progress_ms = self._state.last_active_ms = now_ms

    def check(self, now_ms: int, *, is_blocked: bool, is_waiting: bool) -> Expiry | int:
        """What is wrong, or when to look again.

        `is_blocked` says that output waits for the peer, `is_waiting` that the peer waits for us:
        a peer that waits is not idle.
        """
        if self.linger_until_ms != NEVER_MS:
            return Expiry.LINGERED if now_ms >= self.linger_until_ms else self.linger_until_ms
        if is_waiting or now_ms < self.throttled_until_ms:
            self._state.last_active_ms = now_ms
        next_ms = self.throttled_until_ms if now_ms < self.throttled_until_ms else NEVER_MS
        if is_blocked:
            self.note_progress(now_ms)
            if now_ms >= self.stall_deadline_ms:
                return Expiry.STALLED
            next_ms = min(next_ms, self.stall_deadline_ms)
        if now_ms >= self.idle_deadline_ms:
            return Expiry.IDLE
        return min(next_ms, self.idle_deadline_ms)

    def limit_ms(self, expiry: Expiry) -> int:
        """The setting that was exceeded."""
        return self.idle_max_ms if expiry is Expiry.IDLE else self.stall_max_ms
