"""Feeds mutated messages and frames to the codec: `python -m tests.fuzz.frames --seconds 60`.

From one seed: pick a message version, fill it, encode it, damage the bytes, decode. The only
legal outcomes are a message or a DecodeError, the compiled codec and its plain version must agree
on which, and a message that was read can be written. `--seed` repeats a run; a failure names the
seed of the single case.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.errors import DecodeError, ProtocolError
from millstream.protocol import reference
from millstream.protocol.frame import FrameDecoder, decode_request, encode_request
from millstream.protocol.layout import is_default, layout_of
from millstream.types import Uuid
from tests.strategies.messages import message_class, message_names, versions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.layout import FieldLayout, StructLayout
    from millstream.protocol.message import Message

NAMES = message_names()
ODD_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
ODD_WORDS = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x07")

_FILLERS: dict[str, Callable[[random.Random], Any]] = {
    "bool": lambda r: r.random() < 0.5,
    "int8": lambda r: r.randint(-128, 127),
    "int16": lambda r: r.randint(-32768, 32767),
    "uint16": lambda r: r.randint(0, 65535),
    "int32": lambda r: r.randint(-(1 << 31), (1 << 31) - 1),
    "uint32": lambda r: r.randint(0, (1 << 32) - 1),
    "int64": lambda r: r.randint(-(1 << 63), (1 << 63) - 1),
    "float64": lambda r: r.uniform(-1e9, 1e9),
    "uuid": lambda r: Uuid(r.randbytes(16)),
    "string": lambda r: r.choice(["", "a", "é" * r.randint(1, 100)]),
    "bytes": lambda r: r.randbytes(r.choice([0, 1, 200])),
    "records": lambda r: r.randbytes(r.choice([0, 1, 200])),
}


def fill(layout: StructLayout, chance: random.Random) -> Any:
    """A struct with values in the fields that a version has."""
    made = layout.cls()
    for bound in (*layout.fields, *layout.tagged):
        if bound.field.tag is None or chance.random() < 0.5:
            setattr(made, bound.name, _value(layout, bound, chance))
    if layout.is_flexible and chance.random() < 0.2:
        made.unknown_tags = ((chance.randint(1_000, 100_000), chance.randbytes(3)),)
    return made


def _value(layout: StructLayout, bound: FieldLayout, chance: random.Random) -> Any:
    if bound.is_nullable and chance.random() < 0.3:
        return None
    count = chance.randint(0, 3) if bound.field.is_array else 1
    values = [
        _FILLERS[bound.field.type](chance) if bound.struct is None else fill(bound.struct, chance)
        for _ in range(count)
    ]
    if bound.field.is_array:
        return values
    is_unset = bound.field.tag is not None and is_default(layout.cls, bound.field, values[0])
    return None if is_unset and bound.struct is not None else values[0]


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Damage as lines, disks and strangers do it."""
    damaged = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(damaged) + 1)
        match chance.randrange(6):
            case 0:
                del damaged[at:]
            case 1:
                del damaged[at : at + chance.randint(1, 8)]
            case 2:
                damaged[at:at] = chance.randbytes(chance.randint(1, 8))
            case 3:
                damaged[at : at + 1] = bytes([chance.choice(ODD_BYTES)])
            case 4:
                word = chance.choice(ODD_WORDS)
                damaged[at : at + len(word)] = word
            case _:
                damaged[at : at + 1] = chance.randbytes(1)
    return bytes(damaged)


def check_bytes(cls: type[Message], version: int, data: bytes) -> bool:
    """Decode any bytes in every way and compare; True if they were a message."""
    expected = outcome(lambda: reference.decode(cls, data, version, 0)[0], version)
    for buffer in (data, bytearray(data)):
        found = outcome(partial(cls.decode, buffer, version), version)
        assert found == expected, f"{cls.__name__} v{version} {data.hex()}"
    if isinstance(expected, bytes):
        assert cls.decode(expected, version).encode(version) == expected
    return isinstance(expected, bytes)


def outcome(decode: Callable[[], Message], version: int) -> bytes | str:
    """The message that came out as bytes (a NaN is not equal to itself), or the refusal."""
    try:
        return decode().encode(version)
    except DecodeError as error:
        return str(error)


def check_frame(chance: random.Random, request: Message, version: int) -> None:
    """Feed a damaged frame in pieces; only protocol errors may come out."""
    damaged = mutate(encode_request(request, version, 1, "fuzz"), chance)
    decoder = FrameDecoder(frame_bytes_max=1 << 20)
    try:
        while damaged:
            size = chance.randint(1, len(damaged))
            for frame in decoder.feed(damaged[:size]):
                decode_request(frame)
            damaged = damaged[size:]
    except ProtocolError:
        return


def run_case(seed: int) -> None:
    """One message version with a few ways of damage."""
    chance = random.Random(seed)
    cls = message_class(chance.choice(NAMES))
    version = chance.choice(versions_of(cls))
    message = fill(layout_of(cls, version), chance)
    encoded = message.encode(version)
    assert encoded == reference.encode(message, version)
    assert check_bytes(cls, version, encoded)
    assert cls.decode(encoded, version) == message
    for _ in range(8):
        check_bytes(cls, version, mutate(encoded, chance))
    check_bytes(cls, version, chance.randbytes(chance.randint(0, 64)))
    if cls.__name__.endswith("Request"):
        check_frame(chance, message, version)


def main() -> int:
    """Run cases until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.frames", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    deadline = time.perf_counter() + arguments.seconds
    seed = arguments.seed
    while time.perf_counter() < deadline:
        try:
            run_case(seed)
        except Exception:
            sys.stderr.write(f"failed: python -m tests.fuzz.frames --seed {seed} --seconds 1\n")
            raise
        seed += 1
    sys.stdout.write(
        f"frames: {seed - arguments.seed} cases from seed {arguments.seed}, no fault\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
