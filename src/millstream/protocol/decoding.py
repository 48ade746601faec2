"""Compiles the decoder of one message version: straight-line Python without loops over a schema.

`codec` asks for a decoder the first time a version is read. Runs of fixed-size fields, together
with the length that follows them, are read by one precompiled `struct.Struct`; lengths below 128
take no call; objects are made without running `__init__`.

A compiled decoder checks only what would otherwise go unnoticed. It lets slices run over the end
of the buffer: positions never go back, so the caller sees the overrun in the end position. Any
exception means "bad bytes"; `reference` then finds out which.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from millstream.protocol.layout import FieldLayout, StructLayout, default_of
from millstream.protocol.primitives import STRING_BYTES_MAX, read_uvarint
from millstream.protocol.source import SourceWriter, StructCache
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.protocol.message import UnknownTags
    from millstream.protocol.notation import Field
    from millstream.types import ReadableBuffer

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The `struct` format of each fixed-size type."""


def read_length(buffer: ReadableBuffer, position: int) -> tuple[int, int]:
    """The length + 1 of something that may not be null."""
    length, position = read_uvarint(buffer, position)
    if length == 0:
        raise ValueError(length)
    return length, position


def read_string_length(buffer: ReadableBuffer, position: int) -> tuple[int, int]:
    """The length + 1 of a string that may not be null."""
    length, position = read_nullable_string_length(buffer, position)
    if length == 0:
        raise ValueError(length)
    return length, position


def read_nullable_string_length(buffer: ReadableBuffer, position: int) -> tuple[int, int]:
    """The length + 1 of a string; 0 is null."""
    length, position = read_uvarint(buffer, position)
    if length > STRING_BYTES_MAX + 1:
        raise ValueError(length)
    return length, position


def read_unknown_tags(buffer: ReadableBuffer, position: int) -> tuple[UnknownTags, int]:
    """A tagged section of which no tag is known."""
    count, position = read_uvarint(buffer, position)
    tags: list[tuple[int, bytes]] = []
    last_tag = -1
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if tag <= last_tag:
            raise ValueError(tag)
        last_tag = tag
        tags.append((tag, bytes(buffer[position : position + size])))
        position += size
    return tuple(tags), position


class DecoderCompiler:
    """Writes the source of one decoder: `decode(b, p) -> (message, end position)`.

    In the source, `b` is the buffer, `e` its end, `p` the position, `n` a length or count, `oN`
    the struct at depth N.
    """

    def __init__(self, layout: StructLayout, *, from_view: bool) -> None:
        self._layout = layout
        self._from_view = from_view
        self._source = SourceWriter(
            {
                "Uuid": Uuid,
                "new": object.__new__,
                "new_bytes": bytes.__new__,
                "read_length": read_length,
                "read_uvarint": read_uvarint,
                "read_nullable_string_length": read_nullable_string_length,
                "read_string_length": read_string_length,
                "read_unknown_tags": read_unknown_tags,
            }
        )
        # Fixed-size fields that are not read yet: one Struct will read them all.
        self._run: list[tuple[str, str]] = []
        self._after_run: list[str] = []
        self._temporaries = 0
        self._write()

    def source(self) -> str:
        """What is compiled, for the curious."""
        return self._source.text("decode(b, p)")

    def compile(self, filename: str) -> Callable[[ReadableBuffer, int], tuple[Any, int]]:
        """The decoder."""
        return self._source.compile("decode(b, p)", filename)

    def _write(self) -> None:
        line = self._source.line
        line("e = len(b)")
        if self._layout.has_records:
            line("m = b" if self._from_view else "m = memoryview(b)")
        self._struct(self._layout, 0)
        self._flush()
        line("return o0, p")

    def _struct(self, layout: StructLayout, depth: int) -> None:
        target = f"o{depth}"
        cls = layout.cls
        self._source.line(f"{target} = new({self._source.constant(cls, cls.__name__)})")
        for field in layout.absent:
            self._source.line(f"{target}.{field.name} = {self._default(layout, field)}")
        for bound in layout.fields:
            self._field(bound, f"{target}.{bound.name}", depth)
        if layout.is_flexible:
            self._tagged_section(layout, target, depth)
        else:
            self._source.line(f"{target}.unknown_tags = ()")

    def _default(self, layout: StructLayout, field: Field) -> str:
        value = default_of(layout.cls, field)
        if field.is_nested_struct and value is not None:
            return f"{self._source.constant(type(value), type(value).__name__)}()"
        return "Uuid.ZERO" if value is Uuid.ZERO else repr(value)

    def _field(self, bound: FieldLayout, target: str, depth: int) -> None:
        field = bound.field
        if field.is_array:
            self._array(bound, target, depth)
        elif bound.struct is not None and bound.is_nullable:
            self._nullable_struct(bound.struct, target, depth)
        elif bound.struct is not None:
            self._struct(bound.struct, depth + 1)
            self._flush()  # before the name stands for another struct
            self._source.line(f"{target} = o{depth + 1}")
        elif field.type in FORMATS:
            self._fixed(field.type, target)
        else:
            self._sized(bound, target)

    # Runs of fixed-size fields.

    def _fixed(self, type_name: str, target: str) -> None:
        if type_name == "uuid":
            raw = f"u{self._temporaries}"
            self._temporaries += 1
            self._after_run.append(f"{target} = new_bytes(Uuid, {raw})")
            target = raw
        self._run.append((FORMATS[type_name], target))

    def _flush(self) -> None:
        """Read what has gathered in the run."""
        if not self._run:
            return
        formats = "".join(form for form, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        if formats == "B":
            self._source.line(f"{targets} = b[p]")
        else:
            comma = "," if len(self._run) == 1 else ""
            self._source.line(f"{targets}{comma} = {self._source.unpacker(formats)}(b, p)")
        self._source.line(f"p += {self._source.size_of(formats)}")
        for line in self._after_run:
            self._source.line(line)
        self._run.clear()
        self._after_run.clear()

    def _length(self, bound: FieldLayout, plain_format: str) -> None:
        """Read a length into `n`, with the run before it; + 1 if it is compact.

        If it may not be null, it is not: neither 0 (compact) nor negative.
        """
        self._run.append(("B" if bound.is_compact else plain_format, "n"))
        self._flush()
        if not bound.is_compact:
            if not bound.is_nullable:
                with self._source.block("if n < 0:"):
                    self._source.line("raise ValueError(n)")
            return
        is_string = plain_format == "h"
        if bound.is_nullable:
            # A null may be more than one byte, too: 80 00 is a clumsy way to write 0.
            condition = "if n > 127:"
            reader = "read_nullable_string_length" if is_string else "read_uvarint"
        else:
            condition = "if not 0 < n < 128:"
            reader = "read_string_length" if is_string else "read_length"
        with self._source.block(condition):
            self._source.line(f"n, p = {reader}(b, p - 1)")

    # Values that begin with a length.

    def _sized(self, bound: FieldLayout, target: str) -> None:
        self._length(bound, "h" if bound.field.type == "string" else "i")
        with self._unless_null(bound, target):
            self._source.line("q = p + n - 1" if bound.is_compact else "q = p + n")
            self._source.line(f"{target} = {self._slice(bound.field.type)}")
            self._source.line("p = q")

    @contextmanager
    def _unless_null(self, bound: FieldLayout, target: str) -> Iterator[None]:
        """What is written inside happens if the value is not null."""
        if not bound.is_nullable:
            yield
            return
        with self._source.block("if n == 0:" if bound.is_compact else "if n == -1:"):
            self._source.line(f"{target} = None")
        if not bound.is_compact:
            with self._source.block("elif n < 0:"):
                self._source.line("raise ValueError(n)")
        with self._source.block("else:"):
            yield

    def _slice(self, type_name: str) -> str:
        if type_name == "records":
            return "m[p:q]"
        raw = "bytes(b[p:q])" if self._from_view else "b[p:q]"
        return f"{raw}.decode()" if type_name == "string" else raw

    # Arrays and structs.

    def _array(self, bound: FieldLayout, target: str, depth: int) -> None:
        self._length(bound, "i")
        with self._unless_null(bound, target):
            if bound.is_compact:
                self._source.line("n -= 1")
            with self._source.block(f"if n * {bound.element_size_min} > e - p:"):
                self._source.line("raise ValueError(n)")
            if bound.field.type == "uuid":
                self._source.line(
                    f"{target} = [new_bytes(Uuid, b[i:i + 16]) for i in range(p, p + n * 16, 16)]"
                )
                self._source.line("p += n * 16")
            elif bound.field.type in FORMATS:
                size = bound.element_size_min
                cache = self._source.constant(UNPACKERS[bound.field.type], "A")
                self._source.line(f"{target} = [*{cache}[n](b, p)]")
                self._source.line(f"p += n * {size}" if size > 1 else "p += n")
            else:
                self._elements(bound, target, depth)

    def _elements(self, bound: FieldLayout, target: str, depth: int) -> None:
        self._source.line(f"{target} = a{depth} = []")
        with self._source.block("for _ in range(n):"):
            if bound.struct is not None:
                self._struct(bound.struct, depth + 1)
                self._flush()
                element = f"o{depth + 1}"
            else:
                element = "x"
                self._sized(bound._replace(is_nullable=False), element)
            self._source.line(f"a{depth}.append({element})")

    def _nullable_struct(self, struct: StructLayout, target: str, depth: int) -> None:
        self._run.append(("b", "n"))
        self._flush()
        with self._source.block("if n == 1:"):
            self._struct(struct, depth + 1)
            self._flush()
            self._source.line(f"{target} = o{depth + 1}")
        with self._source.block("elif n == -1:"):
            self._source.line(f"{target} = None")
        with self._source.block("else:"):
            self._source.line("raise ValueError(n)")

    # Tagged fields.

    def _tagged_section(self, layout: StructLayout, target: str, depth: int) -> None:
        line, block = self._source.line, self._source.block
        self._run.append(("B", "t"))
        self._flush()
        if not layout.tagged:
            with block("if t:"):
                line(f"{target}.unknown_tags, p = read_unknown_tags(b, p - 1)")
            with block("else:"):
                line(f"{target}.unknown_tags = ()")
            return
        for bound in layout.tagged:
            line(f"{target}.{bound.name} = {self._default(layout, bound.field)}")
        line(f"{target}.unknown_tags = ()")
        with block("if t:"):
            line("t, p = read_uvarint(b, p - 1)")
            line(f"g{depth} = -1")
            line(f"k{depth} = []")
            with block("for _ in range(t):"):
                self._tag(layout, target, depth)
            line(f"{target}.unknown_tags = tuple(k{depth})")

    def _tag(self, layout: StructLayout, target: str, depth: int) -> None:
        line, block = self._source.line, self._source.block
        tag, end = f"g{depth}", f"z{depth}"
        line("g, p = read_uvarint(b, p)")
        line("s, p = read_uvarint(b, p)")
        with block(f"if g <= {tag}:"):
            line("raise ValueError(g)")
        line(f"{tag} = g")
        line(f"{end} = p + s")
        for index, bound in enumerate(layout.tagged):
            with block(f"{'elif' if index else 'if'} g == {bound.field.tag}:"):
                self._tagged_value(bound, f"{target}.{bound.name}", depth)
                self._flush()
        with block("else:"):
            line(f"k{depth}.append((g, bytes(b[p:{end}])))")
            line(f"p = {end}")
        with block(f"if p != {end}:"):
            line("raise ValueError(p)")

    def _tagged_value(self, bound: FieldLayout, target: str, depth: int) -> None:
        if bound.struct is None or bound.field.is_array or not bound.is_nullable:
            self._field(bound, target, depth)
            return
        # A nullable struct in a tag says 0 or 1 where an untagged one says -1 or 1.
        self._source.line("n, p = read_uvarint(b, p)")
        with self._source.block("if n == 1:"):
            self._struct(bound.struct, depth + 1)
            self._flush()
            self._source.line(f"{target} = o{depth + 1}")
        with self._source.block("elif n:"):
            self._source.line("raise ValueError(n)")


UNPACKERS = {name: StructCache(FORMATS[name], "unpack_from") for name in FORMATS}
"""Per element type: the reader of n elements, by n."""
