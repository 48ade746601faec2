"""The search for a batch, for the other extension modules; see batch_finder.pyx."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    ENTRY_SIZE = 8

cdef struct Entries:
    # What is in the file, and what is to be written behind it.
    const uint8_t* written
    const uint8_t* pending
    int64_t written_count
    int64_t count

cdef struct Head:
    int64_t position
    int64_t size
    int64_t base_offset
    int64_t last_offset

cdef bint look(
    const Entries* entries, int descriptor, int64_t base_offset, int64_t end, int64_t offset,
    Head* head) noexcept nogil
