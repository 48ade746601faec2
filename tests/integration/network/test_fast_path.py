"""Requests answered beneath the loop: in order with all others, however their bytes arrive."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.clock import SystemClock
from millstream.network.server import SocketServer, SocketServerConfig, acceptor
from millstream.protocol.frame import encode_request
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.storage.disk import DiskFileSystem
from tests.integration.network.harness import Served
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

PARTITIONS = 2
WARM = 2


@asynccontextmanager
async def serving(directory: Path, **settings: Any) -> AsyncIterator[tuple[Broker, Served]]:
    """A broker with a real log behind a listener that offers its frames to the fast path."""
    broker = Broker(filesystem=DiskFileSystem(), directories=(str(directory),))
    broker.create("orders", PARTITIONS)
    for index in range(PARTITIONS):
        for _ in range(WARM):
            broker.produce(partition=index)
    config = SocketServerConfig(listeners=("PLAINTEXT://127.0.0.1:0",), **settings)
    server = SocketServer(config, SystemClock())
    server.bind()
    apis = broker.apis
    server.serve("PLAINTEXT", apis.handle, apis.apis, fast_path=apis.fast_path)
    served = Served(server)
    try:
        yield broker, served
    finally:
        served.close_clients()
        await server.stop()


def produce_frame(broker: Broker, correlation_id: int, partition: int = 0, size: int = 10) -> bytes:
    request = broker.produce_request(batch_bytes(value_bytes=size), partition=partition)
    return encode_request(request, 13, correlation_id, "tests")


def metadata_frame(correlation_id: int) -> bytes:
    return encode_request(MetadataRequest(topics=[]), 9, correlation_id, "tests")


def end_offsets(broker: Broker) -> list[int]:
    return [broker.partition(index=index).log.log_end_offset for index in range(PARTITIONS)]


@pytest.mark.parametrize("size", [10, 40_000, 300_000])
def test_answers_come_in_order_however_the_bytes_arrive(
    run: Run, tmp_path: Path, size: int
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            random = Random(size)
            places = [random.choice([None, 0, 1, 1]) for _ in range(40)]
            frames = [
                metadata_frame(i) if place is None else produce_frame(broker, i, place, size)
                for i, place in enumerate(places)
            ]
            stream = b"".join(frames)
            client = await served.client()
            answers = asyncio.create_task(client.ids(len(frames)))
            while stream:
                count = random.choice([1, 13, 700, 70_000, 600_000])
                await client.send(stream[:count])
                stream = stream[count:]
                await asyncio.sleep(0)
            assert await answers == list(range(len(frames)))
            assert end_offsets(broker) == [WARM + places.count(0), WARM + places.count(1)]
            assert served.server.processor.requests_received == len(frames)
            assert served.server.processor.bytes_in == sum(map(len, frames))

    run(scenario())


def test_many_connections_write_to_the_same_logs(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            clients = [await served.client() for _ in range(20)]
            for turn in range(5):
                for number, client in enumerate(clients):
                    await client.send(produce_frame(broker, turn, number % PARTITIONS))
                for client in clients:
                    assert await client.ids(1) == [turn]
            assert end_offsets(broker) == [WARM + 50, WARM + 50]

    run(scenario())


def test_who_has_one_request_in_flight_keeps_nobody_waiting(run: Run, tmp_path: Path) -> None:
    count = 300

    def ask_one_by_one(port: int, frame: bytes) -> None:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(30)
            for _ in range(count):
                client.sendall(frame)
                size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
                assert len(client.recv(size, socket.MSG_WAITALL)) == size

    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            asking = asyncio.create_task(
                asyncio.to_thread(ask_one_by_one, served.port, produce_frame(broker, 0, 0))
            )
            other = await served.client()
            for turn in range(30):
                await other.send(metadata_frame(turn) + produce_frame(broker, turn, 1))
                assert await other.ids(2) == [turn, turn]
            await asking
            assert end_offsets(broker) == [WARM + count, WARM + 30]

    run(scenario())


def test_connections_with_large_frames_take_turns_and_let_small_ones_pass(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            large = [await served.client() for _ in range(3)]
            count, frame = 50, produce_frame(broker, 0, 0, 400_000)
            sending = [asyncio.create_task(each.send(frame * count)) for each in large]
            answers = [asyncio.create_task(each.ids(count)) for each in large]
            small = await served.client()
            for turn in range(20):
                await small.send(produce_frame(broker, turn, 1))
                assert await small.ids(1) == [turn]
            for each in (*answers, *sending):
                await each
            assert end_offsets(broker) == [WARM + 3 * count, WARM + 20]

    run(scenario())


def test_frames_in_buffers_of_their_own_are_completed_together_and_harm_nobody(
    run: Run, tmp_path: Path
) -> None:
    count, begun = 12, 60_000

    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            clients = [await served.client() for _ in range(count)]
            channels = served.server.processor.channels
            for turn in range(5):
                frames = [
                    produce_frame(broker, turn, n % PARTITIONS, 100_000) for n in range(count)
                ]
                for client, frame in zip(clients, frames, strict=True):
                    client.socket.send(frame[:begun])
                await until_async(
                    lambda: all(each.state.own is not None for each in channels.values())
                )
                # Nothing is awaited in between: the rest of all of them is read in one turn.
                for client, frame in zip(clients, frames, strict=True):
                    client.socket.send(frame[begun:] + metadata_frame(100))
                for client in clients:
                    assert await client.ids(2) == [turn, 100]
            assert end_offsets(broker) == [WARM + 5 * count // 2] * PARTITIONS

            frames = [produce_frame(broker, 7, n % PARTITIONS, 100_000) for n in range(count)]
            for client, frame in zip(clients, frames, strict=True):
                client.socket.send(frame[:begun])
            await until_async(lambda: all(each.state.own is not None for each in channels.values()))
            for client, frame in zip(clients, frames, strict=True):
                client.socket.send(frame[begun:])
            clients[0].socket.send(b"GET / HTTP/1.1\r\n\r\n")
            clients[1].socket.shutdown(socket.SHUT_WR)
            for client in clients[2:]:
                assert await client.ids(1) == [7]
            assert await clients[0].ids(1) == [7]
            assert await clients[0].is_closed_by_server()
            await served.until(count - 2)
            assert end_offsets(broker) == [WARM + 6 * count // 2] * PARTITIONS

    run(scenario())


def test_a_peer_that_reads_nothing_gets_every_answer_in_the_end(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, socket_send_buffer_bytes=4096) as (broker, served):
            client = await served.client(receive_buffer=4096)
            count = 20_000
            frame = bytearray(produce_frame(broker, 0))
            stream = bytearray()
            for i in range(count):
                frame[8:12] = i.to_bytes(4, "big")
                stream += frame
            sending = asyncio.create_task(client.send(bytes(stream)))
            channels = served.server.processor.channels
            await until_async(lambda: any(each.is_muted for each in channels.values()))
            assert await client.ids(count) == list(range(count))
            await sending
            assert end_offsets(broker) == [WARM + count, WARM]

    run(scenario())


def test_a_connection_that_ends_has_written_what_it_sent(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            client = await served.client()
            await served.until(1)
            await client.send(b"".join(produce_frame(broker, i) for i in range(10)))
            client.socket.shutdown(socket.SHUT_WR)
            await served.until(0)
            assert end_offsets(broker) == [WARM + 10, WARM]

    run(scenario())


def test_garbage_behind_a_good_request_closes_the_connection(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            client = await served.client()
            await client.send(produce_frame(broker, 7) + b"GET / HTTP/1.1\r\n\r\n")
            assert await client.ids(1) == [7]
            assert await client.is_closed_by_server()
            assert served.server.processor.requests_rejected == 1

    run(scenario())


def test_a_peer_that_is_gone_harms_nobody(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            gone, other = await served.client(), await served.client()
            await served.until(2)
            await gone.send(produce_frame(broker, 1))
            gone.vanish()
            await other.send(produce_frame(broker, 2))
            assert await other.ids(1) == [2]
            await served.until(1)

    run(scenario())


def test_when_nobody_knows_what_was_written_there_is_no_answer(
    run: Run, reads_with: str, tmp_path: Path
) -> None:
    if reads_with != "selector":
        pytest.skip("only the selector answers several connections at a time")

    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            problems: list[dict[str, Any]] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: problems.append(context))
            client = await served.client()
            log: Any = broker.partition().log
            log.segments.active.file = _BrokenFile()
            broker.replicas._appends._store = None  # type: ignore[assignment]  # breaks `failure`
            await client.send(produce_frame(broker, 1))
            assert await client.is_closed_by_server()
            assert [str(each["exception"]) for each in problems] != []

    run(scenario())


class _BrokenFile:
    """A file on a disk that has failed."""

    def append(self, data: object, position: int) -> None:
        """Fail."""
        raise OSError(errno.EIO, "the disk has failed")

    def truncate(self, size: int) -> None:
        """The same."""
        raise OSError(errno.EIO, "the disk has failed")


class _NoRoom:
    """A selector that can watch no more sockets."""

    def open(self, *_: object) -> None:
        """Fail as epoll does."""
        raise OSError(errno.ENOSPC, "too many watches")


def test_a_connection_that_cannot_be_watched_is_closed(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (_, served):
            monkeypatch.setattr(acceptor, "find_selector", lambda processor: _NoRoom())
            client = await served.client()
            assert await client.is_closed_by_server()
            assert served.server.quotas.broker.is_full is False
        assert "it cannot be watched" in caplog.text

    run(scenario())
