"""A connection's bytes behind two calls, and answers with records; see the headers."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from "broker/transport.h" nogil:
    ctypedef struct ms_transport:
        int64_t (*receive)(ms_transport* transport, void* buffer, size_t size) noexcept nogil
        int64_t (*send)(
            ms_transport* transport, const void* data, size_t size, int has_more) noexcept nogil
        int (*has_buffered)(const ms_transport* transport) noexcept nogil
        int descriptor
        void* session
    void ms_transport_open(ms_transport* transport, int descriptor)
    void ms_transport_widen(const ms_transport* transport, int size)

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
    int64_t ms_send_answer(ms_transport* transport, const ms_answer* answer, uint8_t* memory)
    int64_t ms_send_region(
        ms_transport* transport, const void* head, int64_t head_size, int file,
        int64_t position, int64_t length, const void* tail, int64_t tail_size)
