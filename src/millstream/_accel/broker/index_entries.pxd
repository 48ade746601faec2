"""New entries of a segment's indexes, for `express_lane`; see index_entries.pyx."""

from libc.stdint cimport int64_t

cdef int add_entries(object indexes, int64_t last_offset, int64_t position) except -1
