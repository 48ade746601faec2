"""What a retrying consumer is told: topics, delays, names, who decides what is the same record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Required, TypedDict

from millstream.client.config import settings_from_kwargs
from millstream.client.consumer.config import ConsumerConfig
from millstream.client.retrying.core import RetryCore, RetryPolicy
from millstream.client.retrying.topics import RetryTopics
from millstream.client.serialization import as_deserializer
from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.client.retrying.core import Identify
    from millstream.client.retrying.seen import SeenStore


class RetryKeywords(TypedDict, total=False):
    """`RetrySettings` but the deserializers, for type checkers of calls."""

    group_id: Required[str]
    retry_delays: tuple[float, ...]
    give_up_on: tuple[type[BaseException], ...]
    retry_name: str
    seen: SeenStore | None
    identify: Identify | None
    transactional_id: str | None
    create_topics: bool
    max_poll_records: int
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    common: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """The keyword arguments of both retrying consumers."""

    group_id: str
    retry_delays: tuple[float, ...] = (10.0, 60.0, 600.0)
    """Seconds before each retry; a topic for each. Empty: failures go to the dead letters."""
    give_up_on: tuple[type[BaseException], ...] = ()
    """Errors that no retry helps."""
    retry_name: str = ""
    """What retry topics are named by instead of the group: `<topic>.<name>.retry.1`."""
    key_deserializer: Any = None
    value_deserializer: Any = None
    seen: SeenStore | None = None
    """Where handled records are remembered, so that none is handled twice."""
    identify: Identify | None = None
    """What makes two attempts the same record: by default its topic, partition and offset."""
    transactional_id: str | None = None
    """With one, retries and offsets are written in one transaction: no retry is doubled."""
    create_topics: bool = True
    """Make the retry and dead-letter topics if they are absent."""
    max_poll_records: int = 100
    """How many records are handled between two commits, at most."""
    consumer: Mapping[str, Any] = field(default_factory=dict)
    """More settings of the consumer, ..."""
    producer: Mapping[str, Any] = field(default_factory=dict)
    """... of the producer, ..."""
    common: Mapping[str, Any] = field(default_factory=dict)
    """... and of both and the admin: namespace, security."""

    def __post_init__(self) -> None:
        if not self.group_id:
            raise InvalidArgument("group_id: a retrying consumer needs a group")
        if any(delay < 0 for delay in self.retry_delays):
            raise InvalidArgument(f"retry_delays={self.retry_delays}: seconds, 0 or more")
        if self.identify is not None and self.seen is None:
            raise InvalidArgument("identify= needs seen=: a place to remember what was handled")

    def topics(self, sources: tuple[str, ...]) -> RetryTopics:
        """The topics that are read and written."""
        return RetryTopics(sources, self.retry_name or self.group_id, len(self.retry_delays))

    def core(self, topics: RetryTopics) -> RetryCore:
        """What decides."""
        policy = RetryPolicy(
            delays_ms=tuple(round(delay * 1000) for delay in self.retry_delays),
            give_up_on=self.give_up_on,
            identify=self.identify,
            key_deserializer=as_deserializer(self.key_deserializer, is_key=True),
            value_deserializer=as_deserializer(self.value_deserializer),
        )
        return RetryCore(topics, self.group_id, policy, self.seen)

    def consumer_settings(self) -> dict[str, Any]:
        """Of the consumer: it commits when told, and begins at the beginning of retry topics.

        Unless told otherwise it reads committed records only: a handler's work cannot be undone
        when a transaction is aborted later.
        """
        fixed = {
            "group_id": self.group_id,
            "enable_auto_commit": False,
            "max_poll_records": self.max_poll_records,
        }
        usual = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        return {**usual, **self.common, **self.consumer, **fixed}

    def max_poll_interval_ms(self, bootstrap: str | Sequence[str]) -> int:
        """How long the group waits for a member to poll."""
        given = {**self.consumer_settings(), "bootstrap_servers": bootstrap}
        return settings_from_kwargs(ConsumerConfig, given).max_poll_interval_ms

    def producer_settings(self) -> dict[str, Any]:
        """Of the producer."""
        fixed = {"transactional_id": self.transactional_id} if self.transactional_id else {}
        return {**self.common, **self.producer, **fixed}
