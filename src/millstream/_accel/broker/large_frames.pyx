# cython: language_level=3, freethreading_compatible=True
"""Connections that send large frames: whose turn it is, and what is received beside the loop.

`Selector` has one, asks it which connection to read next, and does the reading. In a turn of the
loop large frames are read up to some size, so that a small request waits for one of them at most;
and those of one connection for a while, so that its buffer and its part of the log are in the
cache. When several connections send them, one is read by the selector and the others are handed off
to a `ReceivingThread`.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

from millstream._accel.broker.epoll cimport ms_epoll_add_eventfd
from millstream._accel.broker.receiving_thread cimport ReceivingThread
from millstream._accel.broker.socket_transport cimport SocketTransport

cdef enum:
    # So much is read of one connection before it is another's turn,
    CONNECTION_BYTES_MAX = 12 * 1024 * 1024
    # and of all of them before the loop turns to others.
    TURN_BYTES_MAX = 512 * 1024
    # A connection that sends nothing for so long loses its turn.
    KEPT_MS = 20


cdef class LargeFrames:
    """Whose large frames are read next. One thread only."""

    def __init__(self, int epoll, int64_t read_bytes_max, requests):
        """While `requests`, the account of the broker's memory, is full nothing is handed off."""
        self._epoll = epoll
        self._read_bytes_max = read_bytes_max
        self._requests = requests

    cdef int close(self) except -1:
        """End the thread if there is one."""
        self._is_alone = True
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None
        return 0

    cdef bint sends_large(self, SocketTransport transport) noexcept:
        """Whether frames are received that are larger than a read into the shared buffer."""
        return transport.state.own_bytes > self._read_bytes_max

    # Those that the selector reads.

    cdef int begin_turn(self, PyObject** waiting, int count, int64_t now_ms) except -1:
        """These are ready: how many are left to be read, after the others were handed off."""
        cdef int i
        self._now_ms = now_ms
        self._left = TURN_BYTES_MAX
        for i in range(count):
            (<SocketTransport>waiting[i]).widen()
        if count > 0 and not self._is_alone:
            return self._hand_off_all(waiting, count)
        return count

    cdef SocketTransport next_to_read(self, PyObject** waiting, int* count):
        """The current one first, then the one that waits for longest; None if the turn is over."""
        cdef SocketTransport transport
        cdef int i, first
        while count[0] > 0 and self._left > 0:
            first = 0
            for i in range(1, count[0]):
                if self._is_before(<SocketTransport>waiting[i], <SocketTransport>waiting[first]):
                    first = i
            transport = <SocketTransport>waiting[first]
            count[0] -= 1
            waiting[first] = waiting[count[0]]
            if transport.is_read:
                if not self._is_current(transport):
                    self._give_turn(transport)
                self._read_ms = self._now_ms
                return transport
        return None

    cdef int note_read(self, int64_t count) noexcept:
        """So many bytes came of the one that was given last."""
        self._current_left -= count
        self._left -= count
        return 0

    cdef bint _is_before(self, SocketTransport transport, SocketTransport other) noexcept:
        if self._is_current(transport) or self._is_current(other):
            return self._is_current(transport)
        return transport.turn < other.turn

    cdef bint _is_current(self, SocketTransport transport) noexcept:
        return <PyObject*>transport is self._current and self._current_left > 0

    cdef int _give_turn(self, SocketTransport transport) noexcept:
        self._current = <PyObject*>transport
        self._current_left = CONNECTION_BYTES_MAX
        self._turns += 1
        self._read_ms = self._now_ms
        transport.turn = self._turns
        return 0

    cdef bint _is_kept(self, SocketTransport transport) noexcept:
        """Whether the selector reads it while others are handed off.

        One is read there, or the loop might have to wait.
        """
        if self._is_current(transport):
            return True
        if self._current_left > 0 and self._now_ms - self._read_ms <= KEPT_MS:
            return False
        self._give_turn(transport)
        return True

    # Those that are received beside the loop.

    cdef int _hand_off_all(self, PyObject** waiting, int count) except -1:
        """Let the frames of several connections be received; how many have to be read here.

        A single connection gains nothing: it would be waited for all the same.
        """
        cdef SocketTransport transport
        cdef int i, left = 0
        if count == 1 and self._handed_off_count() == 0:
            return count
        if self._receiver is None:
            self._start_receiver()
        for i in range(count):
            transport = <SocketTransport>waiting[i]
            if self._is_kept(transport) or not self._hand_off(transport):
                waiting[left] = <PyObject*>transport
                left += 1
        return left

    cdef int _handed_off_count(self) noexcept:
        return 0 if self._receiver is None else self._receiver.count()

    cdef int _start_receiver(self) except -1:
        """Without a thread everything is received here."""
        try:
            self._receiver = ReceivingThread()
            if ms_epoll_add_eventfd(self._epoll, self._receiver.eventfd) < 0:
                self._receiver = None
        except OSError:
            pass
        self._is_alone = self._receiver is None
        return 0

    cdef bint _hand_off(self, SocketTransport transport) except -1:
        """Unless it waits for something, or others wait for memory."""
        if (self._is_alone or not transport.is_read or transport.fast_path is None
                or not transport.state.takes_fast_path() or self._requests.is_full
                or not transport.hand_off(self._receiver)):
            return False
        self.handed_off += 1
        return True

    cdef int begin_collecting(self) noexcept:
        """Something was received."""
        self._left = TURN_BYTES_MAX
        return 0

    cdef SocketTransport next_received(self):
        """One that has a frame or has ended; None if the turn is over or all are collected."""
        cdef SocketTransport transport = None
        if self._receiver is None:
            return None
        if self._left > 0:
            transport = self._receiver.collect()
        if transport is None:
            self._receiver.renotify()
        else:
            self._left -= transport.handoff.end - transport.end_before
        return transport

    cdef int watch_again(self, SocketTransport transport, bint is_likely) except -1:
        """Hand it off again if it is likely to send more; else it is watched as others are."""
        # One that was muted and is read again is watched by now.
        if transport.is_read and not transport.is_watched and not (
                is_likely and self.sends_large(transport) and self._handed_off_count() > 0
                and not self._is_kept(transport) and self._hand_off(transport)):
            transport.watch()
        return 0
