"""CRC-32C (Castagnoli), the checksum of record batches, without any library.

Sixteen tables let one step of the loop take sixteen bytes. Called by the batch header code and by
`BatchWriter.seal`; it never looks at what the bytes mean.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.types import ReadableBuffer

_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41 with its bits mirrored
_ALL_ONES = 0xFFFFFFFF
_STRIDE = 16
_SIXTEEN_BYTES = Struct("<16B")


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
    # fmt: off
    t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15 = _TABLES
    view = memoryview(data).cast("B")
    whole = len(view) & -_STRIDE
    crc = (seed & _ALL_ONES) ^ _ALL_ONES
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
    return crc ^ _ALL_ONES
