"""The checks of arguments, for `batch_writer`."""

from libc.stdint cimport int64_t

cdef object to_integer(value, str name)
cdef int64_t to_int(value, str name, int bits) except? -1
cdef int check_field(field, str name) except -1
cdef int get_view(field, Py_buffer* view) except -1
cdef list flat_headers(headers, int64_t* size)
cdef int raise_not_a_row(str found) except -1
