# cython: language_level=3, freethreading_compatible=True
"""The hash by which Kafka's clients spread keys; twin of `millstream.records.plain.murmur2`.

Every client must agree on it, or the same key lands in two partitions.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    MULTIPLIER = 0x5bd1e995
    SHIFT = 24

cdef uint32_t SEED = 0x9747b28c


cdef inline uint32_t little_endian(const uint8_t* p) noexcept nogil:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef uint32_t hash_bytes(const uint8_t* p, size_t size) noexcept nogil:
    cdef uint32_t h = SEED ^ <uint32_t>size
    cdef uint32_t k
    while size >= 4:
        k = little_endian(p) * <uint32_t>MULTIPLIER
        k ^= k >> SHIFT
        h = h * <uint32_t>MULTIPLIER ^ k * <uint32_t>MULTIPLIER
        p += 4
        size -= 4
    if size >= 3:
        h ^= <uint32_t>p[2] << 16
    if size >= 2:
        h ^= <uint32_t>p[1] << 8
    if size >= 1:
        h = (h ^ p[0]) * <uint32_t>MULTIPLIER
    h = (h ^ h >> 13) * <uint32_t>MULTIPLIER
    return h ^ h >> 15


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
