"""The seam between `selector` and those who answer requests without Python; see express.pyx."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    # No answer of an express handler is longer.
    EXPRESS_ANSWER_BYTES_MAX = 512
    # What `stage` gives for a request that is not for it.
    EXPRESS_DECLINED = -1

cdef class ExpressHandler:
    cdef int begin(self) except -1
    cdef int64_t stage(self, uint8_t* frame, int64_t size, uint8_t* answer) except -2
    cdef int commit(self) except -1
