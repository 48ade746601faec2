"""Fetches answered beneath the loop: in order with all others, whatever their clients do."""

from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.clock import SystemClock
from millstream.network.server import SocketServer, SocketServerConfig
from millstream.network.server.senders import GATHER_BYTES_MAX, HIGH_WATER_BYTES
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import decode_response, encode_request
from millstream.protocol.messages.fetch import FetchResponse
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.storage.disk import DiskFileSystem
from tests.integration.network.harness import Client, Served
from tests.unit.server.harness import Broker
from tests.unit.storage.batches import batch_bytes
from tests.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.integration.network.conftest import Run

pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)

VERSION = 18


class Counting:
    """Counts the fetches that come to the full path."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self.handled = 0

    def handle(self, request: Any) -> Any:
        """Count, and answer."""
        self.handled += 1
        return self._handler.handle(request)


class Consumer:
    """A session of its own about one partition."""

    def __init__(self, broker: Broker, client: Client) -> None:
        self.broker = broker
        self.client = client
        self.session = 0
        self.epoch = 0

    def frame(self, offset: int, correlation_id: int = 0, **limits: Any) -> bytes:
        """The next request of the session."""
        request = self.broker.fetch_request(
            offset, session_id=self.session, session_epoch=self.epoch, **limits
        )
        self.epoch += 1
        return encode_request(request, VERSION, correlation_id, "tests")

    async def answer(self) -> tuple[int, bytes]:
        """Correlation id and records of the next answer."""
        size = await self.client.receive(4)
        body = await self.client.receive(int.from_bytes(size, "big"))
        correlation_id, message = decode_response(body, ApiKey.FETCH, VERSION)
        assert isinstance(message, FetchResponse)
        assert message.error_code == 0
        self.session = message.session_id
        partitions = [each for topic in message.responses for each in topic.partitions]
        return correlation_id, bytes(partitions[0].records or b"")

    async def begin(self) -> None:
        """Open the session."""
        await self.client.send(self.frame(0, partition_max_bytes=1))
        await self.answer()


@asynccontextmanager
async def serving(
    directory: Path, sizes: list[int], **settings: Any
) -> AsyncIterator[tuple[Broker, Served]]:
    """A broker with batches of some sizes on disk."""
    broker = Broker(filesystem=DiskFileSystem(), directories=(str(directory),))
    broker.create("orders", max_message_bytes="4000000")
    for size in sizes:
        broker.produce(batch_bytes(value_bytes=size))
    config = SocketServerConfig(listeners=("PLAINTEXT://127.0.0.1:0",), **settings)
    server = SocketServer(config, SystemClock())
    server.bind()
    apis: Any = broker.apis
    apis._fetch = Counting(apis._fetch)
    server.serve("PLAINTEXT", apis.handle, apis.apis, fast_path=apis.fast_path)
    served = Served(server)
    try:
        yield broker, served
    finally:
        served.close_clients()
        await server.stop()


async def new_consumer(broker: Broker, served: Served, **how: Any) -> Consumer:
    consumer = Consumer(broker, await served.client(**how))
    await consumer.begin()
    return consumer


def handled_in_full(broker: Broker) -> int:
    apis: Any = broker.apis
    handled: int = apis._fetch.handled
    return handled


def stored(broker: Broker, offset: int, count: int = 1 << 30) -> bytes:
    """What the log has from an offset on."""
    log: Any = broker.partition().log
    found = log.read(offset, count)
    return bytes(found.records.read())


@pytest.mark.parametrize("size", [10, 16_000, 90_000, 200_000, 1_500_000])
def test_a_consumer_reads_everything_in_order(
    run: Run, reads_with: str, tmp_path: Path, size: int
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, [size] * 6) as (broker, served):
            consumer = await new_consumer(broker, served)
            for offset in range(6):
                await consumer.client.send(consumer.frame(offset, offset, partition_max_bytes=1))
                assert await consumer.answer() == (offset, stored(broker, offset, 1))
            # One begins the session, and the first in a log may have to open files.
            assert handled_in_full(broker) <= (2 if reads_with == "selector" else 7)
            channel = next(iter(served.server.processor.channels.values()))
            assert channel.state.bytes_out > 6 * size
            assert served.server.processor.requests_received == 7

    run(scenario())


def test_pipelined_requests_of_all_kinds_are_answered_in_order(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, [50] * 3) as (broker, served):
            consumer = await new_consumer(broker, served)
            random = Random(7)
            kinds = [random.choice(["produce", "fetch", "fetch", "metadata"]) for _ in range(60)]
            end = 3
            stream = b""
            expected = []
            for i, kind in enumerate(kinds):
                if kind == "produce":
                    request = broker.produce_request(batch_bytes(value_bytes=50))
                    stream += encode_request(request, 13, i, "tests")
                    end += 1
                elif kind == "metadata":
                    stream += encode_request(MetadataRequest(topics=[]), 9, i, "tests")
                else:
                    # What was written before on the same connection can be read.
                    stream += consumer.frame(end - 1, i)
                expected.append(end - 1)
            while stream:
                count = random.choice([1, 13, 700, 70_000])
                await consumer.client.send(stream[:count])
                stream = stream[count:]
                await asyncio.sleep(0)
            for i, kind in enumerate(kinds):
                if kind == "fetch":
                    correlation_id, records = await consumer.answer()
                    assert (correlation_id, records[:8]) == (i, expected[i].to_bytes(8, "big"))
                else:
                    assert await consumer.client.ids(1) == [i]

    run(scenario())


def test_a_fetch_behind_one_that_waits_is_answered_after_it(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, [50] * 3) as (broker, served):
            waiting = await new_consumer(broker, served)
            # Another session on the same connection, which has something to read.
            reading = Consumer(broker, waiting.client)
            await reading.begin()
            await waiting.client.send(
                waiting.frame(3, 1, max_wait_ms=60_000) + reading.frame(0, 2) + reading.frame(1, 3)
            )
            await until_async(lambda: served.server.processor.requests_received >= 4)
            broker.produce(batch_bytes(value_bytes=50))
            broker.settle()
            assert (await waiting.answer())[0] == 1
            assert await waiting.client.ids(2) == [2, 3]

    run(scenario())


@pytest.mark.parametrize("size", [1000, 60_000, 700_000])
def test_a_client_that_stops_reading_is_muted_and_gets_every_answer_in_the_end(
    run: Run, tmp_path: Path, size: int
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, [size] * 2, socket_send_buffer_bytes=4096) as (broker, served):
            consumer = await new_consumer(broker, served, receive_buffer=4096)
            count = 3000 if size < 60_000 else 60
            frames = [consumer.frame(i % 2, i, partition_max_bytes=1) for i in range(count)]
            sending = asyncio.create_task(consumer.client.send(b"".join(frames)))
            channel: Any = next(iter(served.server.processor.channels.values()))
            await until_async(lambda: channel.is_muted)
            # What leaves together, and one answer more than the mark, at most.
            assert channel.state.unsent_bytes <= HIGH_WATER_BYTES + GATHER_BYTES_MAX + size + 500
            expected = [stored(broker, offset, 1) for offset in range(2)]
            for i in range(count):
                assert await consumer.answer() == (i, expected[i % 2])
            await sending

    run(scenario())


def test_a_client_that_takes_nothing_is_closed(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = {"socket_send_buffer_bytes": 4096, "write_stall_max_ms": 50}
        async with serving(tmp_path, [900_000], **settings) as (broker, served):
            consumer = await new_consumer(broker, served, receive_buffer=4096)
            await consumer.client.send(consumer.frame(0, 1) + consumer.frame(0, 2))
            await served.until(0)

    run(scenario())


def test_a_client_that_vanishes_in_the_middle_harms_nobody(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, [900_000], socket_send_buffer_bytes=4096) as (broker, served):
            gone = await new_consumer(broker, served, receive_buffer=4096)
            other = await new_consumer(broker, served)
            await gone.client.send(gone.frame(0, 1) * 3)
            await gone.client.receive(10)
            gone.client.vanish()
            await other.client.send(other.frame(0, 9))
            assert await other.answer() == (9, stored(broker, 0))
            await served.until(1)

    run(scenario())


def test_a_drain_sends_the_rest_of_an_answer(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, [900_000], socket_send_buffer_bytes=4096) as (broker, served):
            consumer = await new_consumer(broker, served, receive_buffer=4096)
            await consumer.client.send(consumer.frame(0, 1))
            channel: Any = next(iter(served.server.processor.channels.values()))
            await until_async(lambda: channel.state.unsent_bytes > 0)
            channel.drain()
            assert await consumer.answer() == (1, stored(broker, 0))
            assert await consumer.client.is_closed_by_server()

    run(scenario())


@pytest.mark.parametrize("size", [1000, 300_000])
def test_a_file_that_ends_too_early_breaks_the_connection(
    run: Run, tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, [size]) as (broker, served):
            consumer = await new_consumer(broker, served)
            log: Any = broker.partition().log
            log.segments.active.open_file().truncate(size // 2)
            await consumer.client.send(consumer.frame(0, 1))
            await served.until(0)
            assert os_error_text() in caplog.text

    run(scenario())


def os_error_text() -> str:
    """How the log tells of it."""
    return f"[Errno {errno.EIO}]"
