"""The C side of the hash, for code that has many keys to hash."""

from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t hash_bytes(const uint8_t* p, size_t size) noexcept nogil
