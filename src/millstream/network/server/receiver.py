"""Where a connection's bytes are between two reads.

`KafkaChannel` asks it for space, reads, handles the frames in `buffer[start:end]`, moves `start`
behind them and lets `keep_rest` put away the rest: nowhere if there is none, in a few bytes of its
own if the frame under reception is small, else in a pooled buffer it is then received into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.network.server.buffers import CARRIED_BYTES_MAX, READ_BYTES_MAX, growth_bytes
from millstream.network.server.header import FRAME_SIZE_BYTES

if TYPE_CHECKING:
    from millstream.network.server.connection_state import ConnectionState
    from millstream.network.server.processor import Processor

_NOTHING: Final = memoryview(b"")


class Receiver:
    """The unhandled bytes of one connection."""

    __slots__ = (
        "_carried",
        "_pass_start",
        "_processor",
        "_reserved_bytes",
        "_state",
        "buffer",
        "buffer_is_retained",
        "end",
        "start",
    )

    def __init__(self, processor: Processor, state: ConnectionState) -> None:
        self._processor = processor
        self._state = state
        self._carried = b""
        self._pass_start = 0
        self._reserved_bytes = 0
        self.buffer = _NOTHING
        self.buffer_is_retained = False
        self.start = 0
        self.end = 0

    @property
    def has_unhandled(self) -> bool:
        """Whether bytes were put away."""
        return bool(self._carried) or self.end > self.start

    def space(self) -> memoryview:
        """Where the next read goes; never empty after a pass that could keep its rest."""
        own = self._state.own
        if own is not None:
            return own[self.end :]
        shared = self._processor.shared_space
        carried = self._carried
        if carried:
            shared[: len(carried)] = carried
            return shared[len(carried) :]
        return shared

    def received(self, count: int, begin: int = 0, handled: int = 0) -> None:
        """So many bytes were put into `space()`: they are in `buffer[start:end]` now.

        With nothing put away they may also have been put into the shared buffer from `begin` on.
        Of what is in the buffer then, so many bytes were `handled` by the fast path.
        """
        if self._state.own is None:
            self.buffer = self._processor.shared_buffer
            self._pass_start = begin
            self.start = begin + handled
            self.end = begin + len(self._carried) + count
            if self._carried:
                self._carry(b"")
        else:
            self._note_own(self.start + handled, self.end + count)

    def restore(self) -> None:
        """Put what was carried where it can be handled, without a read."""
        if self._state.own is None:
            self.space()
            self.received(0)
            self._note_own(self.start, self.end)

    def skip(self, count: int) -> None:
        """The fast path has taken so many bytes of what was restored."""
        self._note_own(self.start + count, self.end)

    def keep_rest(self) -> bool:
        """Put away what was not handled. False if that must wait until the broker has memory."""
        own = self._state.own
        if own is None and self.start == self.end and not self.buffer_is_retained:
            self.start = self.end = 0
            return True
        if self._reserved_bytes and self.start > self._pass_start:
            self._give_reservation()
        if self.buffer_is_retained:
            self._abandon_buffer()
            own = None
        rest = self.end - self.start
        has_room = True
        if rest == 0:
            self._let_go(own)
        elif own is None:
            has_room = self._put_away(rest)
        else:
            has_room = self._make_room(own, rest)
        self._note_own(self.start, self.end)
        self._pass_start = self.start
        return has_room

    def close(self) -> None:
        """Drop everything and give back what was borrowed."""
        self._give_reservation()
        if self.buffer_is_retained:
            self._abandon_buffer()
        if self._state.own is not None:
            self._processor.pool.give_back(self._state.own)
            self._state.own = None
        self._carry(b"")
        self.buffer = _NOTHING
        self._note_own(0, 0)

    def _note_own(self, start: int, end: int) -> None:
        """The selector must know too where bytes are that wait to be handled."""
        self.start = self._state.start = start
        self.end = self._state.end = end

    def _carry(self, data: bytes) -> None:
        self._carried = data
        self._state.carried_bytes = len(data)

    def _frame_bytes(self, rest: int) -> int:
        """The size of the frame at `start` as far as it is known."""
        if rest < FRAME_SIZE_BYTES:
            return FRAME_SIZE_BYTES
        prefix = self.buffer[self.start : self.start + FRAME_SIZE_BYTES]
        return FRAME_SIZE_BYTES + int.from_bytes(prefix, "big")

    def _let_go(self, own: memoryview | None) -> None:
        """Nothing is left. A connection that sends large frames keeps its buffer, within limits.

        Frames that fit into the shared buffer are best received there, several at a time.
        """
        was_large = self.end - self._pass_start > CARRIED_BYTES_MAX
        self.start = self.end = 0
        pool = self._processor.pool
        if own is not None and was_large and len(own) > READ_BYTES_MAX and pool.may_linger:
            return
        if own is not None:
            pool.give_back(own)
            self._state.own = None
        self.buffer = _NOTHING

    def _put_away(self, rest: int) -> bool:
        """Out of the shared buffer, which others need now."""
        frame_bytes = self._frame_bytes(rest)
        if rest <= CARRIED_BYTES_MAX and frame_bytes <= CARRIED_BYTES_MAX:
            self._carry(bytes(self.buffer[self.start : self.end]))
            self.buffer = _NOTHING
            self.start = self.end = 0
            return True
        has_room = self._reserve(frame_bytes, rest)
        size = growth_bytes(frame_bytes, rest) if has_room else rest
        if has_room and self.start - self._pass_start > CARRIED_BYTES_MAX:
            # Several frames at a time: the next read shall bring as many.
            size = max(size, READ_BYTES_MAX)
        self._move_to(self._processor.pool.take(max(size, rest)), rest)
        return has_room

    def _make_room(self, own: memoryview, rest: int) -> bool:
        """Behind the rest in the connection's own buffer, or in a larger one."""
        frame_bytes = self._frame_bytes(rest)
        if not self._reserve(frame_bytes, rest):
            return False
        if self.start + frame_bytes <= len(own) and self.start < rest:
            return True
        size = growth_bytes(frame_bytes, rest)
        if size <= len(own):
            own[:rest] = own[self.start : self.end]
            self.start, self.end = 0, rest
        else:
            self._move_to(self._processor.pool.take(size), rest)
            self._processor.pool.give_back(own)
        return True

    def _move_to(self, buffer: memoryview, rest: int) -> None:
        buffer[:rest] = self.buffer[self.start : self.end]
        self._state.own = self.buffer = buffer
        self.start, self.end = 0, rest

    def _reserve(self, frame_bytes: int, rest: int) -> bool:
        """Ask for the whole frame before most of it arrives, so that what is begun can end."""
        if self._reserved_bytes or frame_bytes <= max(rest, CARRIED_BYTES_MAX):
            return True
        requests = self._processor.requests
        if requests.is_full:
            return False
        requests.take_bytes(frame_bytes)
        self._reserved_bytes = frame_bytes
        return True

    def _give_reservation(self) -> None:
        if self._reserved_bytes:
            reserved, self._reserved_bytes = self._reserved_bytes, 0
            self._processor.requests.give_bytes(reserved)

    def _abandon_buffer(self) -> None:
        """Leave the buffer to the requests that retain it."""
        self.buffer_is_retained = False
        if self._state.own is None:
            self._processor.renew_shared_buffer()
        else:
            self._processor.pool.write_off(self._state.own)
            self._state.own = None
