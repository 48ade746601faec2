"""The seam between `selector` and those who answer requests without Python; see express.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from millstream._accel.broker.bulk_receiver cimport ms_frame_check
from millstream._accel.broker.records_sender cimport ms_answer

cdef enum:
    # No answer of an express handler is longer, but for those of its reader.
    EXPRESS_ANSWER_BYTES_MAX = 512
    # What `stage` gives for a request that is not for it.
    EXPRESS_DECLINED = -1

cdef class ExpressReader:
    # The file that the last answer's records are in.
    cdef object file
    cdef object region_of

    cdef bint read(self, const uint8_t* frame, int64_t size, ms_answer* answer) except -1
    cdef list parts(self, const ms_answer* answer)

cdef class ExpressHandler:
    cdef public ExpressReader reader
    # A bit for each API key whose frames are not for the fast path, as somebody else wants to see them.
    cdef public uint64_t declined_apis
    # What can be found out about a whole frame on any thread, before it is staged; or NULL.
    cdef ms_frame_check check

    cdef bint declines_api(self, const uint8_t* frame) noexcept
    cdef int begin(self) except -1
    cdef int64_t stage(
        self, uint8_t* frame, int64_t size, int64_t checked, uint8_t* answer) except -2
    cdef int commit(self) except -1
