"""Who sends large frames, and whose turn it is; the base of `Selector`. See large_frames.pyx."""

from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

from millstream._accel.broker.bulk_receiver cimport BulkReceiver
from millstream._accel.broker.poller cimport Poller
from millstream._accel.broker.socket_transport cimport SocketTransport

cdef class LargeFrames(Poller):
    # Whose large frames are read now, how much more of them, how many had their turn so far, when
    # it was last read, and when this turn of the loop began.
    cdef PyObject* _bulk
    cdef int64_t _bulk_left
    cdef int64_t _bulk_turns
    cdef int64_t _bulk_ms
    cdef int64_t now_ms
    # Who receives large frames beside the loop, once there was a need; whether there can be nobody.
    cdef BulkReceiver _receiver
    cdef bint _is_alone
    # How often a socket was lent to it.
    cdef readonly int64_t lent
    # What the last read has brought, and how much one can bring into the shared buffer.
    cdef int64_t received
    cdef int64_t read_bytes_max

    cdef bint is_bulk(self, SocketTransport transport) except -1
    cdef int read_large(self, PyObject** waiting, int count) except -1
    cdef int collect(self) except -1
    cdef try_to_read(self, SocketTransport transport)
    cdef int handle_received(self, SocketTransport transport, int64_t count) except -1
    cdef report(self, SocketTransport transport, error)

    cdef bint _is_before(self, SocketTransport transport, SocketTransport other) noexcept
    cdef bint _is_its_turn(self, SocketTransport transport) noexcept
    cdef int _give_turn(self, SocketTransport transport) except -1
    cdef bint _is_kept(self, SocketTransport transport) except -1
    cdef int _lend(self, PyObject** waiting, int count) except -1
    cdef int _lent_count(self) except -1
    cdef int _start_receiver(self) except -1
    cdef bint _lend_one(self, SocketTransport transport) except -1
    cdef int _go_on(self, SocketTransport transport, bint is_likely) except -1
