"""How many connections there may be: in all, per address, per second.

Acceptors ask before they accept and before they hand a connection on; the processor reports closed
ones. It decides and counts, it never touches a socket, and it is told the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.network.config import SocketServerConfig


class ConnectionQuotas:
    """The open connections of a broker and the rate of new ones."""

    __slots__ = (
        "_creation_rate",
        "_ip_limits",
        "_per_ip",
        "_per_ip_max",
        "_total_max",
        "_window_count",
        "_window_start_ms",
        "rejected",
        "total",
    )

    def __init__(self, config: SocketServerConfig) -> None:
        self.update(config)
        self._per_ip: dict[str, int] = {}
        self._window_start_ms = 0
        self._window_count = 0
        self.total = 0
        self.rejected = 0

    def update(self, config: SocketServerConfig) -> None:
        """Take other limits; connections that are open stay open."""
        self._total_max = config.max_connections
        self._per_ip_max = config.max_connections_per_ip
        self._ip_limits = config.ip_limits
        self._creation_rate = config.max_connection_creation_rate

    @property
    def is_full(self) -> bool:
        """Whether no more connections may be open."""
        return self.total >= self._total_max

    def delay_ms(self, now_ms: int) -> int:
        """How long to wait before accepting another: 0 unless this second's share is used up."""
        elapsed_ms = now_ms - self._window_start_ms
        if elapsed_ms >= 1000:
            self._window_start_ms = now_ms
            self._window_count = 0
            return 0
        return 1000 - elapsed_ms if self._window_count >= self._creation_rate else 0

    def limit_of(self, host: str) -> int:
        """How many connections an address may have."""
        return self._ip_limits.get(host, self._per_ip_max)

    def admit(self, host: str) -> bool:
        """Count a new connection, or refuse it because its address has too many."""
        self._window_count += 1
        count = self._per_ip.get(host, 0)
        if count >= self.limit_of(host):
            self.rejected += 1
            return False
        self._per_ip[host] = count + 1
        self.total += 1
        return True

    def release(self, host: str) -> None:
        """A connection was closed."""
        self.total -= 1
        left = self._per_ip[host] - 1
        if left:
            self._per_ip[host] = left
        else:
            del self._per_ip[host]
