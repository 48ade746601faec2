# cython: language_level=3, freethreading_compatible=True
"""Bytes, a region of a file and bytes again to a socket, in one call; for `network.senders`.

Only where `sendfile` is that of Linux. Nothing is kept: the caller goes on where this ends.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t
from posix.types cimport off_t

cdef extern from "sys/socket.h" nogil:
    enum:
        MSG_MORE
        MSG_NOSIGNAL
        MSG_DONTWAIT
    ssize_t send(int socket, const void* data, size_t size, int flags)

cdef extern from "sys/sendfile.h" nogil:
    ssize_t sendfile(int socket, int file, off_t* position, size_t count)


cdef int64_t send_bytes(int socket, const Py_buffer* data, int flags) noexcept nogil:
    """How many were sent, or -1."""
    cdef ssize_t sent
    while True:
        sent = send(socket, data.buf, data.len, flags | MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent >= 0 or errno != EINTR:
            return sent


cdef int64_t send_file(int socket, int file, int64_t position, int64_t length) noexcept nogil:
    """How many bytes were sent before the socket was full or something was wrong."""
    cdef off_t at = <off_t>position
    cdef ssize_t sent
    while at < position + length:
        sent = sendfile(socket, file, &at, <size_t>(position + length - at))
        if sent == 0 or (sent < 0 and errno != EINTR):
            break
    return at - position


cdef int64_t send_all(
        int socket, const Py_buffer* head, int file, int64_t position, int64_t length,
        const Py_buffer* tail) noexcept nogil:
    cdef int64_t sent = send_bytes(socket, head, MSG_MORE)
    cdef int64_t more
    if sent != head.len:
        return sent
    more = send_file(socket, file, position, length)
    sent += more
    if more == length:
        more = send_bytes(socket, tail, 0)
        sent += more if more > 0 else 0
    return sent


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
                sent = send_all(socket, &head_view, file, position, length, &tail_view)
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
