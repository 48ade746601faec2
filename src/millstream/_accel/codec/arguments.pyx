# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""What callers give a `BatchWriter`, checked and made fit for C, or an error that names it.

Only `batch_writer` calls it. The plain version raises the same errors in the same words.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.number cimport PyNumber_Index
from libc.stdint cimport int64_t

from millstream._accel.wire cimport ms_bytes_size

from collections.abc import Iterable, Mapping

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1


cdef str type_name(value):
    return type(value).__name__


cdef object to_integer(value, str name):
    """Any object that stands for an integer, as one."""
    try:
        return PyNumber_Index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type_name(value)}") from None


cdef int64_t to_int(value, str name, int bits) except? -1:
    """`value` as a signed integer of `bits` bits, or an error that says which one is wrong."""
    cdef int overflow = 0
    if not PyLong_CheckExact(value):
        value = to_integer(value, name)
    cdef int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or (bits < 64 and (number >> (bits - 1)) not in (0, -1)):
        raise OverflowError(f"{name} {value} does not fit {bits} bits")
    return number


cdef int check_field(field, str name) except -1:
    if field is not None and not isinstance(field, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"{name} must be bytes, bytearray, memoryview or None, not {type_name(field)}")
    return 0


cdef int get_view(field, Py_buffer* view) except -1:
    """A field that passed `check_field` as a view; None has length -1 and no object."""
    if field is None:
        view.buf = NULL
        view.len = -1
        return 0
    if isinstance(field, memoryview) and not field.c_contiguous:
        field = bytes(field)
    return PyObject_GetBuffer(field, view, PyBUF_SIMPLE)


cdef list flat_headers(headers, int64_t* size):
    """[key, value, key, value, ...] as bytes or None, and the bytes they will take."""
    cdef list flat = []
    cdef bytes encoded
    if isinstance(headers, Mapping):
        headers = headers.items()
    elif not isinstance(headers, Iterable):
        raise TypeError(
            "headers must be a mapping or an iterable of (key, value) pairs, "
            f"not {type_name(headers)}")
    for pair in headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"a header must be a (key, value) pair, not {type_name(pair)}")
        key, value = pair
        if not isinstance(key, str):
            raise TypeError(f"header key must be str, not {type_name(key)}")
        encoded = (<str>key).encode("utf-8", "surrogateescape")
        if value is not None and not PyBytes_CheckExact(value):
            check_field(value, "header value")
            value = bytes(value)
        flat.append(encoded)
        flat.append(value)
        size[0] += ms_bytes_size(PyBytes_GET_SIZE(encoded))
        size[0] += ms_bytes_size(-1 if value is None else PyBytes_GET_SIZE(value))
    return flat


cdef int raise_not_a_row(str found) except -1:
    raise TypeError(
        "a row must be a tuple of (timestamp, key, value) or (timestamp, key, value, headers), "
        f"not {found}")
