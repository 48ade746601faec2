"""How a batch gets its checksum, for `batch_writer`."""

from libc.stdint cimport int64_t, uint8_t

cdef int raise_too_large(int64_t body_size) except -1
cdef bytes seal_bytes(uint8_t* header, const uint8_t* body, int64_t size)
cdef bytes seal_view(uint8_t* header, body)
