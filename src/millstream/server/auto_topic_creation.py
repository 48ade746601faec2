"""Topics that come into being because somebody asked for them.

The Metadata handler names the topics it did not find. One request per topic is on its way to the
controller at a time; the asker is not kept waiting, it asks again.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.errors import TopicAlreadyExists, error_for_code
from millstream.network.log_limiter import LogLimiter
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.clock import Clock
    from millstream.protocol.message import Message
    from millstream.server.config import ServerConfig
    from millstream.server.exchange import Exchange
    from millstream.server.ports import ControllerChannel

_logger = logging.getLogger(__name__)

_BROKER_DEFAULT: Final = -1
"""The controller fills in how many partitions and replicas a topic has."""

INFLIGHT_MAX: Final = 1000
"""How many topics may be on their way at once: a client can ask for any number of names."""


class AutoTopicCreationManager:
    """Asks the controller for topics that do not exist, at most once at a time for each."""

    def __init__(self, controller: ControllerChannel, config: ServerConfig, clock: Clock) -> None:
        self._controller = controller
        self._config = config
        self._clock = clock
        self._inflight: set[str] = set()
        self._log = LogLimiter(clock, _logger)

    @property
    def is_enabled(self) -> bool:
        """Whether topics are created by being asked for."""
        return self._config.auto_create_topics_enable

    def create(self, names: Iterable[str], exchange: Exchange) -> None:
        """Let topics come into being, in the name of who asked for them."""
        room = INFLIGHT_MAX - len(self._inflight)
        wanted = [name for name in dict.fromkeys(names) if name not in self._inflight][:room]
        if not wanted:
            return
        self._inflight.update(wanted)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name, num_partitions=_BROKER_DEFAULT, replication_factor=_BROKER_DEFAULT
                )
                for name in wanted
            ],
            timeout_ms=self._config.request_timeout_ms,
        )
        asker = exchange.context(self._clock)

        def created(response: Message) -> None:
            self._inflight.difference_update(wanted)
            self._report(response)

        context = replace(asker, version=CreateTopicsRequest.RELEASED.highest)
        self._controller.submit(request, context, created)

    def _report(self, response: Message) -> None:
        assert isinstance(response, CreateTopicsResponse)
        for topic in response.topics:
            if topic.error_code == 0:
                _logger.info(
                    "topic %s was created because a client asked for it",
                    topic.name,
                    extra={"fields": {"topic": topic.name}},
                )
            elif topic.error_code != TopicAlreadyExists.code:
                # Clients ask again until it is there, for any number of names.
                error = error_for_code(topic.error_code, topic.error_message)
                self._log.warning(
                    type(error).__name__,
                    "topic %s could not be created: %s",
                    topic.name,
                    error,
                    topic=topic.name,
                )
