"""The selector's state and loop, for the extension modules that send by themselves."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

cdef extern from "<sys/uio.h>" nogil:
    ctypedef struct iovec "struct iovec":
        void* iov_base
        size_t iov_len

cdef extern from "<netinet/in.h>" nogil:
    ctypedef struct sockaddr_storage "struct sockaddr_storage":
        pass

cdef extern from "clocks.h" nogil:
    int64_t ms_monotonic_ms()

cdef extern from "client/client_transport.h" nogil:
    ctypedef struct ms_transports:
        pass

    const ms_transports ms_plain_transports

cdef extern from "client/client_sockets.h" nogil:
    enum:
        MS_NEVER
        MS_CONNECTED
        MS_RECEIVED
        MS_DISCONNECTED
        MS_REPEATED
        MS_DISPATCHED

    ctypedef struct ms_driver:
        void (*release)(ms_driver* driver, void* kept, int count) noexcept

    ctypedef struct ms_pool:
        pass

    ctypedef struct ms_block:
        uint8_t* data

    ctypedef struct ms_outgoing:
        ms_outgoing* next
        int64_t bytes
        int view_count
        Py_buffer* views
        void* kept
        int kept_count
        iovec* vectors

    ctypedef struct ms_event:
        ms_event* next
        int kind
        int64_t connection_id
        int64_t periodic_id
        int64_t correlation_id
        int64_t sent_ms
        int64_t size
        ms_block* block
        int* codes
        int code_count
        uint8_t* data

    ctypedef struct ms_periodic:
        int64_t id
        int64_t connection_id
        int64_t next_ms
        int64_t every_ms
        int64_t until_ms
        int64_t correlation_id
        int64_t size
        uint8_t* frame

    ctypedef struct ms_selector:
        ms_pool* pool
        ms_driver* driver

    bint ms_fill_address(
        sockaddr_storage* out, int family, const char* host, uint16_t port, uint32_t scope)
    bint ms_set_driver(ms_selector* selector, ms_driver* driver)
    void ms_block_release(ms_pool* pool, ms_block* block)
    void ms_event_free(ms_selector* selector, ms_event* event)
    ms_selector* ms_selector_new(
        int64_t frame_bytes_max, int64_t received_bytes_max, const ms_transports* transports)
    void ms_selector_clear(ms_selector* selector)
    void ms_selector_free(ms_selector* selector)
    void ms_close_all(ms_selector* selector)
    void ms_run(ms_selector* selector)
    bint ms_await_events(ms_selector* selector, int64_t deadline_ms)
    ms_event* ms_take_events(ms_selector* selector, ms_outgoing** spent)
    void ms_wake(ms_selector* selector)
    void ms_send(ms_selector* selector, int64_t connection_id, ms_outgoing* out, bint is_small)
    void ms_close(ms_selector* selector, int64_t connection_id)
    int64_t ms_open(ms_selector* selector, int64_t connection_id)
    void ms_give_addresses(
        ms_selector* selector, int64_t connection_id, int64_t serial, sockaddr_storage* addresses,
        int count)
    void ms_repeat(ms_selector* selector, ms_periodic* periodic)
    void ms_cancel(ms_selector* selector, int64_t periodic_id)
    void ms_stop(ms_selector* selector)

cdef extern from "client/client_connection.h" nogil:
    ms_outgoing* ms_outgoing_new(int vector_count, int view_count, int64_t copied)
    ms_outgoing* ms_outgoing_copy(int64_t size, uint8_t** data)


cdef int process_number() noexcept nogil


cdef class SelectorLoop:
    cdef ms_selector* state
    cdef int process
    cdef object transports
    cdef object driver_owner


cdef class SelectorCore:
    cdef SelectorLoop _loop
    cdef object _thread
    cdef object _connected
    cdef object _received
    cdef object _disconnected
    cdef object _repeated
    cdef object _dispatched
    cdef object _finalizer
    cdef bint _is_shut_down
    cdef object __weakref__
    cdef int _check(self) except -1
    cdef object _to_event(self, ms_event* event)
    cdef list _take_events(self)
