"""Do clients leave anything behind? Opens, uses and closes each kind many times.

Run: `python -m tools.client_cycles --cycles 10000 [Producer AsyncConsumer ...]`. The broker is a
process of its own, so that threads, descriptors and memory of this one are the clients'. A kind
fails if it leaves a thread or a descriptor, or if memory grows by 1 MB after the first tenth of the
cycles; `tests/integration/client/test_client_cycles.py` runs a short slice.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    AsyncTopicReader,
    Consumer,
    Producer,
    ShareConsumer,
    TopicReader,
)
from millstream.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

TOPIC = "cycles"
GROWTH_BYTES_MAX = 1 << 20
_PAGE_BYTES = 4096
_BROKER = f"""
import sys
from millstream.testing import EmbeddedBroker

with EmbeddedBroker(in_memory=True) as broker:
    broker.create_topic({TOPIC!r}, partitions=1)
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


class Usage(NamedTuple):
    """What this process has."""

    threads: int
    descriptors: int
    bytes: int

    @classmethod
    def now(cls) -> Usage:
        """As it is, after what can be collected is."""
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        return cls(threading.active_count(), descriptors, resident * _PAGE_BYTES)


class Growth(NamedTuple):
    """What the cycles have left."""

    threads: int
    descriptors: int
    bytes: int

    @property
    def is_leak(self) -> bool:
        """Whether that is more than nothing."""
        return self.threads > 0 or self.descriptors > 0 or self.bytes >= GROWTH_BYTES_MAX


def _producer(address: str) -> None:
    with Producer(address) as client:
        client.send(TOPIC, b"v").result(30)


def _consumer(address: str) -> None:
    with Consumer(address) as client:
        client.assign(client.partitions_for(TOPIC))
        client.poll(0)


def _share_consumer(address: str) -> None:
    with ShareConsumer(address, TOPIC, group_id="cycles") as client:
        client.poll(0)


def _admin(address: str) -> None:
    with Admin(address) as client:
        client.list_topics()


def _reader(address: str) -> None:
    with TopicReader(address) as client:
        client.read(TOPIC, start="latest").to_arrow()


async def _async_producer(address: str) -> None:
    async with AsyncProducer(address) as client:
        await (await client.send(TOPIC, b"v"))


async def _async_consumer(address: str) -> None:
    async with AsyncConsumer(address) as client:
        client.assign(await client.partitions_for(TOPIC))
        await client.poll(0)


async def _async_share_consumer(address: str) -> None:
    async with AsyncShareConsumer(address, TOPIC, group_id="cycles") as client:
        await client.poll(0)


async def _async_admin(address: str) -> None:
    async with AsyncAdmin(address) as client:
        await client.list_topics()


async def _async_reader(address: str) -> None:
    async with AsyncTopicReader(address) as client:
        await (await client.read(TOPIC, start="latest")).to_arrow()


BLOCKING: dict[str, Callable[[str], None]] = {
    "Producer": _producer,
    "Consumer": _consumer,
    "ShareConsumer": _share_consumer,
    "Admin": _admin,
    "TopicReader": _reader,
}
ASYNCIO: dict[str, Callable[[str], Awaitable[None]]] = {
    "AsyncProducer": _async_producer,
    "AsyncConsumer": _async_consumer,
    "AsyncShareConsumer": _async_share_consumer,
    "AsyncAdmin": _async_admin,
    "AsyncTopicReader": _async_reader,
}
KINDS = (*BLOCKING, *ASYNCIO)


@contextmanager
def broker() -> Iterator[str]:
    """The address of a broker in another process."""
    with subprocess.Popen(
        [sys.executable, "-c", _BROKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate("", timeout=60)


def growth(kind: str, address: str, cycles: int) -> Growth:
    """What so many cycles leave, beside a tenth as many that come first."""
    if kind in BLOCKING:
        before = _blocking(BLOCKING[kind], address, cycles)
    else:
        before = asyncio.run(_asynchronous(ASYNCIO[kind], address, cycles))
    after = Usage.now()
    return Growth(*(now - then for now, then in zip(after, before, strict=True)))


def _blocking(cycle: Callable[[str], None], address: str, cycles: int) -> Usage:
    for _ in range(max(1, cycles // 10)):
        cycle(address)
    before = Usage.now()
    for _ in range(cycles):
        cycle(address)
    return before


async def _asynchronous(
    cycle: Callable[[str], Awaitable[None]], address: str, cycles: int
) -> Usage:
    for _ in range(max(1, cycles // 10)):
        await cycle(address)
    before = Usage.now()
    for _ in range(cycles):
        await cycle(address)
    return before


def main() -> int:
    """Cycle the kinds that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=KINDS, metavar="KIND")
    parser.add_argument("--cycles", type=int, default=10_000)
    options: Any = parser.parse_args()
    failures = 0
    clock = SystemClock()
    with broker() as address:
        for kind in options.kinds:
            begin_ms = clock.monotonic_ms()
            left = growth(kind, address, options.cycles)
            seconds = (clock.monotonic_ms() - begin_ms) / 1000
            failures += left.is_leak
            print(
                f"{kind:20} {options.cycles} cycles in {seconds:.0f} s: threads {left.threads:+}, "
                f"descriptors {left.descriptors:+}, memory {left.bytes / 1024:+,.0f} KiB"
                f"{'  LEAK' if left.is_leak else ''}",
                flush=True,
            )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
