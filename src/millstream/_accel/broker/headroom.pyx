# cython: language_level=3, freethreading_compatible=True
"""Blocks of a file beyond its end, for `storage.disk`; on Linux only."""

from libc.stdint cimport int64_t

cdef extern from "broker/headroom.h" nogil:
    bint ms_make_headroom(int descriptor, int64_t position, int64_t size)


def make_headroom(int descriptor, int64_t position, int64_t size):
    """Whether so many bytes from a position on have their blocks now; the file keeps its size."""
    cdef bint is_made
    with nogil:
        is_made = ms_make_headroom(descriptor, position, size)
    return is_made
