"""Large frames of several connections, received beside the loop: handled as if read by it."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream import _accel
from millstream.errors import CorruptMessage
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import decode_response
from millstream.protocol.messages.produce import ProduceResponse
from tests.integration.network.receiving_threads import receiving_threads, until_ended
from tests.integration.network.test_fast_path import (
    WARM,
    end_offsets,
    metadata_frame,
    produce_frame,
    serving,
)
from tests.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.network.conftest import Run
    from tests.integration.network.harness import Client, Served
    from tests.unit.server.harness import Broker

LARGE = 400_000
FIRST = 100_000
PIECE = 8_000


@pytest.fixture
def reads_with() -> str:
    """Only the compiled selector has such a thread."""
    if _accel.find("broker.selector") is None:
        pytest.skip("the compiled kernel is not built (make build)")
    return "selector"


def handed_off(served: Served) -> int:
    """How often a connection was handed off to the thread."""
    selector = served.server.processor.selector
    assert selector is not None
    return selector.handed_off


@contextmanager
def accepted(client: Client) -> Iterator[socket.socket]:
    """The broker's end of a connection."""
    for path in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as found:
            if found.getpeername() == client.socket.getsockname():
                yield found
                return
    pytest.fail("it has none")


def room_max() -> int:
    """How much the system lets a connection wait for."""
    return int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[2]) // 2


def push(clients: list[Client], pieces: list[bytes]) -> None:
    """Send to all before the loop can look: they are ready in the same turn."""
    for client, piece in zip(clients, pieces, strict=True):
        assert client.socket.send(piece) == len(piece)


async def hand_off(
    broker: Broker, served: Served, count: int = 2
) -> tuple[list[Client], list[bytes]]:
    """Connections handed off with the beginning of a large frame, and the rest of the frames.

    One before them is kept by the loop, until it vanishes.
    """
    connections = len(served.server.processor.channels)
    clients = [await served.client() for _ in range(count + 1)]
    frames = [produce_frame(broker, 69 + i, (i - 1) % 2, LARGE) for i in range(count + 1)]
    received = served.server.processor.bytes_in
    for client, frame in zip(clients, frames, strict=True):
        await client.send(frame[:FIRST])
    await until_async(lambda: served.server.processor.bytes_in == received + (count + 1) * FIRST)
    before = handed_off(served)
    push(clients, [frame[FIRST : FIRST + PIECE] for frame in frames])
    await until_async(lambda: handed_off(served) == before + count)
    clients[0].vanish()
    await served.until(connections + count)
    return clients[1:], [frame[FIRST + PIECE :] for frame in frames[1:]]


@pytest.mark.parametrize("seed", [1, 2])
def test_frames_are_answered_in_order_however_their_bytes_arrive(
    run: Run, tmp_path: Path, seed: int
) -> None:
    async def play(broker: Broker, client: Client, random: Random) -> int:
        sizes = [random.choice([0, 10, 300_000, 300_000, 900_000]) for _ in range(25)]
        stream = b"".join(
            produce_frame(broker, i, 0, size) if size else metadata_frame(i)
            for i, size in enumerate(sizes)
        )
        answers = asyncio.create_task(client.ids(len(sizes)))
        while stream:
            count = random.choice([1, 13, 70_000, 600_000, 2_000_000])
            await client.send(stream[:count])
            stream = stream[count:]
        assert await answers == list(range(len(sizes)))
        return len(sizes) - sizes.count(0)

    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            clients = [await served.client() for _ in range(4)]
            written = await asyncio.gather(
                *(play(broker, client, Random(seed * 10 + i)) for i, client in enumerate(clients))
            )
            assert end_offsets(broker) == [WARM + sum(written), WARM]
            assert handed_off(served) > 0
            assert served.server.processor.requests_received == 100

    run(scenario())


def test_a_lone_connection_is_read_by_the_loop(run: Run, tmp_path: Path) -> None:
    others = receiving_threads()

    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            client = await served.client()
            sending = asyncio.create_task(client.send(produce_frame(broker, 1, 0, LARGE) * 20))
            assert await client.ids(20) == [1] * 20
            await sending
            assert handed_off(served) == 0
            assert receiving_threads() <= others

    run(scenario())


def test_who_sends_large_frames_has_room_for_several_in_the_kernel(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            client = await served.client()
            with accepted(client) as connection:
                sending = asyncio.create_task(client.send(produce_frame(broker, 1, 0, LARGE) * 3))
                assert await client.ids(3) == [1] * 3
                await sending
                room = connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
                assert room >= min(8 << 20, room_max())
                assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1

    run(scenario())


def test_the_loop_keeps_one_connection_for_itself(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            clients = [await served.client() for _ in range(3)]
            frames = [produce_frame(broker, i, i % 2, LARGE) for i in range(3)]
            for client, frame in zip(clients, frames, strict=True):
                await client.send(frame[:FIRST])
            await until_async(lambda: served.server.processor.bytes_in == 3 * FIRST)
            push(clients, [frame[FIRST : FIRST + PIECE] for frame in frames])
            await until_async(lambda: handed_off(served) >= 2)
            assert handed_off(served) == 2
            for client, frame in zip(clients, frames, strict=True):
                await client.send(frame[FIRST + PIECE :])
            assert [await client.ids(1) for client in clients] == [[0], [1], [2]]

    run(scenario())


def test_a_slow_sender_is_the_loops_again(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            (slow, _), (rest, _) = await hand_off(broker, served)
            processor = served.server.processor
            # Both are given back without a frame after a while, and noted then.
            await until_async(lambda: processor.bytes_in == 3 * (FIRST + PIECE))
            push([slow], [rest[:PIECE]])
            await until_async(lambda: processor.bytes_in == 3 * (FIRST + PIECE) + PIECE)
            await slow.send(rest[PIECE:])
            assert await slow.ids(1) == [70]
            assert handed_off(served) == 2

    run(scenario())


def test_silence_in_a_frame_expires(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, connections_max_idle_ms=1000) as (broker, served):
            clients, _ = await hand_off(broker, served)
            for client in clients:
                assert await client.is_closed_by_server()
            assert served.server.processor.connections_expired == 2

    run(scenario())


@pytest.mark.parametrize("is_rude", [True, False])
def test_peers_that_vanish_in_a_frame_harm_nobody(
    run: Run, tmp_path: Path, *, is_rude: bool
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            (gone, other), (_, rest) = await hand_off(broker, served)
            if is_rude:
                gone.vanish()
            else:
                gone.socket.shutdown(socket.SHUT_WR)
            await served.until(1)
            await other.send(rest)
            assert await other.ids(1) == [71]
            assert end_offsets(broker) == [WARM, WARM + 1]
            assert served.server.processor.requests.bytes_in_memory == 0

    run(scenario())


def test_a_connection_closed_by_the_broker_is_not_read_any_more(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            (closed, other), (_, rest) = await hand_off(broker, served)
            next(iter(served.server.processor.channels.values())).abort()
            await served.until(1)
            assert await closed.is_closed_by_server()
            # Its descriptor is somebody else's now.
            another = await served.client()
            await another.send(produce_frame(broker, 5, 0))
            assert await another.ids(1) == [5]
            await other.send(rest)
            assert await other.ids(1) == [71]

    run(scenario())


def test_a_muted_connection_keeps_what_was_received(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            clients, rests = await hand_off(broker, served)
            processor = served.server.processor
            for channel in processor.channels.values():
                channel.mute_until(processor.now_ms() + 50)
            assert processor.bytes_in >= 2 * FIRST
            for client, rest in zip(clients, rests, strict=True):
                await client.send(rest)
            assert [await client.ids(1) for client in clients] == [[70], [71]]

    run(scenario())


def test_a_draining_broker_waits_for_no_half_frame(run: Run, tmp_path: Path) -> None:
    others = receiving_threads()

    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            clients, _ = await hand_off(broker, served, 3)
            assert len(receiving_threads() - others) == 1
            draining = asyncio.create_task(served.server.drain(30_000))
            for client in clients:
                assert await client.is_closed_by_server()
                client.close()
            await draining
            await served.server.stop()
            until_ended(others)
            assert served.server.processor.requests.bytes_in_memory == 0

    run(scenario())


def test_a_broker_that_stops_ends_the_thread_with_frames_under_way(
    run: Run, tmp_path: Path
) -> None:
    others = receiving_threads()

    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            clients, _ = await hand_off(broker, served)
            await served.server.stop()
            until_ended(others)
            assert await clients[0].is_closed_by_server()

    run(scenario())


def test_a_broken_batch_gets_the_same_error(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            clients, rests = await hand_off(broker, served)
            broken = bytearray(rests[0])
            broken[-1000] ^= 1
            await clients[0].send(bytes(broken))
            await clients[1].send(rests[1])
            assert await clients[1].ids(1) == [71]
            size = await clients[0].receive(4)
            answer = await clients[0].receive(int.from_bytes(size, "big"))
            _, response = decode_response(answer, ApiKey.PRODUCE, 13)
            assert isinstance(response, ProduceResponse)
            (topic,) = response.responses
            assert topic.partition_responses[0].error_code == CorruptMessage.code
            assert end_offsets(broker) == [WARM, WARM + 1]

    run(scenario())


def test_garbage_behind_a_large_frame_closes_the_connection(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            clients, rests = await hand_off(broker, served)
            await clients[0].send(rests[0] + b"GET / HTTP/1.1\r\n\r\n")
            assert await clients[0].ids(1) == [70]
            assert await clients[0].is_closed_by_server()
            assert served.server.processor.requests_rejected == 1

    run(scenario())


def test_nothing_new_is_handed_off_while_requests_have_no_memory(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, queued_max_request_bytes=LARGE) as (broker, served):
            clients = [await served.client() for _ in range(3)]
            frame = produce_frame(broker, 9, 0, LARGE)
            sending = [asyncio.create_task(each.send(frame * 10)) for each in clients]
            for client in clients:
                assert await client.ids(10) == [9] * 10
            await asyncio.gather(*sending)
            assert served.server.processor.mutes > 0
            assert served.server.processor.requests.bytes_in_memory == 0
            assert end_offsets(broker) == [WARM + 30, WARM]

    run(scenario())


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Nobody can open anything meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as free:
        lowest = free.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_thread_everything_is_received_by_the_loop(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            for partition in (0, 1):  # Their files are open by now.
                one = await served.client()
                await one.send(produce_frame(broker, 1, partition))
                assert await one.ids(1) == [1]
            clients = [await served.client() for _ in range(2)]
            frames = [produce_frame(broker, i, i, LARGE) for i in range(2)]
            with no_more_descriptors():
                sending = [
                    asyncio.create_task(client.send(frame * 10))
                    for client, frame in zip(clients, frames, strict=True)
                ]
                for i, client in enumerate(clients):
                    assert await client.ids(10) == [i] * 10
                await asyncio.gather(*sending)
            assert handed_off(served) == 0

    run(scenario())


@pytest.mark.skipif(not _accel.COMPILED, reason="the compiled kernel is not built (make build)")
def test_a_forked_process_does_not_wait_for_a_thread_it_does_not_have() -> None:
    from millstream._accel.broker.receiving_thread import ReceivingThread

    others = receiving_threads()
    receiver = ReceivingThread()
    assert len(receiving_threads() - others) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of what is tested here.
        child = os.fork()
    if child == 0:
        receiver.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    receiver.close()
    receiver.close()
    until_ended(others)
