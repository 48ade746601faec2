"""Orders for the demo: realistic ones, late ones and broken ones, and a ledger of them all.

The generator keeps an account of what it sends, apart from everything that is shown afterwards; the
check at the end compares the two. The shop's clock runs faster than ours, and everything is drawn
from a seed, so each run sends the same orders.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from millstream import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC: Final = "orders"
OPENING_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
WINDOW_MS: Final = 300_000
LATE_MS_MAX: Final = 600_000
"""How long after its time an order may arrive and still be counted."""
CLOSING: Final = "closing"
"""The country of the record that tells the windows that the day is over; it is no order."""

_COUNTRIES: Final = ("DE", "ES", "FR", "IT", "NL", "PL")
_PRODUCTS: Final = ("apron", "flour", "mill", "oats", "rye", "sieve")
_LATE_SHARE, _TOO_LATE_SHARE, _BROKEN_SHARE = 0.05, 0.01, 0.02
_SHOP_MS_PER_ORDER: Final = 60
_CHUNKS_PER_SECOND: Final = 20


@dataclass(slots=True)
class Ledger:
    """What was sent."""

    orders: Counter[tuple[int, str]] = field(default_factory=Counter)
    """Good orders by window (when it begins) and country."""
    cents: Counter[tuple[int, str]] = field(default_factory=Counter)
    dead: Counter[str] = field(default_factory=Counter)
    """Those that must become dead letters, by the cause."""
    sent: int = 0
    late: int = 0
    """Those of the good ones that came late, but not too late."""

    @property
    def good(self) -> int:
        """How many must be in the windows."""
        return self.orders.total()


class OrderGenerator(threading.Thread):
    """Sends orders at a steady pace, and at last the record that closes the windows."""

    def __init__(self, address: str, count: int, seconds: float, seed: int = 7) -> None:
        super().__init__(name="order-generator", daemon=True)
        self.ledger = Ledger()
        self.error: Exception | None = None
        self._address = address
        self._count = count
        self._seconds = seconds
        self._random = Random(seed)

    def run(self) -> None:
        """Until all are sent and acknowledged."""
        try:
            self._send_all()
        except Exception as error:  # Told by who waits for the end.
            self.error = error

    def _send_all(self) -> None:
        records = self._records()
        chunk = max(1, int(self._count / (self._seconds * _CHUNKS_PER_SECOND)))
        started = time.perf_counter()
        with Producer(self._address, compression_type="lz4") as producer:
            for first in range(0, self._count, chunk):
                due = started + self._seconds * first / self._count
                time.sleep(max(0.0, due - time.perf_counter()))
                for _ in range(min(chunk, self._count - first)):
                    key, value, timestamp = next(records)
                    producer.send(TOPIC, value, key=key, timestamp=timestamp)
                    self.ledger.sent += 1
            producer.flush()
            end_ms = OPENING_MS + self._count * _SHOP_MS_PER_ORDER + 10 * LATE_MS_MAX
            closing = _order(-1, end_ms, CLOSING, "", 0)
            producer.send(TOPIC, closing, key=CLOSING, timestamp=end_ms)

    def _records(self) -> Iterator[tuple[str, bytes, int]]:
        random, ledger = self._random, self.ledger
        for number in range(self._count):
            arrived_ms = OPENING_MS + number * _SHOP_MS_PER_ORDER
            country, product = random.choice(_COUNTRIES), random.choice(_PRODUCTS)
            cents = random.randrange(150, 20_000)
            kind = random.random()
            at_ms = arrived_ms - random.randrange(1_000)
            if kind < _BROKEN_SHARE:
                ledger.dead["is_an_order"] += 1
                yield country, self._broken(number, at_ms, country, product, cents), arrived_ms
                continue
            kind -= _BROKEN_SHARE
            if kind < _TOO_LATE_SHARE:
                ledger.dead["is_in_time"] += 1
                at_ms = arrived_ms - LATE_MS_MAX - random.randrange(1_000, 3_600_000)
            else:
                if kind < _TOO_LATE_SHARE + _LATE_SHARE:
                    ledger.late += 1
                    at_ms = arrived_ms - random.randrange(60_000, LATE_MS_MAX - 1_000)
                window = at_ms - at_ms % WINDOW_MS, country
                ledger.orders[window] += 1
                ledger.cents[window] += cents
            yield country, _order(number, at_ms, country, product, cents), arrived_ms

    def _broken(self, number: int, at_ms: int, country: str, product: str, cents: int) -> bytes:
        """What really happens: cut off, another type, a field that is missing, no JSON at all."""
        whole = _order(number, at_ms, country, product, cents)
        match number % 4:
            case 0:
                return whole[: len(whole) // 2]
            case 1:
                return whole.replace(b'"cents":%d' % cents, b'"cents":"many"')
            case 2:
                return whole.replace(b'"id"', b'"number"')
            case _:
                return b"\xff\xfe<html>502 Bad Gateway</html>"


def _order(number: int, at_ms: int, country: str, product: str, cents: int) -> bytes:
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000))
    order = {
        "id": number,
        "at": f"{at}.{at_ms % 1000:03}Z",
        "country": country,
        "product": product,
        "cents": cents,
    }
    return json.dumps(order, separators=(",", ":")).encode()
