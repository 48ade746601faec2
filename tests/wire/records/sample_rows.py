"""Rows that every foreign codec must carry: each one an edge that some client got wrong once."""

from __future__ import annotations

from typing import TypeAlias

Row: TypeAlias = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

NOW = 1_700_000_000_000
BEFORE_1970 = -1_000_000_000_000
AFTER_2038 = 4_102_444_800_000
MEBIBYTE = bytes(range(256)) * 4096

ROWS: dict[str, list[Row]] = {
    "plain": [(NOW + i, b"key-%d" % i, b"value-%d" % i, ()) for i in range(100)],
    "nulls": [(NOW, None, None, ()), (NOW, b"k", None, ()), (NOW, None, b"v", ())],
    "empty": [(NOW, b"", b"", ()), (NOW, b"", None, ())],
    "headers": [
        (NOW, b"k", b"v", (("one", b"1"), ("one", b"again"), ("empty", b""), ("null", None))),
        (NOW, None, b"v", (("", b""),)),
        (NOW, None, b"v", tuple((f"h{i}", b"%d" % i) for i in range(100))),
    ],
    "unicode": [
        (NOW, "ключ".encode(), "значение 🌾".encode(), (("grün-头-🌾", "wörter".encode()),)),
    ],
    "a mebibyte": [(NOW, b"k", MEBIBYTE, (("h", b"x"),))],
    "many sizes": [(NOW, b"k" * size, b"v" * size, ()) for size in (62, 63, 64, 127, 128, 8192)],
    "after 2038": [(AFTER_2038 + i * 86_400_000, None, b"v", ()) for i in range(3)],
    "before 1970": [(BEFORE_1970 + i, None, b"v", ()) for i in range(3)],
    "back in time": [
        (NOW, None, b"1", ()),
        (NOW - 90_000_000, None, b"2", ()),
        (5, None, b"3", ()),
    ],
}
