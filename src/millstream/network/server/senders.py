"""Response bytes on their way out: in order, without blocking, files by `sendfile`.

A `KafkaChannel` owns one sender. `SocketSender` writes to a plain socket itself, beneath the
transport, because only so can files and bytes alternate without a copy. `TransportSender` is the
same for TLS: files are read and go through the transport. Neither knows frames or requests.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from millstream import _accel
from millstream.network.server.pacing import stop_pacing
from millstream.network.server.response_parts import BUFFER_TYPES, bytes_of, cut_short, size_of

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, WriteTransport
    from collections.abc import Callable, Sequence

    from millstream.network.server.connection_state import ConnectionState
    from millstream.network.server.request import ResponsePart
    from millstream.types import ReadableBuffer

_send_region: Callable[[int, ReadableBuffer, int, int, int, ReadableBuffer], int] | None = None
if _accel.find("broker.transports"):
    from millstream._accel.broker.transports import send_region as _send_region

SENDFILE_BYTES_MIN: Final = 128 * 1024
"""Below this, reading a file region and sending it with its neighbours is cheaper.

At 64 KiB the copies cost as much as the other calls do, and the peer is woken once, not thrice."""
GATHER_BYTES_MAX: Final = 64 * 1024
"""How many bytes of small answers are joined."""
_GATHER_BYTES_MAX: Final = 192 * 1024
_GATHER_PARTS_MAX: Final = 256
"""What one call sends; the system takes no more than 1024 parts."""
TURN_BYTES_MAX: Final = 4 * 1024 * 1024
"""What one connection may send before the others get their turn."""
_FRAMED_PARTS: Final = 3
"""What is before a region, the region, and what is behind it."""
LOW_WATER_BYTES: Final = 64 * 1024
HIGH_WATER_BYTES: Final = 256 * 1024

ALL: Final = None
_MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)
_NOT_SENDABLE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


class OutputOwner(Protocol):
    """The connection that the output is for."""

    state: ConnectionState
    """What was sent and what waits is counted here."""

    def output_drained(self) -> None:
        """What waits has fallen to the low-water mark."""
        ...

    def output_lost(self, error: OSError) -> None:
        """The peer is gone, or a file is; nothing more can be sent."""
        ...


class Sender:
    """A queue of parts, its head perhaps half sent."""

    __slots__ = ("_owner", "_queue", "_state")

    def __init__(self, owner: OutputOwner) -> None:
        self._owner = owner
        self._state = owner.state
        self._queue: deque[ResponsePart] = deque()

    @property
    def is_blocked(self) -> bool:
        """Whether something waits for the peer to take it."""
        return bool(self._queue)

    @property
    def is_congested(self) -> bool:
        """Whether so much waits that no more answers should be made."""
        return self._state.unsent_bytes > HIGH_WATER_BYTES

    def send(self, data: bytes) -> None:
        """Send now, or queue what the peer does not take."""
        raise NotImplementedError

    def send_parts(self, parts: Sequence[ResponsePart]) -> None:
        """The same for bytes and file regions in any order."""
        raise NotImplementedError

    def go_on(self, parts: Sequence[ResponsePart], sent: int) -> None:
        """The same for parts of which so many bytes have left beneath; nothing waits before."""
        raise NotImplementedError

    def close(self) -> None:
        """Forget the queue and give back what is held."""
        self._queue.clear()
        self._state.unsent_bytes = 0

    def pause(self) -> None:
        """The transport wants no more for now."""

    def resume(self) -> None:
        """The transport wants more again."""

    def _enqueue(self, parts: Sequence[ResponsePart]) -> None:
        self._queue.extend(parts)
        for part in parts:
            self._state.unsent_bytes += size_of(part)


class SocketSender(Sender):
    """Writes to a plain socket. The transport above it never writes, it only reads.

    While the peer takes nothing, a duplicate of the descriptor waits to be writable: a loop does
    not let anyone watch a descriptor that a transport has.
    """

    __slots__ = (
        "_can_sendfile",
        "_duplicate",
        "_loop",
        "_offset",
        "_send",
        "_send_message",
        "_socket",
    )

    def __init__(self, owner: OutputOwner, loop: AbstractEventLoop, sock: socket.socket) -> None:
        super().__init__(owner)
        self._loop = loop
        self._socket = sock
        self._send = sock.send
        self._send_message = sock.sendmsg
        self._offset = 0  # How much of the part at the head was sent.
        self._duplicate = -1
        self._can_sendfile = True
        stop_pacing(sock)

    def send(self, data: bytes) -> None:
        """The common case: small answers, taken whole by the kernel."""
        if self._queue:
            self._enqueue([data])
            return
        try:
            sent = self._send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._owner.output_lost(error)
            return
        self._state.bytes_out += sent
        if sent < len(data):
            self._enqueue([memoryview(data)[sent:]])
            self._wait()

    def send_parts(self, parts: Sequence[ResponsePart]) -> None:
        """Send until the kernel's buffer is full."""
        if self._queue:
            self._enqueue(parts)
            return
        try:
            is_framed = len(parts) == _FRAMED_PARTS and _send_region is not None
            sent = self._send_framed(parts) if is_framed else self._send_small(parts)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._owner.output_lost(error)
            return
        if sent is not ALL:
            self.go_on(parts, sent)

    def go_on(self, parts: Sequence[ResponsePart], sent: int) -> None:
        """Only plain sockets are sent to beneath."""
        self._enqueue(parts)
        self._note_sent(sent)
        self._flush()

    def _send_framed(self, parts: Sequence[ResponsePart]) -> int | None:
        """An answer with one region: if that is large, its three parts in one compiled call."""
        head, region, tail = parts
        if not (isinstance(head, BUFFER_TYPES) and isinstance(tail, BUFFER_TYPES)):
            return self._send_small(parts)
        if isinstance(region, BUFFER_TYPES) or not self._is_for_sendfile(region):
            return self._send_small(parts)
        assert _send_region is not None
        source = region.fileno(), region.position, region.length
        sent = _send_region(self._socket.fileno(), head, *source, tail)
        if sent < len(head) + region.length + len(tail):
            return sent
        self._state.bytes_out += sent
        return ALL

    def _send_small(self, parts: Sequence[ResponsePart]) -> int | None:
        """The common case: parts that fit into one call; how much was sent, or `ALL`."""
        gathered: list[ReadableBuffer] = []
        room = _GATHER_BYTES_MAX
        for part in parts:
            if isinstance(part, BUFFER_TYPES):
                room -= len(part)
                gathered.append(part)
            elif part.length < SENDFILE_BYTES_MIN:
                room -= part.length
                gathered.append(bytes_of(part))
            else:
                return 0
        if room < 0 or len(gathered) > _GATHER_PARTS_MAX:
            return 0
        sent = self._send_message(gathered)
        if sent < _GATHER_BYTES_MAX - room:
            return sent
        self._state.bytes_out += sent
        return ALL

    def close(self) -> None:
        """Stop waiting as well."""
        super().close()
        self._offset = 0
        self._stop_waiting()

    def _flush(self) -> None:
        turn_end = self._state.bytes_out + TURN_BYTES_MAX
        try:
            while self._queue and self._state.bytes_out < turn_end:
                if self._is_for_sendfile(self._queue[0], self._offset):
                    self._send_file()
                else:
                    self._send_gathered()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._owner.output_lost(error)
            return
        if self._queue:
            self._wait()
        else:
            self._stop_waiting()

    def _is_for_sendfile(self, part: ResponsePart, offset: int = 0) -> bool:
        """Whether a part is best left where it is; the rest of one that was cut short always is."""
        if isinstance(part, BUFFER_TYPES):
            return False
        is_worth_it = offset > 0 or part.length >= SENDFILE_BYTES_MIN
        return is_worth_it and self._can_sendfile and part.fileno() >= 0

    def _send_gathered(self) -> None:
        """Send one part, or with it as many small ones as are worth one call."""
        queue = self._queue
        gathered: list[ReadableBuffer] = []
        room = _GATHER_BYTES_MAX
        for part in queue:
            room -= size_of(part)
            if gathered and (room < 0 or self._is_for_sendfile(part)):
                break
            gathered.append(bytes_of(part))
            if len(gathered) == _GATHER_PARTS_MAX:
                break
        if room < 0 and not isinstance(queue[0], BUFFER_TYPES):
            # Large, and not for `sendfile`: it would be read anew for every piece the peer takes.
            queue[0] = gathered[0]
        if self._offset:
            gathered[0] = memoryview(gathered[0])[self._offset :]
        flags = _MORE_FOLLOWS if len(gathered) < len(queue) else 0
        if len(gathered) == 1:
            sent = self._send(gathered[0], flags)
        else:
            sent = self._send_message(gathered, (), flags)
        self._note_sent(sent)

    def _note_sent(self, count: int) -> None:
        queue = self._queue
        self._state.bytes_out += count
        self._state.unsent_bytes -= count
        count += self._offset
        # What was read from a file is not kept for a slow peer.
        while queue and count >= (size := size_of(queue[0])):
            count -= size
            queue.popleft()
        self._offset = count

    def _send_file(self) -> None:
        region = self._queue[0]
        assert not isinstance(region, BUFFER_TYPES)
        position = region.position + self._offset
        count = region.length - self._offset
        try:
            sent = os.sendfile(self._socket.fileno(), region.fileno(), position, count)
        except OSError as error:
            if error.errno not in _NOT_SENDABLE:
                raise
            self._can_sendfile = False
            return
        if sent == 0:
            raise cut_short(region)
        self._note_sent(sent)

    def _wait(self) -> None:
        if self._duplicate >= 0:
            return
        try:
            self._duplicate = os.dup(self._socket.fileno())
        except OSError as error:  # No descriptor left.
            self._owner.output_lost(error)
            return
        self._loop.add_writer(self._duplicate, self._on_writable)

    def _on_writable(self) -> None:
        self._flush()
        if self._state.unsent_bytes <= LOW_WATER_BYTES:
            self._owner.output_drained()

    def _stop_waiting(self) -> None:
        if self._duplicate >= 0:
            self._loop.remove_writer(self._duplicate)
            os.close(self._duplicate)
            self._duplicate = -1


class TransportSender(Sender):
    """Writes through a transport that encrypts. Files are read when their turn comes."""

    __slots__ = ("_is_paused", "_transport")

    def __init__(self, owner: OutputOwner, transport: WriteTransport) -> None:
        super().__init__(owner)
        self._transport = transport
        self._is_paused = False
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES, low=LOW_WATER_BYTES)

    @property
    def is_blocked(self) -> bool:
        """Whether the transport waits for the peer."""
        return self._is_paused

    @property
    def is_congested(self) -> bool:
        """The same: the transport's own marks decide."""
        return self._is_paused

    def send(self, data: bytes) -> None:
        """To the transport, unless it wants no more."""
        self.send_parts([data])

    def send_parts(self, parts: Sequence[ResponsePart]) -> None:
        """Until the transport wants no more."""
        self._enqueue(parts)
        self._flush()

    def pause(self) -> None:
        """Called from within `write`."""
        self._is_paused = True

    def resume(self) -> None:
        """Called when the transport's own buffer has drained."""
        self._is_paused = False
        self._flush()
        if not self._is_paused and self._state.unsent_bytes <= LOW_WATER_BYTES:
            self._owner.output_drained()

    def _flush(self) -> None:
        try:
            while self._queue and not self._is_paused:
                data = self._gather()
                self._state.unsent_bytes -= len(data)
                self._state.bytes_out += len(data)
                self._transport.write(data)
        except OSError as error:
            self._owner.output_lost(error)

    def _gather(self) -> ReadableBuffer:
        """Take bytes from the head: one part, or as many small ones as are worth one write."""
        queue = self._queue
        first = bytes_of(queue.popleft())
        room = GATHER_BYTES_MAX - len(first)
        gathered = [first]
        while queue and room > 0:
            head = queue[0]
            room -= size_of(head)
            if room < 0:
                break
            gathered.append(bytes_of(queue.popleft()))
        return first if len(gathered) == 1 else b"".join(gathered)
