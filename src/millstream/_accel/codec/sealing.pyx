# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""The last step of a batch: header and body in one piece, with the length and the checksum.

Only `batch_writer` calls it. One copy of the body, and none of the result.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int64_t, uint8_t
from libc.string cimport memcpy

from millstream._accel.codec.crc32c cimport checksum
from millstream._accel.wire cimport (
    MS_CRC_AT, MS_CRC_END, MS_HEADER_SIZE, MS_LENGTH_AT, MS_LENGTH_END, ms_write_big_endian)

from millstream.errors import MessageTooLarge

cdef enum:
    # A batch of this size takes long enough to copy and sum that other threads gain by running.
    RELEASE_GIL_SIZE = 128 * 1024


cdef int raise_too_large(int64_t body_size) except -1:
    raise MessageTooLarge(
        f"the batch would have {MS_HEADER_SIZE + body_size} bytes, the limit is {INT32_MAX}")


cdef void fill(uint8_t* batch, uint8_t* header, const uint8_t* body, int64_t size) noexcept nogil:
    """Header and body in place, with the length and the CRC of both."""
    memcpy(batch, header, MS_HEADER_SIZE)
    if size:
        memcpy(batch + MS_HEADER_SIZE, body, size)
    ms_write_big_endian(batch + MS_LENGTH_AT, MS_HEADER_SIZE + size - MS_LENGTH_END, 4)
    ms_write_big_endian(
        batch + MS_CRC_AT, checksum(0, batch + MS_CRC_END, MS_HEADER_SIZE + size - MS_CRC_END), 4)


cdef bytes seal_bytes(uint8_t* header, const uint8_t* body, int64_t size):
    if size > INT32_MAX - MS_HEADER_SIZE:
        raise_too_large(size)
    cdef bytes batch = PyBytes_FromStringAndSize(NULL, MS_HEADER_SIZE + size)
    cdef uint8_t* data = <uint8_t*>PyBytes_AS_STRING(batch)
    if size >= RELEASE_GIL_SIZE:
        with nogil:
            fill(data, header, body, size)
    else:
        fill(data, header, body, size)
    return batch


cdef bytes seal_view(uint8_t* header, body):
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return seal_bytes(header, <const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
