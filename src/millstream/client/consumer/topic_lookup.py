"""How many partitions a topic has, asked of any broker.

`read_topic` asks before it reads. Asking for a topic never makes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from millstream.client.router import ANY
from millstream.errors import MillstreamError, UnknownTopicOrPartition
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import MetadataRequest, MetadataResponse
from millstream.protocol.messages.metadata import MetadataRequestTopic

if TYPE_CHECKING:
    from millstream.client.runtime import ClientRuntime
    from millstream.protocol.message import Message

OnCount: TypeAlias = Callable[[int | MillstreamError], None]


class TopicLookup:
    """Asks for topics."""

    def __init__(self, runtime: ClientRuntime) -> None:
        self._router = runtime.router

    def partition_count(
        self, topic: str, on_done: OnCount, *, deadline_ms: int, now_ms: int
    ) -> None:
        """How many partitions it has."""

        def done(answer: Message | MillstreamError, _done_ms: int) -> None:
            if isinstance(answer, MillstreamError):
                on_done(answer)
                return
            assert isinstance(answer, MetadataResponse)
            count = len(answer.topics[0].partitions) if answer.topics else 0
            unknown = UnknownTopicOrPartition(f"there is no topic {topic!r}")
            on_done(count if count else unknown)

        request = VersionedRequest(
            ApiKey.METADATA,
            lambda version: MetadataRequest(
                topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=version < 4
            ),
        )
        self._router.call(
            request, ANY, done, deadline_ms=deadline_ms, now_ms=now_ms, error_of=_topic_error
        )


def _topic_error(answer: Message) -> int:
    """Whether an error is worth another try; that a topic is not there is told at once."""
    assert isinstance(answer, MetadataResponse)
    code = answer.topics[0].error_code if answer.topics else 0
    return 0 if code == UnknownTopicOrPartition.code else code
