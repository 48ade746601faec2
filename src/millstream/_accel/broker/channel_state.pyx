# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""What compiled code reads and sets of the objects of a connection: their slots, by offset.

`selector` uses it. `millstream.network.selection` tells the classes, once; a renamed slot is an
error there. Nothing is kept here.
"""

from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.stdint cimport int64_t

from millstream._accel.broker.slots cimport ms_slot_get, ms_slot_offset, ms_slot_set


def bind(channel, gate, receiver, sender, liveness):
    """Learn where the classes of `millstream.network` keep what is read here."""
    slots.is_open = ms_slot_offset(channel, "is_open")
    slots.gate = ms_slot_offset(channel, "_gate")
    slots.in_flight = ms_slot_offset(channel, "_in_flight")
    slots.out = ms_slot_offset(channel, "_out")
    slots.sender = ms_slot_offset(channel, "_sender")
    slots.receiver = ms_slot_offset(channel, "_receiver")
    slots.liveness = ms_slot_offset(channel, "liveness")
    slots.reasons = ms_slot_offset(gate, "reasons")
    slots.own = ms_slot_offset(receiver, "_own")
    slots.carried = ms_slot_offset(receiver, "_carried")
    slots.start = ms_slot_offset(receiver, "start")
    slots.end = ms_slot_offset(receiver, "end")
    slots.queue = ms_slot_offset(sender, "_queue")
    slots.bytes_sent = ms_slot_offset(sender, "bytes_sent")
    slots.last_active_ms = ms_slot_offset(liveness, "last_active_ms")


cdef object slot(object owner, Py_ssize_t offset):
    return <object>ms_slot_get(owner, offset)


cdef bint is_quiet(object channel) except -1:
    """Whether the next frame can be answered at once: nothing is muted, owed or unsent."""
    return (
        slot(channel, slots.is_open) is True
        and <int64_t>slot(slot(channel, slots.gate), slots.reasons) == 0
        and len(slot(channel, slots.in_flight)) == 0
        and len(slot(channel, slots.out)) == 0
        and len(slot(slot(channel, slots.sender), slots.queue)) == 0)


cdef int64_t own_bytes(object channel) except -1:
    """How large the buffer is that the connection has for itself; 0 if it has none."""
    cdef object own = slot(slot(channel, slots.receiver), slots.own)
    return 0 if own is None else PyMemoryView_GET_BUFFER(own).len


cdef int note_active(object channel, now_ms) except -1:
    ms_slot_set(slot(channel, slots.liveness), slots.last_active_ms, now_ms)
    return 0


cdef int note_sent(object channel, int64_t count) except -1:
    cdef object sender = slot(channel, slots.sender)
    ms_slot_set(sender, slots.bytes_sent, <int64_t>slot(sender, slots.bytes_sent) + count)
    return 0
