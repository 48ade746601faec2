"""What the extension modules take from records_sender.h. See there."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "broker/records_sender.h" nogil:
    enum:
        MS_ANSWER_MEMORY
    ctypedef struct ms_answer:
        uint8_t* head
        uint8_t* tail
        int64_t head_size
        int64_t tail_size
        int64_t position
        int64_t length
        int descriptor
    int64_t ms_answer_size(const ms_answer* answer)
