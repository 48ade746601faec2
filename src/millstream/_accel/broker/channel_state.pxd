"""What a `KafkaChannel` is waiting for, for the other extension modules; see channel_state.pyx."""

from libc.stdint cimport int64_t

cdef struct Slots:
    Py_ssize_t is_open
    Py_ssize_t gate
    Py_ssize_t in_flight
    Py_ssize_t out
    Py_ssize_t sender
    Py_ssize_t receiver
    Py_ssize_t liveness
    Py_ssize_t reasons
    Py_ssize_t own
    Py_ssize_t carried
    Py_ssize_t start
    Py_ssize_t end
    Py_ssize_t queue
    Py_ssize_t bytes_sent
    Py_ssize_t last_active_ms

cdef Slots slots

cdef object slot(object owner, Py_ssize_t offset)
cdef bint is_quiet(object channel) except -1
cdef int64_t own_bytes(object channel) except -1
cdef int note_active(object channel, now_ms) except -1
cdef int note_sent(object channel, int64_t count) except -1
