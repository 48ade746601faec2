# cython: language_level=3, freethreading_compatible=True
"""What a connection is doing: one object that compiled code and `KafkaChannel` both work on.

A `Connection` has one. Its gate, receiver, sender and liveness keep here what the selector must
know without asking Python; `millstream.network.server.connection_state` has the same in plain
Python. Nothing is decided here but whether the next frame may take the fast path. One thread only.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer


cdef class ConnectionState:
    """The fields are described in connection_state.pxd."""

    def __cinit__(self):
        self.is_open = True

    @property
    def own(self):
        """The buffer that the connection has for itself, a writable memoryview, or None."""
        return self._own

    @own.setter
    def own(self, buffer):
        cdef Py_buffer view
        self.own_base = NULL
        self.own_bytes = 0
        if buffer is not None:
            PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
            self.own_base = <uint8_t*>view.buf
            self.own_bytes = view.len
            # The memory stays where it is for as long as the memoryview is referred to.
            PyBuffer_Release(&view)
        self._own = buffer

    cdef bint takes_fast_path(self) noexcept:
        """Whether the next frame may: no reason is against it, and nothing is muted or owed."""
        return (
            self.full_path == 0 and self.is_open and self.mute_reasons == 0
            and self.in_flight == 0 and self.unsent_bytes == 0)
