"""The machine dies: what a whole node had promised by then, and what may be lost by which setting.

A node in this process, its sockets real, its disk simulated: at a power loss any part of what was
not synced is gone or torn. Records of topics with `millstream.durability=disk` survive once they
are acknowledged; with `page-cache` they survive up to the recovery point, which `flush.messages`,
`flush.ms` and the roll of a segment move. A kill of the process alone costs nothing of either.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from millstream.clock import SystemClock
from tests.integration.node.harness import Client
from tests.integration.node.world import World, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.node.node import Node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

KAFKA_STORAGE_ERROR = 56


def world_of_today(seed: int = 1) -> World:
    """A machine whose clock stands at the time that clients put into their records."""
    world = World(seed)
    world.clock.jump_wall(SystemClock().wall_ms() - world.clock.wall_ms())
    return world


async def with_client(node: Node, use: Callable[[Client], None]) -> None:
    """Let a client use a node of this loop, from a thread of its own."""

    def run_client() -> None:
        with Client(node.bootstrap_servers) as client:
            use(client)

    await asyncio.to_thread(run_client)


@pytest.mark.parametrize("seed", range(6))
def test_acknowledged_records_of_durable_topics_survive_a_power_loss(seed: int) -> None:
    async def scenario() -> None:
        world, random = world_of_today(seed), Random(seed)
        promised: list[bytes] = []

        def live(client: Client) -> None:
            client.create_topic("ledger", millstream_durability="disk", segment_bytes="1048576")
            found = client.values("ledger")
            assert found[: len(promised)] == promised
            promised[:] = found
            for number in range(random.randint(5, 30)):
                value = b"%d %d" % (len(promised), number) + b"." * random.choice((0, 100_000))
                assert client.produce("ledger", value) == (0, len(promised))
                promised.append(value)

        for _ in range(3):
            async with world.node() as node:
                await with_client(node, live)
                after = world.disk.after_power_loss()
            world.disk = after

    run(scenario())


@pytest.mark.parametrize("seed", range(3))
def test_records_in_the_page_cache_survive_a_kill_and_their_beginning_a_power_loss(
    seed: int,
) -> None:
    async def scenario() -> None:
        world = world_of_today(seed)
        values = [b"%d" % number for number in range(200)]
        survivors: list[bytes] = []

        def write(client: Client) -> None:
            assert client.create_topic("ledger", millstream_durability="page-cache") == 0
            for value in values:
                assert client.produce("ledger", value)[0] == 0

        def read_all(client: Client) -> None:
            assert client.values("ledger") == values

        def read_some(client: Client) -> None:
            survivors[:] = client.values("ledger")

        async with world.node() as node:
            await with_client(node, write)
            after = world.disk.after_kill()
        world.disk = after
        async with world.node() as node:
            await with_client(node, read_all)
            after = world.disk.after_power_loss()
        world.disk = after
        async with world.node() as node:
            await with_client(node, read_some)

        # Recovery after the kill has synced what it verified: the loss window began there.
        assert survivors == values

    run(scenario())


@pytest.mark.parametrize("seed", range(6))
def test_a_power_loss_takes_from_the_page_cache_only_the_end(seed: int) -> None:
    async def scenario() -> None:
        world = world_of_today(seed)
        values = [b"%d" % number for number in range(100)]
        survivors: list[bytes] = []

        def write(client: Client) -> None:
            assert client.create_topic("ledger", 1, flush_messages="40") == 0
            for value in values:
                assert client.produce("ledger", value)[0] == 0

        def read(client: Client) -> None:
            survivors[:] = client.values("ledger")
            assert client.produce("ledger", b"next") == (0, len(survivors))

        async with world.node() as node:
            await with_client(node, write)
            assert node.broker is not None
            recovery_point = node.broker.replicas.partition("ledger", 0).log.recovery_point
            after = world.disk.after_power_loss()
        world.disk = after
        async with world.node() as node:
            await with_client(node, read)

        assert 40 <= recovery_point <= len(survivors)
        assert survivors == values[: len(survivors)]

    run(scenario())


def test_a_full_disk_refuses_records_until_there_is_room() -> None:
    async def scenario() -> None:
        world = world_of_today()
        kept: list[int] = []

        def fill(client: Client) -> None:
            client.create_topic("ledger", millstream_durability="disk")
            world.disk.capacity_bytes = 1 << 20
            while client.produce("ledger", b"x" * 50_000) == (0, len(kept)):
                kept.append(len(kept))
            assert client.produce("ledger", b"x" * 50_000)[0] == KAFKA_STORAGE_ERROR
            assert len(client.values("ledger")) == len(kept) > 5
            world.disk.capacity_bytes = None
            assert client.produce("ledger", b"room") == (0, len(kept))

        def check(client: Client) -> None:
            assert client.values("ledger")[-1] == b"room"
            assert len(client.values("ledger")) == len(kept) + 1

        async with world.node() as node:
            await with_client(node, fill)
            assert world.fatal == []
            after = world.disk.after_power_loss()
        world.disk = after
        async with world.node() as node:
            await with_client(node, check)

    run(scenario())


@pytest.mark.parametrize("jump_ms", [-3_600_000, -30 * 86_400_000])
def test_a_wall_clock_that_goes_back_hurts_nobody(jump_ms: int) -> None:
    async def scenario() -> None:
        world = world_of_today()

        def before(client: Client) -> None:
            client.create_topic("ledger", retention_ms="60000")
            client.create_topic("stamped", message_timestamp_type="LogAppendTime")
            for topic in ("ledger", "stamped"):
                assert client.produce(topic, b"before") == (0, 0)

        def after(client: Client) -> None:
            for topic in ("ledger", "stamped"):
                code, offset = client.produce(topic, b"after")
                assert (code, offset) in ((0, 1), (32, -1)), "or too far in the future by now"
                assert client.values(topic)[0] == b"before"
            assert client.produce("stamped", b"more")[0] == 0

        async with world.node() as node:
            await with_client(node, before)
            world.clock.jump_wall(jump_ms)
            await with_client(node, after)
            await world.advance(node, 60_000)
            assert node.shared is not None
            assert node.shared.metadata.is_alive(1)
            await node.stop()
        assert world.fatal == []
        async with world.node() as node:
            await with_client(node, after_restart)

    def after_restart(client: Client) -> None:
        assert client.values("stamped")[0] == b"before"
        assert client.produce("stamped", b"again")[0] == 0

    run(scenario())
