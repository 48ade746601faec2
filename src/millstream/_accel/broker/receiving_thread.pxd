"""The thread for large frames, for `large_frames` and the transports; see receiving_thread.pyx."""

from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.transports cimport ms_transport

cdef extern from "broker/frame_receiver.h" nogil:
    ctypedef struct ms_receiving:
        pass
    ctypedef struct ms_handoff:
        ms_transport* transport
        uint8_t* base
        int64_t start
        int64_t end
        int64_t size
        void* owner
        int64_t result

cdef class ReceivingThread:
    cdef ms_receiving* _receiving
    # A descriptor that becomes readable, once, when there is something to collect.
    cdef int eventfd

    cdef bint hand_off(self, ms_handoff* handoff, owner) except -1
    cdef int take_back(self, ms_handoff* handoff) except -1
    cdef object collect(self)
    cdef int renotify(self) except -1
    cdef int count(self) noexcept
