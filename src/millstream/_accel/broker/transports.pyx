# cython: language_level=3, freethreading_compatible=True
"""Bytes, a region of a file and bytes again to a plain socket, in one call; see records_sender.h.

`network.server.senders` calls it. Nothing is kept: the caller goes on where this ends. The
declarations beside it are for the extension modules that have transports of their own.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t

import os


def send_region(int socket, head, int file, int64_t position, int64_t length, tail):
    """How many bytes of the three were sent; what is wrong with the file shows at the next try.

    A socket that is gone is an OSError, if not even the head could be sent.
    """
    cdef ms_transport transport
    cdef Py_buffer head_view, tail_view
    cdef int64_t sent
    ms_transport_open(&transport, socket)
    PyObject_GetBuffer(head, &head_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(tail, &tail_view, PyBUF_SIMPLE)
        try:
            with nogil:
                sent = ms_send_region(
                    &transport, head_view.buf, head_view.len, file, position, length,
                    tail_view.buf, tail_view.len)
        finally:
            PyBuffer_Release(&tail_view)
    finally:
        PyBuffer_Release(&head_view)
    if sent < 0 and sent != -EAGAIN:
        raise OSError(-sent, os.strerror(-sent))
    return max(sent, 0)
