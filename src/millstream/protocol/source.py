"""Python source under construction: lines, indentation, and the constants they refer to.

Both halves of the codec's compiler write with it. It knows nothing of messages.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator


class StructCache(dict[int, Any]):
    """For one type: the reader or writer of n values in a row, by n."""

    __slots__ = ("_format", "_method")

    COUNT_MAX = 256
    """Longer rows are rare, and a cache that grows with its input would be a leak."""

    def __init__(self, form: str, method: str) -> None:
        super().__init__()
        self._format = form
        self._method = method

    def __missing__(self, count: int) -> Any:
        function = getattr(struct.Struct(f">{count}{self._format}"), self._method)
        if count <= self.COUNT_MAX:
            self[count] = function
        return function


class SourceWriter:
    """Collects the body of one function and the objects that are its globals."""

    def __init__(self, constants: dict[str, Any]) -> None:
        self.constants = constants
        self._names: dict[Hashable, str] = {}
        self._lines: list[str] = []
        self._indent = 1

    def line(self, text: str) -> None:
        """Add one line at the current depth."""
        self._lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that opens a block; what is added inside is one deeper."""
        self.line(head)
        self._indent += 1
        yield
        self._indent -= 1

    def constant(self, value: object, prefix: str) -> str:
        """A name by which the function can refer to an object."""
        return self._name(id(value), value, prefix)

    def unpacker(self, formats: str) -> str:
        """A name for the function that reads these fields from (buffer, position)."""
        return self._struct_method(formats, "unpack_from", "U")

    def packer(self, formats: str) -> str:
        """A name for the function that writes these fields."""
        return self._struct_method(formats, "pack", "P")

    def _struct_method(self, formats: str, method: str, prefix: str) -> str:
        return self._name((method, formats), getattr(struct.Struct(">" + formats), method), prefix)

    def _name(self, key: Hashable, value: object, prefix: str) -> str:
        if key not in self._names:
            self._names[key] = name = f"{prefix}_{len(self._names)}"
            self.constants[name] = value
        return self._names[key]

    @staticmethod
    def size_of(formats: str) -> int:
        """How many bytes these fields take."""
        return struct.calcsize(">" + formats)

    def text(self, signature: str) -> str:
        """The function as source."""
        return "\n".join([f"def {signature}:", *self._lines, ""])

    def compile(self, signature: str, filename: str) -> Callable[..., Any]:
        """The function, ready to call."""
        namespace = dict(self.constants)
        exec(compile(self.text(signature), filename, "exec"), namespace)
        function: Callable[..., Any] = namespace[signature.partition("(")[0]]
        return function
