"""The C side of ArrowChunk, which BatchWriter reads."""

from libc.stdint cimport int64_t

from millstream._accel.arrow.abi cimport ArrowArray
from millstream._accel.arrow.input cimport ms_input, ms_plan

cdef class ArrowChunk:
    cdef ArrowArray _array
    cdef ms_input _input

    cdef int _bind(self, ms_plan* plan) except -1

cdef int raise_row(int outcome, int64_t row) except -1
