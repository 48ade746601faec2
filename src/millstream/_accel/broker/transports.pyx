# cython: language_level=3, freethreading_compatible=True
"""Transports, and the answers with records that are sent through them; see transport.h.

Other extension modules open transports here. `network.server.senders` has `send_region`: bytes, a
region of a file and bytes again to a plain socket, in one call. Nothing is kept: the caller goes on
where this ends.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t, uint8_t

import os

cdef extern from "broker/transport.h" nogil:
    void ms_transport_open(ms_transport* transport, int descriptor)
    void ms_transport_widen(const ms_transport* transport, int size)

cdef extern from "broker/records_sender.h" nogil:
    int64_t ms_send_answer(ms_transport* transport, const ms_answer* answer, uint8_t* memory)
    int64_t ms_send_region(
        ms_transport* transport, const void* head, int64_t head_size, int file,
        int64_t position, int64_t length, const void* tail, int64_t tail_size)


cdef void open_plain(ms_transport* transport, int descriptor) noexcept:
    """The transport of a plain socket."""
    ms_transport_open(transport, descriptor)


cdef void widen_window(const ms_transport* transport, int size) noexcept:
    """Have the kernel take in so many bytes before they are received."""
    ms_transport_widen(transport, size)


cdef int64_t send_answer(
        ms_transport* transport, const ms_answer* answer, uint8_t* memory) noexcept nogil:
    """How many bytes of an answer with records were sent."""
    return ms_send_answer(transport, answer, memory)


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
