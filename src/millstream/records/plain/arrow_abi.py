"""The Arrow C data interface in ctypes: its structures, capsules, and what keeps memory alive.

An exported structure is bytes that foreign code may copy, move and release whenever it likes. The
Python objects behind those bytes wait in a registry until the release callback asks for them.
Used by the plain Arrow builder and reader only.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_void_p
from itertools import count
from typing import TYPE_CHECKING, Any

from millstream._accel.arrow.schema import already_taken

if TYPE_CHECKING:
    from collections.abc import Callable

NULLABLE = 2
"""The flag of a field that may be null."""


class ArrowSchema(ctypes.Structure):
    """One field of a schema, and through its children a whole one."""


class ArrowArray(ctypes.Structure):
    """One column, and through its children a whole table."""


class ArrowArrayStream(ctypes.Structure):
    """A schema and then arrays, one after the other."""


ReleaseSchema = ctypes.CFUNCTYPE(None, POINTER(ArrowSchema))
ReleaseArray = ctypes.CFUNCTYPE(None, POINTER(ArrowArray))
ReleaseStream = ctypes.CFUNCTYPE(None, POINTER(ArrowArrayStream))
GetSchema = ctypes.CFUNCTYPE(c_int, POINTER(ArrowArrayStream), POINTER(ArrowSchema))
GetNext = ctypes.CFUNCTYPE(c_int, POINTER(ArrowArrayStream), POINTER(ArrowArray))
GetLastError = ctypes.CFUNCTYPE(c_void_p, POINTER(ArrowArrayStream))

ArrowSchema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_char_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(ArrowSchema))),
    ("dictionary", POINTER(ArrowSchema)),
    ("release", ReleaseSchema),
    ("private_data", c_void_p),
]
ArrowArray._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(ArrowArray))),
    ("dictionary", POINTER(ArrowArray)),
    ("release", ReleaseArray),
    ("private_data", c_void_p),
]
ArrowArrayStream._fields_ = [
    ("get_schema", GetSchema),
    ("get_next", GetNext),
    ("get_last_error", GetLastError),
    ("release", ReleaseStream),
    ("private_data", c_void_p),
]

_alive: dict[int, Any] = {}
_keys = count(1)


def keep_alive(objects: Any) -> int:
    """Hold objects until `let_go` is called with the key this gives, which fits a pointer."""
    key = next(_keys)
    _alive[key] = objects
    return key


def held(key: int) -> Any:
    """What `keep_alive` holds, which stays held."""
    return _alive[key]


def let_go(key: int) -> Any:
    """Give back what `keep_alive` holds, once."""
    return _alive.pop(key)


def alive_count() -> int:
    """How many exports nobody has released yet. For tests."""
    return len(_alive)


def pointers_to(structures: list[Any], kind: Any) -> Any:
    """A C array of pointers to the structures."""
    return (POINTER(kind) * len(structures))(*map(ctypes.pointer, structures))


def release(structure: Any) -> None:
    """Release a structure of ours or of others, unless it was moved or released already."""
    if structure.release:
        structure.release(byref(structure))


def take(capsule: object, name: bytes, kind: Any) -> Any:
    """Move the structure out of a capsule: ours to release from here on."""
    source = kind.from_address(_get_pointer(capsule, name))
    if not source.release:
        raise already_taken()
    taken = kind.from_buffer_copy(source)
    source.release = type(source.release)()
    return taken


def to_capsule(structure: Any, name: bytes) -> object:
    """A capsule that owns the structure, and releases it if nobody takes it."""
    address = ctypes.addressof(structure)
    _in_capsules[address] = structure
    capsule: object = _new_capsule(address, name, _drop_capsule)
    return capsule


_in_capsules: dict[int, Any] = {}

# The destructor gets a capsule that is dying. As a Python object it would be counted, reach zero
# again and die twice; as an address it is only looked at.
_Destructor = ctypes.PYFUNCTYPE(None, c_void_p)
_get_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_get_pointer_of_dying = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_void_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_get_name_of_dying = ctypes.PYFUNCTYPE(c_void_p, c_void_p)(("PyCapsule_GetName", ctypes.pythonapi))
_clear_error = ctypes.PYFUNCTYPE(None)(("PyErr_Clear", ctypes.pythonapi))
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, _Destructor)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def for_good(callback: Any) -> Any:
    """A callback that foreign code may call even after its module is gone, at the process's end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    return callback


def _on_drop(
    capsule: int,
    clear_error: Callable[[], None] = _clear_error,
    is_finalizing: Callable[[], bool] = sys.is_finalizing,
) -> None:
    # A consumer in C that fails lets go of the capsule with its error pending, and Python code
    # cannot run beside that. The error is lost to a SystemError; the memory is not.
    clear_error()
    # At the process's end what is needed here may be gone, and the system takes the memory back.
    if is_finalizing():
        return
    address = _get_pointer_of_dying(capsule, _get_name_of_dying(capsule))
    release(_in_capsules.pop(address))


_drop_capsule = for_good(_Destructor(_on_drop))
