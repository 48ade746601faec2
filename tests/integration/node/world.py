"""A node in this process, on a simulated disk and with a clock by hand: what its tests share."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from millstream.clock import ManualClock
from millstream.controller.decision import RequestContext
from millstream.node.config import node_config
from millstream.node.environment import SystemEnvironment
from millstream.node.node import Node
from millstream.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.testing.sim_filesystem import SimFileSystem
from tests.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from millstream.protocol.message import Message

TURNS = 32
"""Of the loop, in which a node does all that a moment of the clock has set off."""


class World:
    """A machine: its disk, its time, and the nodes that ran on it."""

    def __init__(self, seed: int = 1, **given: str) -> None:
        self.seed = seed
        self.clock = ManualClock()
        self.disk = SimFileSystem(Random(seed), clock=self.clock)
        self.given = {
            "log.dirs": "/data",
            "listeners": "PLAINTEXT://localhost:0",
            **{name.replace("_", "."): value for name, value in given.items()},
        }
        self.fatal: list[Exception] = []

    @asynccontextmanager
    async def node(self) -> AsyncIterator[Node]:
        """A node that is killed at the end, unless it was stopped."""
        node = Node(
            node_config(self.given),
            SystemEnvironment(clock=self.clock, filesystem=self.disk, random=Random(self.seed)),
            on_fatal=self.fatal.append,
        )
        await node.start()
        try:
            yield node
        finally:
            await node.kill()

    async def advance(self, node: Node, ms: int, step_ms: int = 500) -> None:
        """Let time pass, and everything that is due happen."""
        for _ in range(0, ms, step_ms):
            self.clock.advance(step_ms)
            await self.do_what_is_due(node)

    async def do_what_is_due(self, node: Node) -> None:
        """Everything a node does by itself is done on its loop, in a few turns of it."""
        node.timers.fire_due()
        for _ in range(TURNS):
            await asyncio.sleep(0)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 100))


async def create_topic(node: Node, name: str, partitions: int = 1, **configs: str) -> int:
    """Ask the controller; the error code."""
    answers: list[Message] = []
    assert node.broker is not None
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=number, broker_ids=[1])
                    for number in range(partitions)
                ],
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=1000,
    )
    node.broker._channel.submit(request, RequestContext(version=7), answers.append)
    await until_async(lambda: bool(answers))
    (answer,) = answers
    assert isinstance(answer, CreateTopicsResponse)
    return answer.topics[0].error_code


def topics_of(node: Node) -> set[str]:
    assert node.shared is not None
    return set(node.shared.metadata.topic_names())
