"""A connection that pipelines beside one that does not, on real sockets."""

from __future__ import annotations

import gc
import struct
from typing import TYPE_CHECKING

from millstream.protocol.api import ApiKey
from millstream.protocol.frame import decode_response
from millstream.protocol.messages.produce import ProduceResponse
from tests.integration.network.harness import answer, frame
from tests.integration.network.harness import serving as serving_handler
from tests.integration.network.test_fast_path import WARM, end_offsets, produce_frame, serving
from tests.waiting import until_async

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.network.server import Outcome, Request, Response
    from tests.integration.network.conftest import Run
    from tests.integration.network.harness import Client

MANY = 1000


async def base_offset(client: Client) -> int:
    """Where the batch of the next answer begins."""
    correlation_id, body = await client.response()
    _, response = decode_response(struct.pack(">i", correlation_id) + body, ApiKey.PRODUCE, 13)
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].base_offset


def test_a_request_is_served_between_those_of_a_connection_that_pipelines(run: Run) -> None:
    served_ids: list[int] = []

    def handle(request: Request) -> Response | Outcome:
        served_ids.append(request.correlation_id)
        return answer(request)

    async def scenario() -> None:
        async with serving_handler(handle) as served:
            eager, modest = await served.client(), await served.client()
            await served.until(connections=2)
            await eager.send(b"".join(frame(number) for number in range(MANY)))
            await modest.send(frame(MANY))
            assert await modest.ids(1) == [MANY]
            assert served_ids.index(MANY) < MANY // 2
            assert await eager.ids(MANY) == list(range(MANY))

    run(scenario())


def test_a_batch_is_written_between_those_of_a_producer_that_pipelines(
    run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            eager, modest = await served.client(), await served.client()
            await served.until(connections=2)
            one = produce_frame(broker, 7)
            await eager.send(one * MANY)
            await modest.send(one)
            assert await base_offset(modest) < WARM + MANY // 2
            assert await eager.ids(MANY) == [7] * MANY
            assert end_offsets(broker) == [WARM + MANY + 1, WARM]

    run(scenario())


def test_frames_that_were_put_off_take_the_fast_path(
    run: Run, reads_with: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            client = await served.client()
            await client.send(produce_frame(broker, 7) * MANY)
            assert await client.ids(MANY) == [7] * MANY
            if reads_with == "selector":
                selector = served.server.processor.selector
                assert selector is not None
                assert selector.answered == MANY
            assert served.server.processor.requests_received == MANY

    run(scenario())


def test_connections_that_ended_leave_nothing(run: Run, tmp_path: Path) -> None:
    """Idle ones, ones that were answered, and ones that vanish while their frames are put off."""

    async def scenario() -> None:
        async with serving(tmp_path) as (broker, served):
            one, before = produce_frame(broker, 7), _alive()
            for number in range(60):
                client = await served.client()
                if number % 3 == 1:
                    await client.send(one)
                    assert await client.ids(1) == [7]
                elif number % 3 == 2:
                    await client.send(one * MANY)
                client.vanish()
            await served.until(connections=0)
            await until_async(lambda: _alive() <= before)
            assert served.server.processor.pool.taken_bytes == 0

    run(scenario())


def _alive() -> int:
    """How many connections there are in memory."""
    gc.collect()
    kinds = ("KafkaChannel", "SocketTransport")
    return sum(type(each).__name__ in kinds for each in gc.get_objects())
