"""What the blocking and the asyncio consumer have in common: everything that does not wait.

`Consumer` and `AsyncConsumer` derive from it; `consuming` has what share consumers have too.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from millstream.client.arguments import (
    as_number,
    as_partitions,
    as_pattern,
    as_topics,
    to_timestamp,
)
from millstream.client.consumer.config import ConsumerConfig
from millstream.client.consumer.consuming import Consuming
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.consumer.session import ConsumerSession
from millstream.client.consumer.starting_point import EARLIEST, LATEST, AtOffset, AtTime
from millstream.errors import InvalidArgument
from millstream.types import K, TopicPartition, V

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from millstream.client.consumer.session import Offsets, OnCommit
    from millstream.client.groups import ConsumerGroupMetadata
    from millstream.client.metrics import ConsumerMetrics
    from millstream.records.kernel import ConsumerRecord

T = TypeVar("T")

_TO_THE_ENDS: Final = "seek_to_beginning and seek_to_end go to the ends"


class ConsumerApi(Consuming, Generic[K, V]):
    """The part of a consumer that never waits."""

    _config_class = ConsumerConfig
    _session: ConsumerSession

    def _make_session(self, config: ConsumerConfig) -> ConsumerSession:
        return ConsumerSession(config)

    @abstractmethod
    def _take_unread(self) -> Sequence[ConsumerRecord[K, V]]:
        """What a loop was given and has not got to; the loop forgets it."""

    def _give_back(self) -> None:
        """Have what a loop has not got to read anew, by whoever reads next.

        Else a poll would pass over it, and a loop would go on with it after a seek or a pause.
        """
        first: dict[TopicPartition, int] = {}
        for record in self._take_unread():
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        if not first:
            return
        for partition in first.keys() & self._session.assignment():
            self._session.seek(partition, AtOffset(first[partition]))

    # ---- what is read ----

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: object | None = None,
    ) -> None:
        """Read topics as a member of the group, instead of those before.

        A `pattern` as text is RE2 and the broker matches it where it can; a compiled `re.Pattern`
        is matched here. The whole name has to match. `listener` is told, in `poll`, what comes and
        goes (see RebalanceListener).
        """
        with self._use():
            self._give_back()
            self._session.subscribe(self._subscription_of(topics, pattern), listener)

    def _subscription_of(
        self, topics: str | Iterable[str], pattern: str | re.Pattern[str] | None
    ) -> Subscription:
        namespace = self._session.config.names
        names = as_topics(topics)
        if (pattern is None) == (not names):
            raise InvalidArgument("subscribe to topics or to a pattern: give one of them")
        if pattern is None:
            return Subscription(topics=frozenset(map(namespace.to_wire, names)))
        if isinstance(pattern, str):
            prefix = re.escape(namespace.prefix)
            return Subscription(regex=f"{prefix}(?:{pattern})" if prefix else pattern)
        return Subscription(matches=_matcher(as_pattern(pattern), namespace.from_wire))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without sharing them; replaces those before.

        Reading begins at the group's committed offset if there is a group, else as
        `auto_offset_reset` says, unless `seek` is called.
        """
        with self._use():
            self._give_back()
            self._session.assign(partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._session.assignment()

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; of a pattern, those that match as far as known."""
        return self._session.subscribed()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no records of partitions until `resume`; they stay assigned."""
        with self._use():
            self._give_back()
            self._session.set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Give records of partitions again."""
        with self._use():
            self._session.set_paused(partitions, False)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return self._session.paused()

    # ---- where ----

    def seek(self, partition: TopicPartition, offset: int, *, leader_epoch: int = -1) -> None:
        """Read a partition from an offset on."""
        start = AtOffset(as_number(offset, "offset", _TO_THE_ENDS), leader_epoch)
        with self._use():
            self._give_back()
            self._session.seek(partition, start)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read from the first record that is still there; all assigned partitions by default."""
        with self._use():
            self._give_back()
            for partition in self._or_all(partitions):
                self._session.seek(partition, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Read only what comes from now on; all assigned partitions by default."""
        with self._use():
            self._give_back()
            for partition in self._or_all(partitions):
                self._session.seek(partition, LATEST)

    def seek_to_time(
        self, time: datetime | int, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Read from the first record that is not older: an aware datetime, or milliseconds.

        Where no record is as new, reading begins at the end.
        """
        timestamp = to_timestamp(time)
        with self._use():
            self._give_back()
            for partition in self._or_all(partitions):
                self._session.seek(partition, AtTime(timestamp))

    def _or_all(self, partitions: Iterable[TopicPartition] | None) -> Collection[TopicPartition]:
        return sorted(self.assignment()) if partitions is None else as_partitions(partitions)

    # ---- the group ----

    def commit_async(
        self, offsets: Offsets | None = None, *, on_done: OnCommit | None = None
    ) -> None:
        """Commit, and go on without waiting: once, in order with other commits.

        `on_done(offsets, error)` is called in a later call of this consumer's.
        """
        with self._use():
            self._session.commit_async(offsets, on_done)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group, for a producer's transaction."""
        found = self._session.membership().group_metadata()
        # As the user named the group: the producer puts it into its own namespace.
        return replace(found, group_id=self._session.config.names.shown(found.group_id))

    def enforce_rebalance(self) -> None:
        """Have a classic group rebalance, soon."""
        with self._use():
            self._session.enforce_rebalance()

    def metrics(self) -> ConsumerMetrics:
        """What was read so far, how fast, and what waits; from any thread, at any time."""
        return self._session.metrics()


def _matcher(
    pattern: re.Pattern[str], from_wire: Callable[[str], str | None]
) -> Callable[[str], bool]:
    def matches(wire_name: str) -> bool:
        name = from_wire(wire_name)
        return name is not None and pattern.fullmatch(name) is not None

    return matches
