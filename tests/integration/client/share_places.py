"""A topic and a share group of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream import Producer, ShareConsumer, TopicPartition
from millstream.client.config import ClientConfig
from millstream.client.futures import Waiter
from millstream.client.io_thread import start_client
from millstream.client.router import ANY
from millstream.protocol.messages import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
)

if TYPE_CHECKING:
    from millstream.errors import MillstreamError
    from millstream.protocol.message import Message

GROUP_RESOURCE = 32


class Place:
    """A topic and a share group that begins at its first record."""

    def __init__(self, address: str, name: str, group: str | None = None) -> None:
        """The topic has to be there, under this name."""
        self.address = address
        self.topic = name
        self.group = group or f"group-{name}"
        self.set("share.auto.offset.reset", "earliest")

    def set(self, key: str, value: str) -> None:
        """Set something of the group."""
        config = AlterableConfig(name=key, value=value)
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=self.group, configs=[config]
        )
        done: Waiter[Message | MillstreamError] = Waiter()
        thread = start_client(ClientConfig(bootstrap_servers=(self.address,)), "setup")

        def ask(now_ms: int) -> None:
            thread.runtime.router.call(
                IncrementalAlterConfigsRequest(resources=[resource]),
                ANY,
                lambda answer, then_ms: done.set_result(answer),
                deadline_ms=now_ms + 10_000,
                now_ms=now_ms,
            )

        thread.runtime.post(ask)
        answer = done.result(20)
        thread.stop(10)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        assert [each.error_code for each in answer.responses] == [0]

    def produce(self, *values: str) -> None:
        with Producer(self.address) as producer:
            for each in values:
                producer.send(self.topic, each.encode())

    def consumer(self, **settings: Any) -> ShareConsumer[Any, Any]:
        return ShareConsumer(
            self.address,
            self.topic,
            group_id=self.group,
            value_deserializer="str",
            **settings,
        )

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)
