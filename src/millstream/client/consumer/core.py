"""`ConsumerCore`: a consumer's half on the I/O thread.

It holds the parts together (positions, fetcher, lookups, membership), is polled as one actor, and
does what the application's half (`ConsumerSession`) posts to it. What the application must hear
goes through the `FetchBuffer`. Names of topics are those of the wire.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.client.consumer.fetch_answers import FetchAnswers
from millstream.client.consumer.fetcher import Fetcher
from millstream.client.consumer.membership.events import Assigned
from millstream.client.consumer.membership.membership import Membership
from millstream.client.consumer.offset_lookup import OffsetLookup
from millstream.client.consumer.positions import Positions
from millstream.client.consumer.subscription_state import SubscriptionState
from millstream.client.consumer.topic_lookup import TopicLookup
from millstream.client.consumer.validation import EpochValidation
from millstream.client.lasting_troubles import LastingTroubles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.fetch_answers import Deserialize
    from millstream.client.consumer.fetch_buffer import FetchBuffer
    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.client.consumer.starting_point import StartingPoint
    from millstream.client.metadata import MetadataSnapshot
    from millstream.client.runtime import ClientRuntime
    from millstream.errors import MillstreamError
    from millstream.types import TopicPartition

_logger: Final = logging.getLogger(__name__)


class ConsumerCore:
    """The parts of a consumer that ask brokers. An actor of `ClientRuntime`."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ClientRuntime,
        buffer: FetchBuffer,
        random: Random,
        wall_ms: Callable[[], int],
        *,
        key_deserializer: Deserialize | None = None,
        value_deserializer: Deserialize | None = None,
    ) -> None:
        self._runtime = runtime
        self._buffer = buffer
        self._state = SubscriptionState()
        self.lookup = OffsetLookup(runtime, random, reads_committed=config.reads_committed)
        self.topics = TopicLookup(runtime)
        self._positions = Positions(
            config, self._state, buffer, self.lookup, random, wall_ms, self._refresh
        )
        answers = FetchAnswers(
            config,
            runtime.metadata,
            self._state,
            buffer,
            self._positions,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
        )
        self.fetched = answers.fetched
        self._validation = EpochValidation(runtime, self._state, self._positions, self._refresh)
        self._fetcher = Fetcher(
            config, runtime, self._state, buffer, answers, self._validation.validate
        )
        self.membership: Membership | None = None
        if config.group_id is not None:
            self.membership = Membership(config, runtime, self, random)
            self._positions.group = self.membership
        self._wanted_topics: set[str] = set()
        self._troubles = LastingTroubles()
        runtime.metadata.subscribe(self._look_for_partitions)

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called next at the latest."""
        times = [] if self.membership is None else [self.membership.poll(now_ms)]
        # In this order, what one finds the next can use in the same turn.
        times += [
            self._positions.poll(now_ms),
            self.lookup.poll(now_ms),
            self._fetcher.poll(now_ms),
            self._validation.poll(now_ms),
            # A lookup that has just failed leaves positions to be tried again.
            self._positions.due_ms(),
        ]
        return min((each for each in times if each is not None), default=None)

    def bootstrap_failure(self) -> MillstreamError | None:
        """Why nothing is known of the cluster, if that is so."""
        return self._runtime.metadata.failure()

    def close(self, now_ms: int) -> None:
        """Fetch no more."""
        self._fetcher.close(now_ms)

    def _refresh(self, partitions: Iterable[TopicPartition]) -> None:
        self._fetcher.refresh(partitions)

    # ---- what the application does ----

    def begin(self, starts: Iterable[tuple[TopicPartition, int, StartingPoint, bool]]) -> None:
        """Read partitions: each with its run, where to start and whether it is paused."""
        for partition, run, start, is_paused in starts:
            state = self._state.get(partition)
            if state is None:
                state = self._state.add(partition, is_paused=is_paused)
            self._positions.begin(state, start, run)
        self._follow_topics()

    def seek(self, partition: TopicPartition, run: int, start: StartingPoint) -> None:
        """Read a partition from somewhere else."""
        state = self._state.get(partition)
        if state is not None:
            self._positions.begin(state, start, run)

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """Read partitions no longer."""
        for partition in partitions:
            self._state.remove(partition)
            self._fetcher.refresh([partition])
        self._follow_topics()

    def set_paused(self, partitions: Iterable[TopicPartition], is_paused: bool) -> None:
        """Ask for no more of partitions, or again."""
        for partition in partitions:
            state = self._state.get(partition)
            if state is not None:
                state.is_paused = is_paused
                self._fetcher.refresh([partition])

    def retry_failed(self) -> None:
        """The application has seen an error and polls again."""
        for state in self._state:
            self._positions.retry_failed(state.partition)

    def _follow_topics(self) -> None:
        topics = self._state.topics()
        self._runtime.metadata.want(topics - self._wanted_topics)
        subscribed = frozenset() if self.membership is None else self.membership.subscribed_topics
        self._runtime.metadata.forget(self._wanted_topics - topics - subscribed)
        self._wanted_topics = topics

    def _look_for_partitions(
        self, _old: MetadataSnapshot, new: MetadataSnapshot, now_ms: int
    ) -> None:
        """Warn of partitions that topics do not have; of topics the metadata warns by itself."""
        missing: dict[object, str] = {}
        for partition in (each.partition for each in self._state):
            topic = new.topics.get(partition.topic)
            count = None if topic is None or topic.error is not None else len(topic.partitions)
            if count is not None and partition.partition >= count:
                missing[partition] = (
                    f"there is no partition {partition}: topic {partition.topic} has {count}; "
                    "waiting for it"
                )
        for trouble in self._troubles.take(missing, now_ms):
            _logger.warning(trouble)

    # ---- what the group does: an `AssignmentOwner` ----

    def on_rebalance(self, event: RebalanceEvent) -> None:
        """The assignment changes; the application hears of it when it polls."""
        if not isinstance(event, Assigned):
            for partition in event.partitions:
                state = self._state.get(partition)
                if state is not None:
                    state.is_leaving = True
            self._fetcher.refresh(event.partitions)
        self._buffer.put_event(event)

    def on_group_error(self, error: MillstreamError) -> None:
        """The membership is over."""
        self._buffer.put_error(error)
