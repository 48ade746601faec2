# cython: language_level=3, freethreading_compatible=True
"""Blocks of a file beyond its end, for `storage.disk`; on Linux only."""

from libc.stdint cimport int64_t

cdef extern from "broker/preallocation.h" nogil:
    bint ms_preallocate(int descriptor, int64_t position, int64_t size)


def preallocate(int descriptor, int64_t position, int64_t size):
    """Whether so many bytes from a position on have their blocks now; the file keeps its size."""
    cdef bint is_made
    with nogil:
        is_made = ms_preallocate(descriptor, position, size)
    return is_made
