"""Compression of a batch's records: names and numbers of the codecs, levels, and the two verbs.

Producers, the cleaner and recompressing brokers compress; whoever looks into records decompresses,
through `RecordBatch`. Decompression is bounded: no input makes it take more memory than its limit.
The codec libraries are imported on first use, not before.
"""

from __future__ import annotations

from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from millstream.errors import InvalidArgument, UnsupportedCompressionType
from millstream.records.layout import CODEC_MASK

if TYPE_CHECKING:
    from typing import Self

    from millstream.types import ReadableBuffer

DECOMPRESSED_SIZE_MAX = 256 * 1024 * 1024
"""How large a batch may grow when nobody says otherwise."""


class Compression(IntEnum):
    """A codec by the number that a batch's attributes have for it."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str) -> Self:
        """The codec by the name that settings have for it: none, gzip, snappy, lz4 or zstd."""
        for codec in cls:
            if codec.config_name == name:
                return codec
        names = ", ".join(codec.config_name for codec in cls)
        raise InvalidArgument(f"no compression is called {name!r}; choose one of {names}")

    @classmethod
    def of_attributes(cls, attributes: int) -> Compression:
        """The codec that a batch's attributes tell of."""
        number = attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise UnsupportedCompressionType(
                f"compression codec {number} is not known; 0 to {len(_CODECS) - 1} are"
            )
        return _CODECS[number]

    @property
    def config_name(self) -> str:
        """The name that settings have for it."""
        return self.name.lower()


_CODECS = tuple(Compression)
"""By their numbers: a look-up here costs a fifth of the enumeration's own."""


class _Implementation(Protocol):
    """What each module of `codecs` has."""

    def compress(self, data: ReadableBuffer, level: int) -> bytes: ...

    def decompress(self, data: ReadableBuffer, size_limit: int) -> ReadableBuffer: ...


class LevelRange(NamedTuple):
    """The levels a codec takes. A default outside the range stands for the library's own choice."""

    minimum: int
    maximum: int
    default: int


LEVELS = {
    Compression.GZIP: LevelRange(1, 9, -1),
    Compression.LZ4: LevelRange(1, 17, 9),
    Compression.ZSTD: LevelRange(-131072, 22, 3),
}
"""Codecs that are not here have no levels."""


def checked_level(codec: Compression, level: int | None) -> int:
    """The level to use; InvalidArgument for one that the codec does not know."""
    levels = LEVELS.get(codec)
    if levels is None:
        if level is not None:
            raise InvalidArgument(f"{codec.config_name} has no levels; leave the level out")
        return 0
    if level is None or level == levels.default:
        return levels.default
    if not levels.minimum <= level <= levels.maximum:
        raise InvalidArgument(
            f"{codec.config_name} has no level {level}; choose {levels.minimum} to "
            f"{levels.maximum}, or leave it out for {levels.default}"
        )
    return level


def compress(codec: Compression, data: ReadableBuffer, level: int | None = None) -> ReadableBuffer:
    """The compressed form of `data`; `data` itself for NONE."""
    level = checked_level(codec, level)
    return (_loaded[codec] or _load(codec)).compress(data, level) if codec else data


def decompress(
    codec: Compression, data: ReadableBuffer, size_limit: int = DECOMPRESSED_SIZE_MAX
) -> ReadableBuffer:
    """What was compressed; `data` itself for NONE.

    Bytes that are cut off, followed by others, or wrong raise CorruptMessage, and those that grow
    past the limit DecompressedTooLarge.
    """
    return (_loaded[codec] or _load(codec)).decompress(data, size_limit) if codec else data


_loaded: list[_Implementation | None] = [None] * len(_CODECS)


def _load(codec: Compression) -> _Implementation:
    module = import_module(f"millstream.records.codecs.{codec.config_name}")
    implementation = _loaded[codec] = cast("_Implementation", module)
    return implementation
