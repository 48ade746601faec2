"""A connection's bytes behind two calls, for the selector; see transport.h."""

from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.records_sender cimport ms_answer

cdef extern from "broker/transport.h" nogil:
    ctypedef struct ms_transport:
        int64_t (*receive)(ms_transport* transport, void* buffer, size_t size) noexcept nogil
        int64_t (*send)(
            ms_transport* transport, const void* data, size_t size, int has_more) noexcept nogil
        int (*has_buffered)(const ms_transport* transport) noexcept nogil
        int descriptor
        void* session

cdef void open_plain(ms_transport* transport, int descriptor) noexcept
cdef void widen_window(const ms_transport* transport, int size) noexcept
cdef int64_t send_answer(
    ms_transport* transport, const ms_answer* answer, uint8_t* memory) noexcept nogil
