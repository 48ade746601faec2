"""What the blocking and the asyncio share consumer have in common: all that does not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from millstream.client.consumer.consuming import Consuming
from millstream.client.share_consumer.acknowledgements import as_acknowledge_type
from millstream.client.share_consumer.config import ShareConsumerConfig
from millstream.client.share_consumer.share_session import ShareSession
from millstream.errors import InvalidArgument
from millstream.types import K, TopicPartition, V

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.client.metrics import ShareConsumerMetrics
    from millstream.client.share_consumer.acknowledgements import AcknowledgeType, OnAcknowledged
    from millstream.client.share_consumer.share_record import ShareRecord


class ShareConsumerApi(Consuming, Generic[K, V]):
    """The part of a share consumer that never waits."""

    _config_class = ShareConsumerConfig
    _session: ShareSession

    def _make_session(self, config: ShareConsumerConfig) -> ShareSession:
        if not config.group_id:
            raise InvalidArgument("group_id: a share consumer needs the name of its group")
        return ShareSession(config)

    def metrics(self) -> ShareConsumerMetrics:
        """What was read so far, and how fast; from any thread, at any time."""
        return self._session.metrics()

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Read topics as a member of the share group, instead of those before."""
        with self._use():
            self._session.subscribe([topics] if isinstance(topics, str) else list(topics))

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._session.topics

    def acknowledge(
        self, record: ShareRecord[Any, Any], kind: AcknowledgeType | str = "accept"
    ) -> None:
        """Say what became of a record: "accept", "release", "reject" or "renew".

        The brokers hear of it with the next poll or commit. A record that was renewed stays in
        hand, with a new lock, until something else is said of it.
        """
        with self._use():
            where = TopicPartition(record.topic, record.partition)
            self._session.acknowledge(where, record.offset, as_acknowledge_type(kind))

    def acknowledge_at(
        self, topic: str, partition: int, offset: int, kind: AcknowledgeType | str
    ) -> None:
        """Say what became of a record by its place: of one that could not be deserialized.

        `RecordNotReadable` has the place. Without a word the record goes back to the group and
        comes again, until the group has delivered it as often as it may.
        """
        with self._use():
            where = TopicPartition(topic, partition)
            self._session.acknowledge(where, offset, as_acknowledge_type(kind))

    def commit_async(self) -> None:
        """Have the brokers told soon what was acknowledged; the callback hears the outcome."""
        with self._use():
            self._session.commit_async()

    def set_acknowledgement_callback(self, callback: OnAcknowledged | None) -> None:
        """Have `callback(offsets_by_partition, error)` called when brokers have answered.

        It is called in a later call of this consumer's; an error says that the records will be
        delivered again.
        """
        with self._use():
            self._session.on_acknowledged = callback

    @property
    def acquisition_lock_timeout(self) -> float | None:
        """For how many seconds a record is this consumer's alone; None until the first answer."""
        return self._session.lock_timeout_s
