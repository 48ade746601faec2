"""CRC-32C (Castagnoli), the checksum of record batches, without any library.

Short data goes through sixteen tables, sixteen bytes a step. Long data is laid out in lanes which
advance side by side: a step takes one byte of every lane by `bytes.translate` and one XOR of large
integers, so that the loop over bytes runs in C. Called by the batch header code and by
`BatchWriter.seal`; it never looks at what the bytes mean.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41 with its bits mirrored
_ALL_ONES = 0xFFFFFFFF
_STRIDE = 16
_SIXTEEN_BYTES = Struct("<16B")
_UINT32 = Struct("<I")

_LANES_FROM = 2 * 1024
"""Below this size lanes do not pay."""
_SHORT_LANE, _LONG_LANE = 128, 1024
_LONG_LANES_FROM = 256 * 1024


def _shift_by_a_bit(remainder: int) -> int:
    return (remainder >> 1) ^ (_POLYNOMIAL if remainder & 1 else 0)


def _tables() -> tuple[tuple[int, ...], ...]:
    """Table k holds the remainder of each byte followed by k zero bytes."""
    first = []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = _shift_by_a_bit(remainder)
        first.append(remainder)
    tables = [tuple(first)]
    while len(tables) < _STRIDE:
        tables.append(tuple(first[last & 0xFF] ^ (last >> 8) for last in tables[-1]))
    return tuple(tables)


_TABLES = _tables()


def crc32c(data: ReadableBuffer, seed: int = 0) -> int:
    """The checksum of `data` as an unsigned 32-bit number; `seed` continues an earlier value."""
    view = memoryview(data).cast("B")
    crc = (seed & _ALL_ONES) ^ _ALL_ONES
    if len(view) >= _LANES_FROM:
        lane_size = _LONG_LANE if len(view) >= _LONG_LANES_FROM else _SHORT_LANE
        in_lanes = len(view) - len(view) % lane_size
        crc = _advance_lanes(crc, bytes(view[:in_lanes]), lane_size)
        view = view[in_lanes:]
    return _advance(crc, view) ^ _ALL_ONES


def _advance(crc: int, view: memoryview) -> int:
    """The remainder after some more bytes, sixteen at a time."""
    # fmt: off
    t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15 = _TABLES
    whole = len(view) & -_STRIDE
    for a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p in _SIXTEEN_BYTES.iter_unpack(view[:whole]):  # noqa: E741
        crc = (
            t15[a ^ (crc & 0xFF)] ^ t14[b ^ (crc >> 8 & 0xFF)]
            ^ t13[c ^ (crc >> 16 & 0xFF)] ^ t12[d ^ (crc >> 24)]
            ^ t11[e] ^ t10[f] ^ t9[g] ^ t8[h] ^ t7[i] ^ t6[j]
            ^ t5[k] ^ t4[l] ^ t3[m] ^ t2[n] ^ t1[o] ^ t0[p]
        )
    # fmt: on
    for byte in view[whole:]:
        crc = t0[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc


@cache
def _byte_planes() -> tuple[bytes, ...]:
    """The first table as four tables for `translate`, one for each byte of the remainder."""
    return tuple(bytes(value >> shift & 0xFF for value in _TABLES[0]) for shift in (0, 8, 16, 24))


@cache
def _lane_tables(lane_size: int) -> tuple[tuple[int, ...], ...]:
    """What each byte of a remainder becomes after a lane of zero bytes."""
    zeros = memoryview(bytes(lane_size))
    return tuple(
        tuple(_advance(byte << shift, zeros) for byte in range(256)) for shift in (0, 8, 16, 24)
    )


def _advance_lanes(crc: int, data: bytes, lane_size: int) -> int:
    """The remainder after whole lanes. Byte i of every large integer belongs to lane i."""
    lanes = len(data) // lane_size
    plane0, plane1, plane2, plane3 = _byte_planes()
    to_int = int.from_bytes
    # The remainder so far goes into the first lane; the others begin at zero.
    s0, s1, s2, s3 = (crc >> shift & 0xFF for shift in (0, 8, 16, 24))
    for column in range(lane_size):
        index = (s0 ^ to_int(data[column::lane_size], "little")).to_bytes(lanes, "little")
        s0 = s1 ^ to_int(index.translate(plane0), "little")
        s1 = s2 ^ to_int(index.translate(plane1), "little")
        s2 = s3 ^ to_int(index.translate(plane2), "little")
        s3 = to_int(index.translate(plane3), "little")
    remainders = bytearray(4 * lanes)
    for place, state in enumerate((s0, s1, s2, s3)):
        remainders[place::4] = state.to_bytes(lanes, "little")
    t0, t1, t2, t3 = _lane_tables(lane_size)
    crc = 0
    for (remainder,) in _UINT32.iter_unpack(remainders):
        crc = (
            t0[crc & 0xFF] ^ t1[crc >> 8 & 0xFF] ^ t2[crc >> 16 & 0xFF] ^ t3[crc >> 24] ^ remainder
        )
    return crc
