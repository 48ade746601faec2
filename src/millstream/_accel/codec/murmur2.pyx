# cython: language_level=3, freethreading_compatible=True
"""The hash by which Kafka's clients spread keys, compiled.

Every client must agree on it, or the same key lands in two partitions.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef extern from "codec/murmur2.h" nogil:
    uint32_t ms_murmur2(const uint8_t* p, size_t size)


cdef uint32_t hash_bytes(const uint8_t* p, size_t size) noexcept nogil:
    return ms_murmur2(p, size)


cdef uint32_t hash_object(data) except? 0:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef uint32_t h = hash_bytes(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return h


def murmur2(data):
    """Java's murmur2 of the bytes, as a signed 32-bit integer."""
    return <int32_t>hash_object(data)


def partition_for_key(key, int64_t partition_count):
    """The partition of `key`, the same that Kafka's Java client picks."""
    if partition_count < 1:
        raise ValueError(f"partition count must be at least 1, not {partition_count}")
    return (hash_object(key) & <uint32_t>0x7fffffff) % partition_count
