"""Owns the connections of one event loop: their shared buffer, their deadlines, their turns.

`SocketServer` makes one, acceptors hand it sockets. All that connections want later goes through
it: one heap of deadlines with one timer, and one callback per turn of the loop for the answers
that became due. An idle processor does nothing at all. Not thread-safe: one loop, one thread.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.network.log_limiter import LogLimiter, logger
from millstream.network.server.buffers import READ_BYTES_MAX, BufferPool, make_shared_buffer
from millstream.network.server.connection_state import ConnectionState
from millstream.network.server.liveness import NEVER_MS, Expiry
from millstream.network.server.request_channel import RequestChannel

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Callable, Mapping

    from millstream._accel.broker.fast_path import FastHandler
    from millstream._accel.broker.selector import Selector
    from millstream.clock import Clock
    from millstream.network.endpoint import Endpoint
    from millstream.network.server.channel import KafkaChannel
    from millstream.network.server.config import SocketServerConfig
    from millstream.network.server.request import Connection, RequestHandler


TURN_FRAMES_MAX: Final = 32
"""So many frames of a connection take the fast path before it is the turn of others."""
FULL_PATH_FRAMES: Final = 4
"""A frame of the full path counts as so many. So eight of them are handled: clients with the usual
five requests in flight are not put off."""
PUT_OFF_FRAMES_MAX: Final = 16
"""Of a connection that was put off before so many are handled."""
TURN_MS_MAX: Final = 10
"""After so long, a connection has one frame handled on the full path in a turn of the loop."""
PUT_OFF_MS_MAX: Final = 1
"""The same when frames that were put off before are handled."""


@dataclass(frozen=True, slots=True)
class ListenerService:
    """What a listener offers: its address as bound, what answers, which API versions."""

    endpoint: Endpoint
    handle: RequestHandler
    header_versions: Mapping[int, int]
    ssl_context: ssl.SSLContext | None = None
    fast_path: FastHandler | None = None
    """What is offered each frame of a plain connection first, where the selector is compiled."""


class Processor:
    """The connections of one loop and what they share. The counters are for the metrics."""

    def __init__(
        self,
        config: SocketServerConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        on_close: Callable[[Connection], None],
    ) -> None:
        self.config = config
        self.clock = clock
        self.now_ms = clock.monotonic_ms
        self.loop = loop
        self.log = LogLimiter(clock)
        self.requests = RequestChannel(config)
        self.pool = BufferPool()
        self.shared_buffer = make_shared_buffer()
        self.shared_space = self.shared_buffer[:READ_BYTES_MAX]
        """Where a single read goes."""
        self.selector: Selector | None = None
        """Reads the plain connections where it was built; made with the first of them."""
        self.channels: dict[int, KafkaChannel] = {}
        self._on_close = on_close
        self._due: list[KafkaChannel] = []
        self._deferred: list[Callable[[], None]] = []
        self._put_off: deque[KafkaChannel] = deque()
        self.turn_frames_max = TURN_FRAMES_MAX
        self._turn_ends_ms = 0
        self.is_turn_coming = False
        """Whether a connection waits for the end of the current callback."""
        self._deadlines: list[tuple[int, int]] = []  # When, and which connection.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._emptied: asyncio.Future[None] | None = None

        self._closed = ConnectionState()
        self.requests_rejected = 0
        self.mutes = 0
        self.connections_opened = 0
        self.connections_expired = 0
        self.connections_stalled = 0

    @property
    def requests_received(self) -> int:
        """All requests so far."""
        return self._closed.requests + sum(each.state.requests for each in self.channels.values())

    @property
    def bytes_in(self) -> int:
        """All that was received so far."""
        return self._closed.bytes_in + sum(each.state.bytes_in for each in self.channels.values())

    @property
    def bytes_out(self) -> int:
        """All that was sent so far."""
        return self._closed.bytes_out + sum(each.state.bytes_out for each in self.channels.values())

    # Connections.

    def channel_opened(self, channel: KafkaChannel) -> None:
        """A connection is ready to be read."""
        self.connections_opened += 1
        self.channels[channel.connection_id] = channel
        if self.config.connections_max_idle_ms >= 0:
            self.wake_at(channel, channel.liveness.idle_deadline_ms)

    def channel_closed(self, channel: KafkaChannel) -> None:
        """A connection is gone, or never came to be."""
        self.channels.pop(channel.connection_id, None)
        self._closed.requests += channel.state.requests
        self._closed.bytes_in += channel.state.bytes_in
        self._closed.bytes_out += channel.state.bytes_out
        self._on_close(channel)
        if not self.channels and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def renew_shared_buffer(self) -> None:
        """A request retains the bytes of the one in use."""
        self.shared_buffer = make_shared_buffer()
        self.shared_space = self.shared_buffer[:READ_BYTES_MAX]
        if self.selector is not None:
            self.selector.use_buffer(self.shared_buffer)

    def least_recently_used(self, exempt_listener: str) -> KafkaChannel | None:
        """The connection of another listener that was silent the longest."""
        candidates = (c for c in self.channels.values() if c.listener_name != exempt_listener)
        return min(candidates, key=lambda channel: channel.state.last_active_ms, default=None)

    # Turns: how long a connection may keep others waiting.

    def begin_turn(self, limit_ms: int = TURN_MS_MAX) -> int:
        """Sockets are about to be read, or frames that were put off handled: what time it is."""
        now_ms = self.now_ms()
        self._turn_ends_ms = now_ms + limit_ms
        return now_ms

    def is_turn_over(self, frames: int) -> bool:
        """Whether a connection with so many frames handled must let others go first."""
        return frames > 0 and (
            frames >= self.turn_frames_max or self.now_ms() >= self._turn_ends_ms
        )

    def put_off(self, channel: KafkaChannel) -> None:
        """Let a connection go on with the frames it has received, once others had their turn."""
        self._put_off.append(channel)
        self._come_back()

    def _handle_put_off(self) -> None:
        """Let the connection go on that waits for longest, then look at the sockets again."""
        self.begin_turn(PUT_OFF_MS_MAX)
        self._put_off.popleft().go_on_handling()
        if self._put_off:
            self._come_back()

    # What became due while others were being handled.

    def turn_soon(self, channel: KafkaChannel) -> None:
        """Let a connection send what is due and read on, once, after the current callback."""
        if not channel.is_turn_due:
            channel.is_turn_due = True
            self._due.append(channel)
            self._come_back()

    def defer(self, call: Callable[[], None]) -> None:
        """Call something after the current callback, and before the next turns.

        What it answers leaves in the same turn of the loop.
        """
        self._deferred.append(call)
        self._come_back()

    def _come_back(self) -> None:
        if not self.is_turn_coming:
            self.is_turn_coming = True
            self.loop.call_soon(self._take_turns)

    def _take_turns(self) -> None:
        deferred, self._deferred = self._deferred, []
        for call in deferred:
            try:
                call()
            except Exception:
                logger.exception("Something that was put off has failed")
        due, self._due = self._due, []
        self.is_turn_coming = False
        if self._deferred:
            self._come_back()
        if due:
            self.begin_turn()
        for channel in due:
            channel.turn()
        if self._put_off:
            self._handle_put_off()

    # Deadlines.

    def wake_at(self, channel: KafkaChannel, deadline_ms: int) -> None:
        """Look after a connection then, unless that will happen before."""
        if 0 < channel.wake_at_ms <= deadline_ms:
            return
        channel.wake_at_ms = deadline_ms
        heapq.heappush(self._deadlines, (deadline_ms, channel.connection_id))
        # Entries of closed connections are left behind; not for ever.
        if len(self._deadlines) > 64 + 2 * len(self.channels):
            self._deadlines = [
                entry for entry in self._deadlines if self._is_current(*entry) is not None
            ]
            heapq.heapify(self._deadlines)
        self._arm()

    def _is_current(self, deadline_ms: int, connection_id: int) -> KafkaChannel | None:
        channel = self.channels.get(connection_id)
        return channel if channel is not None and channel.wake_at_ms == deadline_ms else None

    def _arm(self) -> None:
        if not self._deadlines:
            return
        deadline_ms = self._deadlines[0][0]
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self.now_ms())
        self._timer = self.loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.run_deadlines()
        self._arm()

    def run_deadlines(self) -> None:
        """Wake every connection whose moment has come. The timer calls it; so may a test."""
        now_ms = self.now_ms()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            channel = self._is_current(*heapq.heappop(self._deadlines))
            if channel is not None:
                channel.wake_at_ms = 0
                self._look_after(channel, now_ms)

    def _look_after(self, channel: KafkaChannel, now_ms: int) -> None:
        checked = channel.check(now_ms)
        if isinstance(checked, Expiry):
            self._expire(channel, checked)
        elif checked != NEVER_MS:
            self.wake_at(channel, checked)

    def _expire(self, channel: KafkaChannel, expiry: Expiry) -> None:
        if expiry is Expiry.LINGERED:
            channel.abort()
            return
        if expiry is Expiry.IDLE:
            self.connections_expired += 1
        else:
            self.connections_stalled += 1
        channel.close(expiry.value % channel.liveness.limit_ms(expiry))

    # The end.

    async def drain(self) -> None:
        """Answer what was asked, then close; return when every connection is closed."""
        for channel in list(self.channels.values()):
            channel.drain()
        await self._until_empty()

    async def close(self) -> None:
        """Close every connection now and forget the deadlines."""
        for channel in list(self.channels.values()):
            channel.abort()
        await self._until_empty()
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.selector is not None:
            self.selector.close()
            self.selector = None

    async def _until_empty(self) -> None:
        if self.channels:
            self._emptied = self.loop.create_future()
            await self._emptied
