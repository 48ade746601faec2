"""Compiles the encoder of one message version: straight-line Python without loops over a schema.

`codec` asks for an encoder the first time a version is written. It appends parts to a list which
the caller joins: that is the cheapest way to build bytes in Python, and it lets record batches
pass through without being copied. Values are checked by the calls that must touch them anyway;
any exception means "cannot be encoded" and `reference` then finds out why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol.decoding import FORMATS
from millstream.protocol.layout import FieldLayout, StructLayout, fields_of, struct_class
from millstream.protocol.primitives import STRING_BYTES_MAX, encode_uvarint
from millstream.protocol.source import SourceWriter, StructCache
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.protocol.message import Message, Struct, UnknownTags
    from millstream.protocol.notation import Field
    from millstream.types import ReadableBuffer

PACKERS = {name: StructCache(FORMATS[name], "pack") for name in FORMATS}
"""Per element type: the writer of n elements, by n."""

ONE_BYTE = tuple(bytes([value]) for value in range(128))
"""The uvarints of one byte."""

NO_TAGS = b"\0"
NONE_RESERVED: frozenset[int] = frozenset()


def encode_string_length(length: int) -> bytes:
    """The length + 1 of a compact string that is longer than 126 bytes."""
    if length > STRING_BYTES_MAX + 1:
        raise ValueError(length)
    return encode_uvarint(length)


def encode_tags(
    known: Sequence[tuple[int, bytes]], unknown: UnknownTags, reserved: frozenset[int]
) -> bytes:
    """A tagged section from the known and the unknown tags, in ascending order."""
    if not unknown and len(known) == 1:
        ((tag, data),) = known
        if tag < len(ONE_BYTE) and len(data) < len(ONE_BYTE):
            return ONE_BYTE[1] + ONE_BYTE[tag] + ONE_BYTE[len(data)] + data
    tags = sorted([*known, *unknown])
    numbers = [tag for tag, _ in tags]
    if len(set(numbers)) != len(numbers) or any(tag in reserved for tag, _ in unknown):
        raise ValueError(numbers)
    parts = [encode_uvarint(len(tags))]
    for tag, data in tags:
        parts += (encode_uvarint(tag), encode_uvarint(len(data)), data)
    return b"".join(parts)


class EncoderCompiler:
    """Writes the source of one encoder: `encode(o0, parts, marks)`.

    In the source, `oN` is the struct at depth N, `w` appends a part, `n` is a length or count.
    `marks` receives the index of each part that is a record batch.
    """

    def __init__(self, layout: StructLayout) -> None:
        self._layout = layout
        self._source = SourceWriter(
            {
                "Uuid": Uuid,
                "NONE_RESERVED": NONE_RESERVED,
                "NO_TAGS": NO_TAGS,
                "ONE_BYTE": ONE_BYTE,
                "encode_uvarint": encode_uvarint,
                "encode_string_length": encode_string_length,
                "encode_tags": encode_tags,
            }
        )
        # Fixed-size fields that are not written yet: one Struct will write them all.
        self._run: list[tuple[str, str]] = []
        self._append = "w"
        self._source.line("w = parts.append")
        self._struct(layout, 0)
        self._flush()

    def source(self) -> str:
        """What is compiled, for the curious."""
        return self._source.text("encode(o0, parts, marks)")

    def compile(self, filename: str) -> Callable[[Message, list[ReadableBuffer], list[int]], None]:
        """The encoder."""
        return self._source.compile("encode(o0, parts, marks)", filename)

    def _struct(self, layout: StructLayout, depth: int) -> None:
        target = f"o{depth}"
        lost = [
            self._differs(layout.cls, field, f"{target}.{field.name}")
            for field in layout.absent
            if not field.is_ignorable
        ]
        if not layout.is_flexible:
            lost.append(f"{target}.unknown_tags")
        if lost:
            with self._source.block(f"if {' or '.join(lost)}:"):
                self._source.line("raise ValueError")
        for bound in layout.fields:
            self._field(bound, f"{target}.{bound.name}", depth)
        if layout.is_flexible:
            self._tagged_section(layout, target, depth)

    def _differs(self, owner: type[Struct], field: Field, value: str) -> str:
        """The condition under which a value is not its field's default."""
        if field.has_null_default:
            return f"{value} is not None"
        if field.is_array:
            has_elements = f"len({value}) > 0"
            is_nullable = field.nullable.lowest <= field.nullable.highest
            return f"({value} is None or {has_elements})" if is_nullable else has_elements
        if field.is_struct:
            cls = struct_class(owner, field.type)
            inner = [self._differs(cls, each, f"{value}.{each.name}") for each in fields_of(cls)]
            inner.append(f"{value}.unknown_tags")
            return f"({value} is not None and ({' or '.join(inner)}))"
        if field.type == "uuid":
            return f"{value} != Uuid.ZERO"
        return f"{value} != {self._literal(field)}"

    @staticmethod
    def _literal(field: Field) -> str:
        return repr(b"" if field.type == "bytes" else field.default)

    def _field(self, bound: FieldLayout, value: str, depth: int) -> None:
        if bound.field.is_array:
            self._array(bound, value, depth)
        elif bound.struct is not None:
            self._source.line(f"o{depth + 1} = {value}")
            if bound.is_nullable:
                self._nullable_struct(bound.struct, depth + 1)
            else:
                self._struct(bound.struct, depth + 1)
                self._flush()  # before the name stands for another struct
        elif bound.field.type in FORMATS:
            self._fixed(bound.field.type, value)
        else:
            self._sized(bound, value)

    # Runs of fixed-size fields.

    def _fixed(self, type_name: str, value: str) -> None:
        if type_name == "uuid":
            # struct would cut or pad in silence.
            with self._source.block(f"if len({value}) != 16:"):
                self._source.line("raise ValueError")
        self._run.append((FORMATS[type_name], value))

    def _flush(self) -> None:
        """Write what has gathered in the run."""
        if self._run:
            self._source.line(f"{self._append}({self._packed()})")
            self._run.clear()

    def _packed(self, more_formats: str = "", more_values: str = "") -> str:
        formats = "".join(form for form, _ in self._run) + more_formats
        values = ", ".join(
            [value for _, value in self._run] + ([more_values] if more_values else [])
        )
        return f"{self._source.packer(formats)}({values})"

    def _length(self, plain_format: str, *, is_compact: bool, writer: str) -> None:
        """Write the length `n`, with the run before it."""
        if not is_compact:
            self._run.append((plain_format, "n"))
            self._flush()
            return
        if self._run:
            short, long = self._packed("B", "n"), f"{self._packed()} + {writer}(n)"
        else:
            short, long = "ONE_BYTE[n]", f"{writer}(n)"
        self._source.line(f"{self._append}({short} if n < 128 else {long})")
        self._run.clear()

    # Values that begin with a length.

    def _sized(self, bound: FieldLayout, value: str) -> None:
        type_name = bound.field.type
        is_string = type_name == "string"
        self._measure(bound, value, "x.encode()" if is_string else "x", "b''")
        self._length(
            "h" if is_string else "i",
            is_compact=bound.is_compact,
            writer="encode_string_length" if is_string else "encode_uvarint",
        )
        if type_name == "records":
            with self._source.block("if len(x):"):
                self._source.line("marks.append(len(parts))")
                self._source.line("w(x)")
        else:
            self._source.line(f"{self._append}(x)")

    def _measure(self, bound: FieldLayout, value: str, content: str, nothing: str) -> None:
        """Bind `x` to the content and `n` to the length the wire wants."""
        line = self._source.line
        one_more = " + 1" if bound.is_compact else ""
        if not bound.is_nullable:
            line(f"x = {content.replace('x', value, 1)}")
            line(f"n = len(x){one_more}")
            return
        line(f"x = {value}")
        with self._source.block("if x is None:"):
            line(f"x = {nothing}")
            line("n = 0" if bound.is_compact else "n = -1")
        with self._source.block("else:"):
            if content != "x":
                line(f"x = {content}")
            line(f"n = len(x){one_more}")

    # Arrays and structs.

    def _array(self, bound: FieldLayout, value: str, depth: int) -> None:
        self._measure(bound, value, "x", "()")
        self._length("i", is_compact=bound.is_compact, writer="encode_uvarint")
        type_name = bound.field.type
        if type_name == "uuid":
            with self._source.block("for x in x:"):
                self._fixed("uuid", "x")
                self._flush()
        elif type_name in FORMATS:
            with self._source.block("if x:"):
                cache = self._source.constant(PACKERS[type_name], "A")
                self._source.line(f"{self._append}({cache}[len(x)](*x))")
        elif bound.struct is not None:
            with self._source.block(f"for o{depth + 1} in x:"):
                self._struct(bound.struct, depth + 1)
                self._flush()
        else:
            with self._source.block("for y in x:"):
                self._sized(bound._replace(is_nullable=False), "y")

    def _nullable_struct(self, struct: StructLayout, depth: int) -> None:
        self._run.append(("b", f"-1 if o{depth} is None else 1"))
        self._flush()
        with self._source.block(f"if o{depth} is not None:"):
            self._struct(struct, depth)
            self._flush()

    # Tagged fields.

    def _tagged_section(self, layout: StructLayout, target: str, depth: int) -> None:
        unknown = f"{target}.unknown_tags"
        short = self._packed("x") if self._run else "NO_TAGS"
        if layout.tagged:
            # Mostly nothing is set; find that out before anything else.
            unset = [self._is_unset(bound, f"{target}.{bound.name}") for bound in layout.tagged]
            with self._source.block(f"if {' and '.join(unset)} and not {unknown}:"):
                self._source.line(f"{self._append}({short})")
            with self._source.block("else:"):
                self._known_tags(layout, target, depth)
        else:
            tags = f"encode_tags((), {unknown}, NONE_RESERVED)"
            long = f"{self._packed()} + {tags}" if self._run else tags
            self._source.line(f"{self._append}({long} if {unknown} else {short})")
        self._run.clear()

    def _is_unset(self, bound: FieldLayout, value: str) -> str:
        field = bound.field
        if field.has_null_default or field.is_nested_struct:
            return f"{value} is None"
        if field.is_array:
            return f"{value} == []"
        return f"{value} == {'Uuid.ZERO' if field.type == 'uuid' else self._literal(field)}"

    def _known_tags(self, layout: StructLayout, target: str, depth: int) -> None:
        line, unknown = self._source.line, f"{target}.unknown_tags"
        self._flush()
        line(f"k{depth} = []")
        for bound in layout.tagged:
            value = f"{target}.{bound.name}"
            with self._source.block(f"if {self._differs(layout.cls, bound.field, value)}:"):
                self._tag(bound, value, depth)
        reserved = frozenset(bound.field.tag or 0 for bound in layout.tagged)
        tags = f"encode_tags(k{depth}, {unknown}, {self._source.constant(reserved, 'R')})"
        line(f"{self._append}({tags} if k{depth} or {unknown} else NO_TAGS)")

    def _tag(self, bound: FieldLayout, value: str, depth: int) -> None:
        """Encode one tagged value by itself: its size must be known before it."""
        line = self._source.line
        outer, self._append = self._append, f"w{depth}"
        line(f"d{depth} = []")
        line(f"w{depth} = d{depth}.append")
        if bound.struct is not None and bound.is_nullable and not bound.field.is_array:
            # A nullable struct in a tag says 1 in front; its null would be uvarint 0, but null
            # is the default of the only kind there is, and defaults are not sent.
            line(f"w{depth}(ONE_BYTE[1])")
            self._field(bound._replace(is_nullable=False), value, depth)
        else:
            self._field(bound, value, depth)
        self._flush()
        line(f"k{depth}.append(({bound.field.tag}, b''.join(d{depth})))")
        self._append = outer
