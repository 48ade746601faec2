"""Messages to bytes and back, in any version: the door to the compiled codec.

`Message` calls it. The first use of a message version compiles its encoder or decoder and keeps
it; after that a call is one dictionary lookup away from straight-line code. Whatever goes wrong
in there, `reference` does the work again, slowly, and raises the one error that names message,
version, field and position.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NoReturn, TypeVar

from millstream.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.layout import StructLayout
    from millstream.protocol.message import Message
    from millstream.types import ReadableBuffer

    Encoder = Callable[[Message, list[ReadableBuffer], list[int]], None]
    Decoder = Callable[[ReadableBuffer, int], tuple[Message, int]]

M = TypeVar("M", bound="Message")

# What compiled code raises when bytes or values are bad; anything else is a fault of ours.
DECODE_FAULTS = (DecodeError, IndexError, ValueError, struct.error)
ENCODE_FAULTS = (EncodeError, AttributeError, TypeError, ValueError, struct.error)

_encoders: dict[tuple[type[Message], int], Encoder] = {}
_decoders: dict[tuple[type[Message], int], Decoder] = {}
_view_decoders: dict[tuple[type[Message], int], Decoder] = {}


def encode(message: Message, version: int) -> bytes:
    """The body's bytes in a version."""
    encoder = _encoders.get((type(message), version)) or _compile_encoder(type(message), version)
    parts: list[ReadableBuffer] = []
    try:
        encoder(message, parts, [])
        return b"".join(parts)
    except ENCODE_FAULTS as fault:
        _explain_encode(message, version, fault)


def encode_parts(message: Message, version: int) -> list[ReadableBuffer]:
    """The body cut at its records: they are handed through, what lies between them is joined."""
    encoder = _encoders.get((type(message), version)) or _compile_encoder(type(message), version)
    parts: list[ReadableBuffer] = []
    marks: list[int] = []
    try:
        encoder(message, parts, marks)
        joined: list[ReadableBuffer] = []
        start = 0
        for mark in marks:
            joined.append(b"".join(parts[start:mark]))
            joined.append(parts[mark])
            start = mark + 1
        joined.append(b"".join(parts[start:]))
    except ENCODE_FAULTS as fault:
        _explain_encode(message, version, fault)
    return joined


def decode(cls: type[M], buffer: ReadableBuffer, version: int, position: int) -> M:
    """The message that fills a buffer from `position` to its end."""
    if type(buffer) is not bytes and not cls.CARRIES_RECORDS:
        # One copy now is cheaper than a memoryview at every field.
        buffer = bytes(buffer)
    message, end = _decode(cls, buffer, version, position)
    if end != len(buffer):
        _explain_decode(cls, buffer, version, position, None)
    return message


def decode_from(cls: type[M], buffer: ReadableBuffer, version: int, position: int) -> tuple[M, int]:
    """The message that begins at `position`, and where it ends."""
    message, end = _decode(cls, buffer, version, position)
    if end > len(buffer):
        _explain_decode(cls, buffer, version, position, None)
    return message, end


def _decode(cls: type[M], buffer: ReadableBuffer, version: int, position: int) -> tuple[M, int]:
    if type(buffer) is bytes:
        decoder = _decoders.get((cls, version)) or _compile_decoder(cls, version)
    else:
        buffer = memoryview(buffer)
        decoder = _view_decoders.get((cls, version)) or _compile_view_decoder(cls, version)
    try:
        return decoder(buffer, position)  # type: ignore[return-value]  # compiled for cls
    except DECODE_FAULTS as fault:
        _explain_decode(cls, buffer, version, position, fault)


def _explain_encode(message: Message, version: int, fault: Exception) -> NoReturn:
    from millstream.protocol import reference

    reference.encode(message, version)
    raise AssertionError(
        f"{type(message).__name__} v{version}: only compiled code fails"
    ) from fault


def _explain_decode(
    cls: type[Message],
    buffer: ReadableBuffer,
    version: int,
    position: int,
    fault: Exception | None,
) -> NoReturn:
    from millstream.protocol import reference

    reference.decode(cls, buffer, version, position)
    raise AssertionError(f"{cls.__name__} v{version}: only compiled code fails") from fault


# Compilers are imported on first use: a process that never speaks does not pay for them.


def _compile_encoder(cls: type[Message], version: int) -> Encoder:
    from millstream.protocol.encoding import EncoderCompiler

    compiler = EncoderCompiler(_layout(cls, version, EncodeError))
    encoder = compiler.compile(f"<encode {cls.__name__} v{version}>")
    _encoders[cls, version] = encoder
    return encoder


def _compile_decoder(cls: type[Message], version: int) -> Decoder:
    from millstream.protocol.decoding import DecoderCompiler

    compiler = DecoderCompiler(_layout(cls, version, DecodeError), from_view=False)
    decoder = compiler.compile(f"<decode {cls.__name__} v{version}>")
    _decoders[cls, version] = decoder
    return decoder


def _compile_view_decoder(cls: type[Message], version: int) -> Decoder:
    from millstream.protocol.decoding import DecoderCompiler

    compiler = DecoderCompiler(_layout(cls, version, DecodeError), from_view=True)
    decoder = compiler.compile(f"<decode {cls.__name__} v{version} from a view>")
    _view_decoders[cls, version] = decoder
    return decoder


def _layout(
    cls: type[Message], version: int, error: type[DecodeError | EncodeError]
) -> StructLayout:
    from millstream.protocol.layout import layout_of

    if not cls.VERSIONS.covers(version):
        raise error(
            f"there is no version {version}, known are {cls.VERSIONS}",
            message=cls.__name__,
            version=version,
        )
    return layout_of(cls, version)
