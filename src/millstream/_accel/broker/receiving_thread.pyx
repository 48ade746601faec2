# cython: language_level=3, freethreading_compatible=True
"""The thread that receives large frames beside the event loop; see frame_receiver.c.

`LargeFrames` starts one when several connections send large frames at a time, hands them off, and
ends it with the selector. Nothing is handled or answered here. Not thread-safe but for the thread
behind it: one loop hands off, takes back and collects.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport errno

import os

cdef extern from "broker/frame_receiver.h" nogil:
    ms_receiving* ms_receiving_start()
    void ms_receiving_end(ms_receiving* receiving)
    bint ms_receiving_hand_off(ms_receiving* receiving, ms_handoff* handoff)
    void ms_receiving_take_back(ms_receiving* receiving, ms_handoff* handoff)
    ms_handoff* ms_receiving_collect(ms_receiving* receiving)
    void ms_receiving_renotify(ms_receiving* receiving)
    int ms_receiving_count(const ms_receiving* receiving)
    int ms_receiving_eventfd(const ms_receiving* receiving)


cdef class ReceivingThread:
    """Receives into the buffers of hand-offs until a frame is there. An owner lives that long."""

    def __cinit__(self):
        self._receiving = NULL
        self.eventfd = -1

    def __init__(self):
        self._receiving = ms_receiving_start()
        if self._receiving == NULL:
            raise OSError(errno, os.strerror(errno))
        self.eventfd = ms_receiving_eventfd(self._receiving)

    def __dealloc__(self):
        self.close()

    def close(self):
        """End the thread. What is handed off by then can still be taken back."""
        cdef ms_receiving* receiving = self._receiving
        self._receiving = NULL
        if receiving != NULL:
            with nogil:
                ms_receiving_end(receiving)

    cdef bint hand_off(self, ms_handoff* handoff, owner) except -1:
        """Have a connection received beside the loop. False if it cannot be: it was not then."""
        handoff.owner = <PyObject*>owner
        if self._receiving == NULL or not ms_receiving_hand_off(self._receiving, handoff):
            return False
        Py_INCREF(owner)
        return True

    cdef int take_back(self, ms_handoff* handoff) except -1:
        """Have a connection back at once, whatever was received."""
        if self._receiving != NULL:
            with nogil:
                ms_receiving_take_back(self._receiving, handoff)
        Py_DECREF(<object>handoff.owner)
        return 0

    cdef object collect(self):
        """The owner of a hand-off that is done and over; None if there is none."""
        cdef ms_handoff* handoff = ms_receiving_collect(self._receiving)
        if handoff == NULL:
            return None
        owner = <object>handoff.owner
        Py_DECREF(owner)
        return owner

    cdef int renotify(self) except -1:
        """Nothing more is collected for now: the descriptor tells of what is left."""
        ms_receiving_renotify(self._receiving)
        return 0

    cdef int count(self) noexcept:
        """How many are handed off."""
        return ms_receiving_count(self._receiving)
