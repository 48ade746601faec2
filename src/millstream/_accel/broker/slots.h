/* The slots of Python objects by their offset.

   State that both Python and compiled code work on stays in Python objects with __slots__. Looking
   an attribute up by name costs compiled code more than it costs the interpreter; a slot is a
   pointer at a fixed place, which is looked up once per class. What is read is borrowed, and NULL
   while the attribute was not set. Only for state that one thread owns. */

#ifndef MILLSTREAM_SLOTS_H
#define MILLSTREAM_SLOTS_H

#include <Python.h>
#include <structmember.h>

/* Where instances of a class have a slot; -1 and a TypeError if it has none of that name. */
static inline Py_ssize_t ms_slot_offset(PyObject *owner, PyObject *name)
{
    PyObject *descriptor = PyObject_GetAttr(owner, name);
    if (!descriptor)
        return -1;
    Py_ssize_t offset = -1;
    if (Py_TYPE(descriptor) == &PyMemberDescr_Type
            && ((PyMemberDescrObject *)descriptor)->d_member->type == T_OBJECT_EX)
        offset = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%R of %R is no slot", name, owner);
    Py_DECREF(descriptor);
    return offset;
}

static inline PyObject *ms_slot_get(PyObject *object, Py_ssize_t offset)
{
    return *(PyObject **)((char *)object + offset);
}

static inline void ms_slot_set(PyObject *object, Py_ssize_t offset, PyObject *value)
{
    PyObject **slot = (PyObject **)((char *)object + offset);
    PyObject *old = *slot;
    Py_INCREF(value);
    *slot = value;
    Py_XDECREF(old);
}

#endif
