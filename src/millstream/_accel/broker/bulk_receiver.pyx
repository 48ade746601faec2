# cython: language_level=3, freethreading_compatible=True
"""The thread that receives large frames beside the event loop; see bulk_receiver.h.

A `Selector` starts one when several connections send large frames at a time, lends it their
sockets, and ends it when it is closed itself. Nothing is handled or answered here. Not thread-safe
but for the thread behind it: one loop lends, recalls and collects.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport errno

import os

cdef extern from "broker/bulk_receiver.h" nogil:
    ms_bulk* ms_bulk_start()
    void ms_bulk_end(ms_bulk* bulk)
    bint ms_bulk_lend(ms_bulk* bulk, ms_loan* loan)
    void ms_bulk_recall(ms_bulk* bulk, ms_loan* loan)
    ms_loan* ms_bulk_collect(ms_bulk* bulk)
    void ms_bulk_remind(ms_bulk* bulk)
    int ms_bulk_count(const ms_bulk* bulk)
    int ms_bulk_news(const ms_bulk* bulk)


cdef class BulkReceiver:
    """Receives into the buffers it is lent until a frame is there. A lender lives that long."""

    def __cinit__(self):
        self._bulk = NULL
        self.news = -1

    def __init__(self):
        self._bulk = ms_bulk_start()
        if self._bulk == NULL:
            raise OSError(errno, os.strerror(errno))
        self.news = ms_bulk_news(self._bulk)

    def __dealloc__(self):
        self.close()

    def close(self):
        """End the thread. What is lent by then can still be recalled."""
        cdef ms_bulk* bulk = self._bulk
        self._bulk = NULL
        if bulk != NULL:
            with nogil:
                ms_bulk_end(bulk)

    cdef bint lend(self, ms_loan* loan, lender) except -1:
        """Have a socket read beside the loop. False if it cannot be: it was not lent then."""
        loan.tag = <PyObject*>lender
        if self._bulk == NULL or not ms_bulk_lend(self._bulk, loan):
            return False
        Py_INCREF(lender)
        return True

    cdef int recall(self, ms_loan* loan) except -1:
        """Have a socket back at once, whatever was received."""
        if self._bulk != NULL:
            with nogil:
                ms_bulk_recall(self._bulk, loan)
        Py_DECREF(<object>loan.tag)
        return 0

    cdef object collect(self):
        """The lender of a socket that is lent no more; None if none is to be collected."""
        cdef ms_loan* loan = ms_bulk_collect(self._bulk)
        if loan == NULL:
            return None
        lender = <object>loan.tag
        Py_DECREF(lender)
        return lender

    cdef int remind(self) except -1:
        """Nobody collects any more for now: what is there is news again."""
        ms_bulk_remind(self._bulk)
        return 0

    cdef int count(self) noexcept:
        """How many are lent."""
        return ms_bulk_count(self._bulk)
