"""How many connections there may be: in all, of a listener, per address, per second.

Acceptors ask before they accept and before they hand a connection on; the processor reports closed
ones. It decides and counts, it never touches a socket, and it is told the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.network.server.listener_limits import ListenerLimits

if TYPE_CHECKING:
    from millstream.network.server.config import SocketServerConfig

_UNLIMITED = ListenerLimits()


class Share:
    """The open connections of the broker or of a listener, and the new ones of a second."""

    __slots__ = ("_window_count", "_window_start_ms", "count", "count_max", "rate_max")

    def __init__(self) -> None:
        self.count = 0
        self.count_max = _UNLIMITED.max_connections
        self.rate_max = _UNLIMITED.max_connection_creation_rate
        self._window_start_ms = 0
        self._window_count = 0

    @property
    def is_full(self) -> bool:
        """Whether no more connections may be open."""
        return self.count >= self.count_max

    def delay_ms(self, now_ms: int) -> int:
        """How long to wait before accepting another: 0 unless this second's share is used up."""
        elapsed_ms = now_ms - self._window_start_ms
        if elapsed_ms >= 1000:
            self._window_start_ms = now_ms
            self._window_count = 0
            return 0
        return 1000 - elapsed_ms if self._window_count >= self.rate_max else 0

    def note_accepted(self) -> None:
        """A connection was taken off the queue, whatever becomes of it."""
        self._window_count += 1


class ConnectionQuotas:
    """The open connections of a broker and the rate of new ones."""

    __slots__ = ("_ip_limits", "_limits", "_per_ip", "_per_ip_max", "_shares", "broker", "rejected")

    def __init__(self, config: SocketServerConfig) -> None:
        self.broker = Share()
        self._shares: dict[str, Share] = {}
        self._per_ip: dict[str, int] = {}
        self.rejected = 0
        self.update(config)

    def update(self, config: SocketServerConfig) -> None:
        """Take other limits; connections that are open stay open."""
        self.broker.count_max = config.max_connections
        self.broker.rate_max = config.max_connection_creation_rate
        self._per_ip_max = config.max_connections_per_ip
        self._ip_limits = config.ip_limits
        self._limits = config.listener_limits
        for name, share in self._shares.items():
            self._limit(name, share)

    @property
    def total(self) -> int:
        """How many connections are open."""
        return self.broker.count

    def listener(self, name: str) -> Share:
        """The share of a listener."""
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = Share()
            self._limit(name, share)
        return share

    def delay_ms(self, listener: str, now_ms: int) -> int:
        """How long a listener has to wait before it accepts another."""
        return max(self.broker.delay_ms(now_ms), self.listener(listener).delay_ms(now_ms))

    def limit_of(self, host: str) -> int:
        """How many connections an address may have."""
        return self._ip_limits.get(host, self._per_ip_max)

    def admit(self, listener: str, host: str) -> bool:
        """Count a new connection, or refuse it because its address has too many."""
        shares = (self.broker, self.listener(listener))
        for share in shares:
            share.note_accepted()
        count = self._per_ip.get(host, 0)
        if count >= self.limit_of(host):
            self.rejected += 1
            return False
        self._per_ip[host] = count + 1
        for share in shares:
            share.count += 1
        return True

    def release(self, listener: str, host: str) -> None:
        """A connection was closed."""
        self.broker.count -= 1
        self.listener(listener).count -= 1
        left = self._per_ip[host] - 1
        if left:
            self._per_ip[host] = left
        else:
            del self._per_ip[host]

    def _limit(self, name: str, share: Share) -> None:
        limits = self._limits.get(name, _UNLIMITED)
        share.count_max = limits.max_connections
        share.rate_max = limits.max_connection_creation_rate
