# cython: language_level=3, freethreading_compatible=True
"""CRC-32C in hardware where the CPU has it, compiled.

`records` checks batches with it, `record_codec` seals them. It knows nothing of records.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "codec/checksum.h" nogil:
    const char* ms_crc32c_init()
    uint32_t ms_crc32c(uint32_t seed, const uint8_t* data, size_t size)
    uint32_t ms_crc32c_portable(uint32_t seed, const uint8_t* data, size_t size)

cdef extern from "Python.h":
    unsigned long PyLong_AsUnsignedLongMask(object number) except? -1

# Below this the work is done before another thread could make use of the GIL, and getting it
# back from a busy thread may cost milliseconds.
cdef enum:
    RELEASE_GIL_SIZE = 128 * 1024

# The import lock makes this run once and before any caller.
INSTRUCTIONS = ms_crc32c_init().decode("ascii")


cdef uint32_t checksum(uint32_t seed, const uint8_t* data, size_t size) noexcept nogil:
    return ms_crc32c(seed, data, size)


def crc32c(data, seed=0):
    """The CRC-32C of `data`, continuing from `seed`, the value of the bytes before it."""
    cdef Py_buffer view
    cdef uint32_t crc = <uint32_t>PyLong_AsUnsignedLongMask(seed)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len >= RELEASE_GIL_SIZE:
        with nogil:
            crc = ms_crc32c(crc, <const uint8_t*>view.buf, view.len)
    else:
        crc = ms_crc32c(crc, <const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def crc32c_portable(data, seed=0):
    """As `crc32c`, by tables alone: what runs on a CPU without the instructions."""
    cdef Py_buffer view
    cdef uint32_t crc = <uint32_t>PyLong_AsUnsignedLongMask(seed)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = ms_crc32c_portable(crc, <const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc
