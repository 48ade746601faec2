"""What `express_lane` and `produce_lane` take from log_writers.h. See there."""

from libc.stdint cimport int64_t

from millstream._accel.broker.files cimport iovec

cdef extern from "broker/log_writers.h" nogil:
    ctypedef struct ms_write:
        int descriptor
        int count
        iovec* parts
        int64_t position
        int error
    ctypedef struct ms_writers:
        pass
    ms_writers* ms_writers_start()
    void ms_writers_end(ms_writers* writers)
    void ms_writers_run(ms_writers* writers, ms_write* writes, int count)
    void ms_write_now(ms_write* write)
