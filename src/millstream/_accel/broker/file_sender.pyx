# cython: language_level=3, freethreading_compatible=True
"""Bytes, a region of a file and bytes again to a socket, in one call; for `network.senders`.

Only where `sendfile` is that of Linux. Nothing is kept: the caller goes on where this ends.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int64_t

from millstream._accel.broker.records_sender cimport ms_send_region


def send_region(int socket, head, int file, int64_t position, int64_t length, tail):
    """How many bytes of the three were sent; what is wrong with the file shows at the next try.

    A socket that is gone is an OSError, if not even the head could be sent.
    """
    cdef Py_buffer head_view, tail_view
    cdef int64_t sent
    cdef int code
    PyObject_GetBuffer(head, &head_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(tail, &tail_view, PyBUF_SIMPLE)
        try:
            with nogil:
                sent = ms_send_region(
                    socket, head_view.buf, head_view.len, file, position, length, tail_view.buf,
                    tail_view.len)
                code = errno
        finally:
            PyBuffer_Release(&tail_view)
    finally:
        PyBuffer_Release(&head_view)
    if sent < 0:
        if code != EAGAIN:
            raise OSError(code, "cannot send")
        sent = 0
    return sent
