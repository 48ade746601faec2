"""Responses over real sockets: order, files, backpressure, encryption."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import ssl
import struct
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from millstream.network.server import PENDING, Outcome, Request, Response
from tests.integration.network.harness import Region, Served, answer, echo, frame, serving
from tests.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, None]], None]

pytestmark = pytest.mark.integration

FILE_BYTES = 3_000_000


@pytest.fixture
def content(tmp_path: Path) -> tuple[Path, bytes]:
    """A file whose every part is different."""
    data = random.Random(4).randbytes(FILE_BYTES)
    path = tmp_path / "segment.log"
    path.write_bytes(data)
    return path, data


class FileHandler:
    """Answers with the part of the file that the request names."""

    def __init__(self, path: Path, *, is_hidden: bool) -> None:
        self._path = path
        self._is_hidden = is_hidden
        self._regions: list[Region] = []

    def __call__(self, request: Request) -> Response | Outcome:
        position, length = struct.unpack_from(">ii", request.buffer, request.body)
        region = Region(self._path, position, length, is_hidden=self._is_hidden)
        self._regions.append(region)
        head = struct.pack(">ii", 4 + 2 + length + 2, request.correlation_id) + b"<<"
        return [head, region, b">>"]

    def close(self) -> None:
        """Close the files."""
        for region in self._regions:
            region.close()


async def fetch_everything(served: Served, data: bytes) -> None:
    """Pipelined requests for pieces of every size, then check each piece."""
    lengths = [0, 1, 100, 31_000, 33_000, 200_000, 1_500_000, 5, 40_000, 900_000]
    pieces = [(random.Random(n).randrange(FILE_BYTES - n), n) for n in lengths]
    client = await served.client()
    for number, piece in enumerate(pieces):
        await client.send(frame(number, struct.pack(">ii", *piece)))
    for number, (position, length) in enumerate(pieces):
        expected = b"<<" + data[position : position + length] + b">>"
        assert await client.response() == (number, expected)


@pytest.mark.parametrize("is_hidden", [False, True], ids=["sendfile", "read"])
@pytest.mark.parametrize("send_buffer", [-1, 4096])
def test_file_regions_arrive_whole_and_in_order(
    run: Run, content: tuple[Path, bytes], send_buffer: int, *, is_hidden: bool
) -> None:
    path, data = content
    handler = FileHandler(path, is_hidden=is_hidden)

    async def scenario() -> None:
        async with serving(handler, socket_send_buffer_bytes=send_buffer) as served:
            await asyncio.gather(*(fetch_everything(served, data) for _ in range(4)))

    run(scenario())
    handler.close()


def test_a_file_that_was_cut_underneath_closes_the_connection(
    run: Run, content: tuple[Path, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    path, _ = content
    handler = FileHandler(path, is_hidden=False)

    async def scenario() -> None:
        async with serving(handler) as served:
            for length in (1_000_000, 1000):
                client = await served.client()
                await client.send(frame(1, struct.pack(">ii", FILE_BYTES - 10, length)))
                size, _ = struct.unpack(">ii", await client.receive(8) or bytes(8))
                assert len(await client.receive(size)) < length

    run(scenario())
    handler.close()
    assert "a file ends inside" in caplog.text


def test_a_vanished_fetcher_does_not_disturb_the_others(
    run: Run, content: tuple[Path, bytes]
) -> None:
    path, data = content
    handler = FileHandler(path, is_hidden=False)

    async def scenario() -> None:
        async with serving(handler) as served:
            for _ in range(5):
                client = await served.client(receive_buffer=4096)
                await client.send(frame(1, struct.pack(">ii", 0, 2_900_000)) * 3)
                await client.receive(1000)
                client.vanish()
            await fetch_everything(served, data)
            await served.until(connections=1)

    run(scenario())
    handler.close()


def test_answers_completed_out_of_order_leave_in_order(run: Run) -> None:
    parked: list[Request] = []

    def handle(request: Request) -> Response | Outcome:
        if request.correlation_id % 3 == 0:
            return answer(request)
        parked.append(request)
        return PENDING

    async def scenario() -> None:
        async with serving(handle, in_flight_requests_max=100) as served:
            client = await served.client()
            await client.send(b"".join(frame(number) for number in range(60)))
            await until_async(lambda: len(parked) >= 40)
            random.Random(1).shuffle(parked)
            for request in parked:
                request.complete(answer(request))
                await asyncio.sleep(0)
            assert await client.ids(60) == list(range(60))

    run(scenario())


def test_the_in_flight_limit_slows_a_client_down_without_losing_requests(run: Run) -> None:
    parked: list[Request] = []
    most = 0

    def handle(request: Request) -> Response | Outcome:
        nonlocal most
        parked.append(request)
        most = max(most, len(parked))
        return PENDING

    async def answer_one_by_one(count: int) -> None:
        for _ in range(count):
            await until_async(lambda: bool(parked))
            request = parked.pop(0)
            request.complete(answer(request))

    async def scenario() -> None:
        async with serving(handle, in_flight_requests_max=3) as served:
            client = await served.client()
            answering = asyncio.ensure_future(answer_one_by_one(200))
            await client.send(b"".join(frame(number, bytes(2000)) for number in range(200)))
            assert await client.ids(200) == list(range(200))
            await answering
            assert most == 3
            assert served.server.processor.mutes > 0

    run(scenario())


def test_a_throttled_client_is_answered_later(run: Run) -> None:
    def handle(request: Request) -> Response | Outcome:
        now_ms = served_clock()
        request.connection.mute_until(now_ms + 30)
        handled_ms.append(now_ms)
        return answer(request)

    handled_ms: list[int] = []

    def served_clock() -> int:
        return clocks[0]()

    clocks: list[Callable[[], int]] = []

    async def scenario() -> None:
        async with serving(handle) as served:
            clocks.append(served.server.processor.clock.monotonic_ms)
            client = await served.client()
            await client.send(frame(1) + frame(2) + frame(3))
            assert await client.ids(3) == [1, 2, 3]
            gaps = [b - a for a, b in itertools.pairwise(handled_ms)]
            assert all(gap >= 30 for gap in gaps)

    run(scenario())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command is needed to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    subprocess.run(
        f"{openssl} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout {key} "
        f"-out {certificate}".split(),
        check=True,
        capture_output=True,
    )
    return certificate, key


def server_context(certificate: tuple[str, str]) -> ssl.SSLContext:
    """What the listener uses."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def test_the_same_answers_travel_encrypted(
    run: Run, content: tuple[Path, bytes], certificate: tuple[str, str]
) -> None:
    path, data = content
    handler = FileHandler(path, is_hidden=False)

    async def scenario() -> None:
        client_context = ssl.create_default_context(cafile=certificate[0])
        async with serving(handler, tls=server_context(certificate)) as served:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", served.port, ssl=client_context
            )
            lengths = [0, 100, 33_000, 1_500_000, 2_000_000, 5]
            for number, length in enumerate(lengths):
                writer.write(frame(number, struct.pack(">ii", number, length)))
            for number, length in enumerate(lengths):
                head = struct.unpack(">ii", await reader.readexactly(8))
                assert head == (length + 8, number)
                body = await reader.readexactly(length + 4)
                assert body == b"<<" + data[number : number + length] + b">>"
            writer.close()
            await writer.wait_closed()
            await served.until(connections=0)

    run(scenario())
    handler.close()


def test_large_requests_travel_encrypted(run: Run, certificate: tuple[str, str]) -> None:
    async def scenario() -> None:
        client_context = ssl.create_default_context(cafile=certificate[0])
        async with serving(echo, tls=server_context(certificate)) as served:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", served.port, ssl=client_context
            )
            body = random.Random(3).randbytes(2_000_000)
            writer.write(frame(1, body) + frame(2, b"small"))
            assert struct.unpack(">ii", await reader.readexactly(8)) == (4 + len(body), 1)
            assert await reader.readexactly(len(body)) == body
            assert struct.unpack(">ii", await reader.readexactly(8)) == (9, 2)
            assert await reader.readexactly(5) == b"small"
            writer.close()
            await writer.wait_closed()

    run(scenario())


def test_plain_bytes_on_an_encrypted_listener_are_refused(
    run: Run, certificate: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(echo, tls=server_context(certificate)) as served:
            client = await served.client()
            await client.send(frame(1))
            while await client.receive(1000):
                pass
            await until_async(lambda: served.server.quotas.total == 0)

    run(scenario())
    assert "TLS handshake failed" in caplog.text
