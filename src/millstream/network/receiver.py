"""Where a connection's bytes are between two reads.

`KafkaChannel` asks it for space, reads, handles the frames in `buffer[start:end]`, moves `start`
behind them and lets `keep_rest` put away the rest: nowhere if there is none, in a few bytes of its
own if the frame under reception is small, else in a pooled buffer it is then received into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.network.buffers import CARRIED_BYTES_MAX, READ_BYTES_MAX, growth_bytes
from millstream.network.header import FRAME_SIZE_BYTES

if TYPE_CHECKING:
    from millstream.network.connection_state import ConnectionState
    from millstream.network.processor import Processor

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
    )

    def __init__(self, processor: Processor, state: ConnectionState) -> None:
        self._processor = processor
        self._state = state
        self._carried = b""
        self._pass_start = 0
        self._reserved_bytes = 0
        self.buffer = _NOTHING
        self.buffer_is_retained = False

    @property
    def has_unhandled(self) -> bool:
        """Whether bytes were put away."""
        return bool(self._carried) or self._state.end > self._state.start

    def space(self) -> memoryview:
        """Where the next read goes; never empty after a pass that could keep its rest."""
        own = self._state.own
        if own is not None:
            return own[self._state.end :]
        shared = self._processor.shared_space
        carried = self._carried
        if carried:
            shared[: len(carried)] = carried
            return shared[len(carried) :]
        return shared

    def received(self, count: int, begin: int = 0, handled: int = 0) -> None:
        """So many bytes were put into `space()`: they are in `buffer[start:end]` of the state now.

        With nothing put away they may also have been put into the shared buffer from `begin` on.
        Of what is in the buffer then, so many bytes were `handled` by the fast path.
        """
        state = self._state
        if state.own is None:
            self.buffer = self._processor.shared_buffer
            self._pass_start = begin
            state.start = begin + handled
            state.end = begin + len(self._carried) + count
            if self._carried:
                self._carry(b"")
        else:
            state.start += handled
            state.end += count

    def restore(self) -> None:
        """Put what was carried where it can be handled, without a read."""
        if self._state.own is None:
            self.space()
            self.received(0)

    def keep_rest(self) -> bool:
        """Put away what was not handled. False if that must wait until the broker has memory."""
        state = self._state
        own, start = state.own, state.start
        if own is None and start == state.end and not self.buffer_is_retained:
            return True
        if self._reserved_bytes and start > self._pass_start:
            self._give_reservation()
        if self.buffer_is_retained:
            self._abandon_buffer()
            own = None
        rest = state.end - start
        has_room = True
        if rest == 0:
            self._let_go(own)
        elif own is None:
            has_room = self._put_away(rest)
        else:
            has_room = self._make_room(own, rest)
        self._pass_start = state.start
        return has_room

    def close(self) -> None:
        """Drop everything and give back what was borrowed."""
        state = self._state
        self._give_reservation()
        if self.buffer_is_retained:
            self._abandon_buffer()
        if state.own is not None:
            self._processor.pool.give_back(state.own)
            state.own = None
        self._carry(b"")
        self.buffer = _NOTHING
        state.start = state.end = 0

    def _carry(self, data: bytes) -> None:
        self._carried = data
        self._state.carried_bytes = len(data)

    def _frame_bytes(self, rest: int) -> int:
        """The size of the frame at `start` as far as it is known."""
        if rest < FRAME_SIZE_BYTES:
            return FRAME_SIZE_BYTES
        start = self._state.start
        prefix = self.buffer[start : start + FRAME_SIZE_BYTES]
        return FRAME_SIZE_BYTES + int.from_bytes(prefix, "big")

    def _let_go(self, own: memoryview | None) -> None:
        """Nothing is left. A connection that sends large frames keeps its buffer, within limits.

        Frames that fit into the shared buffer are best received there, several at a time.
        """
        state = self._state
        was_large = state.end - self._pass_start > CARRIED_BYTES_MAX
        state.start = state.end = 0
        pool = self._processor.pool
        if own is not None and was_large and len(own) > READ_BYTES_MAX and pool.may_linger:
            return
        if own is not None:
            pool.give_back(own)
            state.own = None
        self.buffer = _NOTHING

    def _put_away(self, rest: int) -> bool:
        """Out of the shared buffer, which others need now."""
        state = self._state
        frame_bytes = self._frame_bytes(rest)
        if rest <= CARRIED_BYTES_MAX and frame_bytes <= CARRIED_BYTES_MAX:
            self._carry(bytes(self.buffer[state.start : state.end]))
            self.buffer = _NOTHING
            state.start = state.end = 0
            return True
        has_room = self._reserve(frame_bytes, rest)
        size = growth_bytes(frame_bytes, rest) if has_room else rest
        if has_room and state.start - self._pass_start > CARRIED_BYTES_MAX:
            # Several frames at a time: the next read shall bring as many.
            size = max(size, READ_BYTES_MAX)
        self._move_to(self._processor.pool.take(max(size, rest)), rest)
        return has_room

    def _make_room(self, own: memoryview, rest: int) -> bool:
        """Behind the rest in the connection's own buffer, or in a larger one."""
        state = self._state
        frame_bytes = self._frame_bytes(rest)
        if not self._reserve(frame_bytes, rest):
            return False
        if state.start + frame_bytes <= len(own) and state.start < rest:
            return True
        size = growth_bytes(frame_bytes, rest)
        if size <= len(own):
            own[:rest] = own[state.start : state.end]
            state.start, state.end = 0, rest
        else:
            self._move_to(self._processor.pool.take(size), rest)
            self._processor.pool.give_back(own)
        return True

    def _move_to(self, buffer: memoryview, rest: int) -> None:
        state = self._state
        buffer[:rest] = self.buffer[state.start : state.end]
        state.own = self.buffer = buffer
        state.start, state.end = 0, rest

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
