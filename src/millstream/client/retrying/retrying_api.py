"""What both retrying consumers have: settings, the core, and answers that need no waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.client.admin.topics import NewTopic
from millstream.client.config import shown
from millstream.client.retrying.pace import Pace
from millstream.client.retrying.settings import RetrySettings
from millstream.clock import SystemClock
from millstream.errors import TopicAlreadyExists

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.client.admin.outcomes import Outcomes
    from millstream.client.admin.topics import CreatedTopic, TopicDescription
    from millstream.client.retrying.core import RetryCounts

_POLL_SECONDS_MAX: Final = 1.0


class RetryingApi:
    """Settings and core of a retrying consumer."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        topics: str | Sequence[str],
        **settings: Any,
    ) -> None:
        self._bootstrap = bootstrap
        self._settings = RetrySettings(**settings)
        sources = (topics,) if isinstance(topics, str) else tuple(topics)
        self._topics = self._settings.topics(sources)
        self._core = self._settings.core(self._topics)
        self._clock = SystemClock()
        self._is_stopping = False
        self._pace = Pace(self._settings.max_poll_interval_ms(bootstrap))

    def __repr__(self) -> str:
        return shown(self, self._bootstrap, topics=self._topics.sources)

    @property
    def counts(self) -> RetryCounts:
        """What was handled, retried, buried and passed over so far."""
        return self._core.counts

    def _poll_seconds(self) -> float:
        """How long to wait for records: not beyond the time of the next retry."""
        next_ms = self._core.next_due_ms()
        if next_ms is None:
            return _POLL_SECONDS_MAX
        return max(0.0, min(_POLL_SECONDS_MAX, (next_ms - self._clock.wall_ms()) / 1000))

    def _is_idle(self, quiet_since_ms: int, idle_timeout: float | None) -> bool:
        if idle_timeout is None or self._core.next_due_ms() is not None:
            return False
        return self._clock.monotonic_ms() - quiet_since_ms >= idle_timeout * 1000

    def _wanted_topics(self, described: Mapping[str, TopicDescription]) -> list[NewTopic]:
        """Retry and dead-letter topics, as wide and as often kept as the topics they are for."""
        return [
            NewTopic(
                name,
                partitions=len(described[topic].partitions),
                replication_factor=len(described[topic].partitions[0].replicas),
            )
            for topic in self._topics.sources
            for name in self._topics.made_for(topic)
        ]

    @staticmethod
    def _check_created(created: Outcomes[str, CreatedTopic]) -> None:
        for error in created.errors.values():
            if not isinstance(error, TopicAlreadyExists):
                raise error
