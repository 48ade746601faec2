"""Small frozen values that every part of Millstream shares.

Nothing here knows bytes on the wire, files or time; a type that only one part needs lives there.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, NewType, TypeAlias

if TYPE_CHECKING:
    from random import Random
    from typing import Self

    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

# What a record's key and value are: bytes, unless a deserializer makes something else of them. The
# default is for type checkers alone, as `typing` has none before Python 3.13.

Offset = NewType("Offset", int)
"""Which record in the partition."""

Position = NewType("Position", int)
"""Which byte in a file."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Which term of leadership of a partition."""

ReadableBuffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that somebody else may own."""

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""A record's headers, in order; a key may occur more than once."""

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)


class Uuid(bytes):
    """A 16-byte identifier whose text is URL-safe base64 without padding, as Kafka writes it."""

    __slots__ = ()

    SIZE: ClassVar[int] = 16
    ZERO: ClassVar[Uuid]
    """"No id": the default of every id field on the wire."""
    METADATA_TOPIC: ClassVar[Uuid]
    """The id of `__cluster_metadata`, the same in every cluster."""

    def __new__(cls, value: ReadableBuffer) -> Self:
        if len(value) != cls.SIZE:
            raise ValueError(f"a Uuid has 16 bytes, not {len(value)}")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the 22 characters that `str()` gives."""
        try:
            parsed = cls(base64.urlsafe_b64decode(text + "=="))
        except ValueError:
            parsed = None
        # Comparing the text catches what base64 decoding forgives: foreign and stray characters.
        if parsed is None or str(parsed) != text:
            raise ValueError(f"not a Uuid: {text!r} (22 characters of A-Z a-z 0-9 - _)")
        return parsed

    @classmethod
    def random(cls, random: Random) -> Self:
        """Draw an id that is not reserved and that no command line takes for an option."""
        while True:
            drawn = cls(random.randbytes(cls.SIZE))
            is_reserved = int.from_bytes(drawn, "big") < 100
            if not is_reserved and "-" not in str(drawn):
                return drawn

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self)[:22].decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid({str(self)!r})"


Uuid.ZERO = Uuid(bytes(16))
Uuid.METADATA_TOPIC = Uuid(bytes(15) + b"\x01")


class TopicPartition(NamedTuple):
    """One partition of a topic, by name. A tuple: they are looked up all the time."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class OffsetAndEpoch:
    """Where a log ends. A later epoch wins over a larger offset."""

    epoch: int
    offset: int
