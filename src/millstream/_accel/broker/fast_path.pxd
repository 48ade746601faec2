"""The seam between `selector` and what answers requests without Python; see fast_path.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from millstream._accel.broker.transports cimport ms_answer

cdef enum:
    # No answer of a fast handler is longer, but for those of its reader.
    FAST_ANSWER_BYTES_MAX = 512
    # What `prepare` gives for a request that is not for it,
    FAST_DECLINED = -1
    # and for one whose answer comes later.
    FAST_DEFERRED = -2

cdef class Deferred:
    # Set by the connection that the answer is for, when it takes its place among the others.
    cdef public object connection
    cdef public object response
    cdef readonly bint is_retained

    cpdef complete(self, bytes answer)

cdef class FastReader:
    # The file that the last answer's records are in.
    cdef object file
    cdef object region_of

    cdef bint read(self, const uint8_t* frame, int64_t size, ms_answer* answer) except -1
    cdef list parts(self, const ms_answer* answer)

cdef class FastHandler:
    cdef public FastReader reader
    # A bit for each API key whose frames are not offered, because the full path must see them.
    cdef public uint64_t declined_apis
    # What `prepare` leaves here before it returns FAST_DEFERRED.
    cdef Deferred deferred

    cdef bint declines_api(self, const uint8_t* frame) noexcept
    cdef Deferred take_deferred(self)
    cdef int begin(self) except -1
    cdef int64_t prepare(self, uint8_t* frame, int64_t size, uint8_t* answer) except -3
    cdef int append(self) except -1
