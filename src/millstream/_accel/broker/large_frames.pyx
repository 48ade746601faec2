# cython: language_level=3, freethreading_compatible=True
"""Connections that send large frames: whose turn it is, and what is received beside the loop.

`Selector` extends it, and does the reading and handling. In a turn of the loop large frames are
read up to some size, so that nobody with a small request waits for more than one of them; and those
of one connection for a while, so that its buffer and its part of the log are in the cache.
When several connections send them, one is read here and a `BulkReceiver` receives the others.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

from millstream._accel.broker.bulk_receiver cimport BulkReceiver
from millstream._accel.broker.channel_state cimport is_quiet, own_bytes
from millstream._accel.broker.poller cimport Poller
from millstream._accel.broker.socket_transport cimport SocketTransport
from millstream._accel.broker.sockets cimport ms_epoll_add_news

cdef enum:
    # So much is read of one connection before it is another's turn,
    CONNECTION_BYTES_MAX = 12 * 1024 * 1024
    # and of all of them before the loop turns to others.
    TURN_BYTES_MAX = 512 * 1024
    # Who sends nothing for so long loses its turn.
    KEPT_MS = 20


cdef class LargeFrames(Poller):
    """Reads large frames in turns, or lets them be received."""

    def close(self):
        """Look at nobody any more, and end the thread if there is one."""
        self._is_alone = True
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None
        Poller.close(self)

    cdef bint is_bulk(self, SocketTransport transport) except -1:
        """Whether frames are received that are larger than a read into the shared buffer."""
        return own_bytes(transport.channel) > self.read_bytes_max

    cdef int read_large(self, PyObject** waiting, int count) except -1:
        """Lend who is ready; else read whose turn it is, then who waits for longest."""
        cdef SocketTransport transport
        cdef int64_t left = TURN_BYTES_MAX
        cdef int i, first
        for i in range(count):
            (<SocketTransport>waiting[i]).widen()
        if count > 0 and not self._is_alone:
            count = self._lend(waiting, count)
        while count > 0 and left > 0:
            first = 0
            for i in range(1, count):
                if self._is_before(<SocketTransport>waiting[i], <SocketTransport>waiting[first]):
                    first = i
            transport = <SocketTransport>waiting[first]
            count -= 1
            waiting[first] = waiting[count]
            if not transport.is_read:
                continue
            if not self._is_its_turn(transport):
                self._give_turn(transport)
            self._bulk_ms = self.now_ms
            self.received = 0
            self.try_to_read(transport)
            self._bulk_left -= self.received
            left -= self.received
        return 0

    cdef bint _is_before(self, SocketTransport transport, SocketTransport other) noexcept:
        if self._is_its_turn(transport) or self._is_its_turn(other):
            return self._is_its_turn(transport)
        return transport.turn < other.turn

    cdef bint _is_its_turn(self, SocketTransport transport) noexcept:
        return <PyObject*>transport is self._bulk and self._bulk_left > 0

    cdef int _give_turn(self, SocketTransport transport) except -1:
        self._bulk = <PyObject*>transport
        self._bulk_left = CONNECTION_BYTES_MAX
        self._bulk_turns += 1
        self._bulk_ms = self.now_ms
        transport.turn = self._bulk_turns
        return 0

    cdef bint _is_kept(self, SocketTransport transport) except -1:
        """Whether it is read here while others are lent. One is, or the loop might have to wait."""
        if self._is_its_turn(transport):
            return True
        if self._bulk_left > 0 and self.now_ms - self._bulk_ms <= KEPT_MS:
            return False
        self._give_turn(transport)
        return True

    cdef int _lend(self, PyObject** waiting, int count) except -1:
        """Let the frames of several connections be received; how many have to be read here.

        A single connection gains nothing: it would be waited for all the same.
        """
        cdef SocketTransport transport
        cdef int i, left = 0
        if count == 1 and self._lent_count() == 0:
            return count
        if self._receiver is None:
            self._start_receiver()
        for i in range(count):
            transport = <SocketTransport>waiting[i]
            if self._is_kept(transport) or not self._lend_one(transport):
                waiting[left] = <PyObject*>transport
                left += 1
        return left

    cdef int _lent_count(self) except -1:
        return 0 if self._receiver is None else self._receiver.count()

    cdef int _start_receiver(self) except -1:
        """Without a thread everything is received here."""
        try:
            self._receiver = BulkReceiver()
            if ms_epoll_add_news(self._epoll, self._receiver.news) < 0:
                self._receiver = None
        except OSError:
            pass
        self._is_alone = self._receiver is None
        return 0

    cdef bint _lend_one(self, SocketTransport transport) except -1:
        """Unless it waits for something, or others wait for memory."""
        if (self._is_alone or not transport.is_read or transport.express is None
                or not is_quiet(transport.channel) or self._processor.requests.is_full
                or not transport.lend(self._receiver)):
            return False
        self.lent += 1
        return True

    cdef int collect(self) except -1:
        """Handle what was received, up to as much as is read in a turn."""
        cdef SocketTransport transport
        cdef int64_t left = TURN_BYTES_MAX, count
        while left > 0 and self._receiver is not None:
            transport = self._receiver.collect()
            if transport is None:
                return 0
            count = transport.take_back()
            left -= count
            try:
                self.handle_received(transport, count)
                self._go_on(transport, count > 0 and transport.loan.result > 0)
            except Exception as error:
                self.report(transport, error)
        if self._receiver is not None:
            self._receiver.remind()
        return 0

    cdef int _go_on(self, SocketTransport transport, bint is_likely) except -1:
        """Lend it again if it is likely to send more; else it is watched as others are."""
        # Who was muted and is read again is watched by now.
        if transport.is_read and not transport.is_watched and not (
                is_likely and self.is_bulk(transport) and self._lent_count() > 0
                and not self._is_kept(transport) and self._lend_one(transport)):
            transport.watch()
        return 0

    cdef try_to_read(self, SocketTransport transport):
        """Read and handle."""

    cdef int handle_received(self, SocketTransport transport, int64_t count) except -1:
        """Handle what was received into the buffer that was lent, as if it had been read here."""
        return 0

    cdef report(self, SocketTransport transport, error):
        """What should not happen."""
