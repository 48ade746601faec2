"""Every class of client: how to make one, use it and close it, the same way for all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    Producer,
    ShareConsumer,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Kind(NamedTuple):
    """A class of client; `make` and `use` get an address or a client, and a topic."""

    make: Callable[[str, str], Any]
    use: Callable[[Any, str], object]

    def close(self, client: Any) -> None:
        """Close, blocking or asyncio."""
        _settle(client.close())

    def use_once(self, client: Any, topic: str) -> None:
        """One call that goes to a broker and back."""
        _settle(self.use(client, topic))


def _settle(outcome: object) -> None:
    if asyncio.iscoroutine(outcome):
        asyncio.run(_bounded(outcome))


async def _bounded(outcome: Awaitable[object]) -> None:
    await asyncio.wait_for(outcome, 30)


async def _send_async(producer: AsyncProducer, topic: str) -> None:
    await (await producer.send(topic, b"v"))


def _assigned(consumer: Any, topic: str) -> Any:
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


KINDS = {
    "Producer": Kind(
        lambda address, _topic: Producer(address),
        lambda client, topic: client.send(topic, b"v").result(20),
    ),
    "AsyncProducer": Kind(lambda address, _topic: AsyncProducer(address), _send_async),
    "Consumer": Kind(
        lambda address, topic: Consumer(address, topic, group_id=f"g-{topic}"),
        lambda client, topic: client.poll(0.3),
    ),
    "AsyncConsumer": Kind(
        lambda address, topic: _assigned(AsyncConsumer(address), topic),
        lambda client, topic: client.position(TopicPartition(topic, 0)),
    ),
    "ShareConsumer": Kind(
        lambda address, topic: ShareConsumer(address, topic, group_id=f"s-{topic}"),
        lambda client, topic: client.poll(0.3),
    ),
    "AsyncShareConsumer": Kind(
        lambda address, topic: AsyncShareConsumer(address, topic, group_id=f"s-{topic}"),
        lambda client, topic: client.poll(0.3),
    ),
    "Admin": Kind(
        lambda address, _topic: Admin(address), lambda client, topic: client.list_topics()
    ),
    "AsyncAdmin": Kind(
        lambda address, _topic: AsyncAdmin(address), lambda client, topic: client.list_topics()
    ),
}
