"""The seam between `selector` and those who answer requests without Python; see express.pyx."""

from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.bulk_receiver cimport ms_frame_check
from millstream._accel.broker.records_sender cimport ms_answer

cdef enum:
    # No answer of an express handler is longer, but for those of its reader.
    EXPRESS_ANSWER_BYTES_MAX = 512
    # What `stage` gives for a request that is not for it,
    EXPRESS_DECLINED = -1
    # and for one whose answer comes later, through what it leaves in `deferred`.
    EXPRESS_DEFERRED = 0

cdef class Deferred:
    # None as long as the answer is owed.
    cdef readonly bytes answer

    cpdef complete(self, bytes answer)

cdef class ExpressReader:
    # The file that the last answer's records are in.
    cdef object file
    cdef object region_of

    cdef bint read(self, const uint8_t* frame, int64_t size, ms_answer* answer) except -1
    cdef list parts(self, const ms_answer* answer)

cdef class ExpressHandler:
    cdef public ExpressReader reader
    # Whether the caller of `stage` can wait for an answer.
    cdef public bint may_defer
    cdef Deferred deferred
    # What can be found out about a whole frame on any thread, before it is staged; or NULL.
    cdef ms_frame_check check

    cdef int begin(self) except -1
    cdef int64_t stage(
        self, uint8_t* frame, int64_t size, int64_t checked, uint8_t* answer) except -2
    cdef int commit(self) except -1
