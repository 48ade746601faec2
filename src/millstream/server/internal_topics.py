"""The topics that coordinators keep their state in: made when somebody first needs one.

FindCoordinator asks here. One request per topic is on its way to the controller at a time; who
asks meanwhile waits too, until the topic is known here, so that a first client need not ask again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.controller.decision import RequestContext
from millstream.errors import (
    CoordinatorNotAvailable,
    TopicAlreadyExists,
    error_for_code,
)
from millstream.network.log_limiter import LogLimiter
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.clock import Clock
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.message import Message
    from millstream.server.ports import ControllerChannel

_logger = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 30_000
MIN_ISR: Final = "min.insync.replicas"


class InternalTopic(NamedTuple):
    """How a topic of the brokers' own is made."""

    name: str
    partition_count: int
    replication_factor: int
    is_factor_given: bool
    """Whether the user asked for just this many replicas; else as many as there are brokers do."""
    config: Mapping[str, str]
    """Its settings; no more replicas need to be in sync than it has."""


class InternalTopics:
    """Makes them."""

    def __init__(
        self,
        topics: Mapping[str, InternalTopic],
        controller: ControllerChannel,
        metadata: KRaftMetadataCache,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._controller = controller
        self._metadata = metadata
        self._clock = clock
        self._log = LogLimiter(clock, _logger)
        self._waiting: dict[str, list[Callable[[ApiError | None], None]]] = {}

    def partition_count(self, name: str) -> int | None:
        """How many partitions a topic has; None if it does not exist."""
        return self._metadata.partition_count(name)

    def ensure(self, name: str, done: Callable[[ApiError | None], None]) -> None:
        """Call `done` when a topic exists, or with why it cannot be made."""
        if self._metadata.topic(name) is not None:
            done(None)
            return
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append(done)
            return
        self._waiting[name] = [done]
        context = RequestContext(
            now_ms=self._clock.monotonic_ms(),
            wall_ms=self._clock.wall_ms(),
            version=CreateTopicsRequest.RELEASED.highest,
        )
        request = self._request(self._topics[name])
        self._controller.submit(request, context, lambda response: self._created(name, response))

    def _request(self, topic: InternalTopic) -> CreateTopicsRequest:
        replicas, configs = topic.replication_factor, dict(topic.config)
        if not topic.is_factor_given:
            replicas = max(1, min(replicas, len(self._metadata.alive_broker_ids())))
        # A topic that has fewer replicas than it needs in sync could never be written to.
        if MIN_ISR in configs:
            configs[MIN_ISR] = str(min(int(configs[MIN_ISR]), replicas))
        return CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partition_count,
                    replication_factor=replicas,
                    configs=[
                        CreatableTopicConfig(name=name, value=value)
                        for name, value in configs.items()
                    ],
                )
            ],
            timeout_ms=_TIMEOUT_MS,
        )

    def _created(self, name: str, response: Message) -> None:
        assert isinstance(response, CreateTopicsResponse)
        error: ApiError | None = None
        (topic,) = response.topics
        if topic.error_code not in (0, TopicAlreadyExists.code):
            reason = error_for_code(topic.error_code, topic.error_message)
            self._log.warning(name, "topic %s could not be created: %s", name, reason, topic=name)
            error = CoordinatorNotAvailable(f"{name} could not be created: {reason}")
        if error is not None or self._metadata.topic(name) is not None:
            self._answer(name, error)

    def note_image(self) -> None:
        """The metadata has changed here: what was waited for may exist."""
        for name in list(self._waiting):
            if self._metadata.topic(name) is not None:
                self._answer(name, None)

    def _answer(self, name: str, error: ApiError | None) -> None:
        for done in self._waiting.pop(name, ()):
            done(error)
