"""What the extension modules take from slots.h. See there."""

from cpython.ref cimport PyObject

cdef extern from "broker/slots.h":
    Py_ssize_t ms_slot_offset(object owner, object name) except -1
    PyObject* ms_slot_get(object owner, Py_ssize_t offset) noexcept
    void ms_slot_set(object owner, Py_ssize_t offset, object value) noexcept
