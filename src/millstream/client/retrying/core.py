"""What becomes of each record: handle it now or later, retry it, bury it, or pass it over.

Both retrying consumers ask here and do what they are told. It takes the time as an argument and
touches neither network nor disk (but the store of handled ids that it was given).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from millstream.client.groups import OffsetAndMetadata
from millstream.client.retrying import attempt as headers_of
from millstream.client.retrying.attempt import Attempt, failure_headers, history, number_in
from millstream.errors import SerializationFailed
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.client.retrying.seen import SeenStore
    from millstream.client.retrying.topics import RetryTopics
    from millstream.client.serialization.base import Deserializer
    from millstream.records.kernel import ConsumerRecord

Identify: TypeAlias = "Callable[[Attempt], str | bytes | None]"


@dataclass(frozen=True, slots=True)
class Handle:
    """Call the handler with it."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Hold:
    """Its time has not come: read its partition from here again, not before `until_ms`."""

    partition: TopicPartition
    offset: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Reroute:
    """Send it on, to its next retry or to the dead letters."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    is_dead: bool


@dataclass(frozen=True, slots=True)
class Skip:
    """It was handled before."""


Decision: TypeAlias = Handle | Hold | Reroute | Skip


@dataclass(slots=True)
class RetryCounts:
    """What a retrying consumer has done so far."""

    handled: int = 0
    retried: int = 0
    dead: int = 0
    duplicates: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to retry, when to give up, and what makes two records the same."""

    delays_ms: tuple[int, ...]
    give_up_on: tuple[type[BaseException], ...] = ()
    """Errors that no retry helps: straight to the dead letters."""
    identify: Identify | None = None
    key_deserializer: Deserializer[Any]
    value_deserializer: Deserializer[Any]


_NEVER_HELPS: Final = (SerializationFailed,)


class RetryCore:
    """Decides; remembers positions to commit and partitions that wait."""

    def __init__(
        self, topics: RetryTopics, group: str, policy: RetryPolicy, seen: SeenStore | None
    ) -> None:
        self.counts = RetryCounts()
        self._topics = topics
        self._group = group
        self._policy = policy
        self._seen = seen
        self._held: dict[TopicPartition, int] = {}
        self._finished: dict[TopicPartition, OffsetAndMetadata] = {}
        self._kept: list[tuple[TopicPartition, Reroute]] = []

    # One record.

    def admit(self, record: ConsumerRecord[Any, Any], now_ms: int) -> Decision | None:
        """What to do with a record that was polled; None: nothing, its partition is held."""
        partition = TopicPartition(record.topic, record.partition)
        if partition in self._held:
            return None
        told = history(record.headers)
        not_before_ms = number_in(told, headers_of.NOT_BEFORE, 0)
        if self._topics.place_of(record.topic).stage and not_before_ms > now_ms:
            self._held[partition] = not_before_ms
            return Hold(partition, record.offset, not_before_ms)
        try:
            attempt = self._attempt(record, told)
            return Skip() if self._is_known(attempt) else Handle(attempt)
        except Exception as error:  # Deserializers and `identify` are the user's code.
            return self.fail(record, error, now_ms)

    def succeed(self, record: ConsumerRecord[Any, Any], attempt: Attempt, now_ms: int) -> None:
        """The handler has returned."""
        self.counts.handled += 1
        record_id = self._id_of(attempt)
        if self._seen is not None and record_id is not None:
            self._seen.add(record_id, now_ms)
        self._finish(record)

    def skip(self, record: ConsumerRecord[Any, Any]) -> None:
        """It was passed over."""
        self.counts.duplicates += 1
        self._finish(record)

    def fail(self, record: ConsumerRecord[Any, Any], error: BaseException, now_ms: int) -> Reroute:
        """The handler, or what comes before it, has raised. Call `rerouted` when it is sent."""
        place = self._topics.place_of(record.topic)
        told = history(record.headers)
        is_dead = place.stage >= self._topics.stages or isinstance(
            error, (*_NEVER_HELPS, *self._policy.give_up_on)
        )
        not_before_ms = None if is_dead else now_ms + self._policy.delays_ms[place.stage]
        attempt = self._undecoded(record, told)
        return Reroute(
            self._topics.dead_letters(place.topic)
            if is_dead
            else self._topics.name(place.topic, place.stage + 1),
            record.key,
            record.value,
            failure_headers(attempt, told, self._group, error, now_ms, not_before_ms),
            is_dead,
        )

    def rerouted(self, record: ConsumerRecord[Any, Any], route: Reroute) -> None:
        """The record is on its way to another topic."""
        if route.is_dead:
            self.counts.dead += 1
        else:
            self.counts.retried += 1
        self._finish(record)

    def keep(self, record: ConsumerRecord[Any, Any], route: Reroute) -> None:
        """The record is to be sent on together with its position, in one transaction."""
        self._kept.append((TopicPartition(record.topic, record.partition), route))
        self.rerouted(record, route)

    # Positions and waiting.

    def take_finished(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions to commit since the last call."""
        finished, self._finished = self._finished, {}
        return finished

    def take_kept(self) -> list[tuple[TopicPartition, Reroute]]:
        """The records to send together with these positions, and where each was read."""
        kept, self._kept = self._kept, []
        return kept

    def restore(
        self,
        finished: Mapping[TopicPartition, OffsetAndMetadata],
        kept: Sequence[tuple[TopicPartition, Reroute]],
    ) -> None:
        """What was taken could not be committed now: it is for the next time."""
        self._finished = {**finished, **self._finished}
        self._kept = [*kept, *self._kept]

    def is_held(self, partition: TopicPartition) -> bool:
        """Whether a partition waits, and is read again from where it does."""
        return partition in self._held

    def take_due(self, now_ms: int) -> list[TopicPartition]:
        """Partitions whose time has come: read them on."""
        due = [partition for partition, until_ms in self._held.items() if until_ms <= now_ms]
        for partition in due:
            del self._held[partition]
        return due

    def next_due_ms(self) -> int | None:
        """When the first of the waiting partitions may go on."""
        return min(self._held.values(), default=None)

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """The partitions belong to another member now."""
        for partition in partitions:
            self._held.pop(partition, None)
            self._finished.pop(partition, None)
        self._kept = [each for each in self._kept if each[0] not in partitions]

    # Inside.

    def _finish(self, record: ConsumerRecord[Any, Any]) -> None:
        partition = TopicPartition(record.topic, record.partition)
        self._finished[partition] = OffsetAndMetadata(record.offset + 1)

    def _attempt(self, record: ConsumerRecord[Any, Any], told: Mapping[str, str]) -> Attempt:
        raw = self._undecoded(record, told)
        policy = self._policy
        key = policy.key_deserializer.deserialize(raw.topic, record.key, raw.headers)
        value = policy.value_deserializer.deserialize(raw.topic, record.value, raw.headers)
        return Attempt(
            raw.topic, raw.partition, raw.offset, raw.timestamp, key, value, raw.headers, raw.number
        )

    def _undecoded(self, record: ConsumerRecord[Any, Any], told: Mapping[str, str]) -> Attempt:
        place = self._topics.place_of(record.topic)
        own = headers_of.own_headers(record.headers)
        if not place.stage:
            return Attempt(
                record.topic,
                record.partition,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                own,
                1,
            )
        return Attempt(
            place.topic,
            number_in(told, headers_of.PARTITION, record.partition),
            number_in(told, headers_of.OFFSET, record.offset),
            number_in(told, headers_of.TIMESTAMP, record.timestamp),
            record.key,
            record.value,
            own,
            number_in(told, headers_of.FAILURES, place.stage) + 1,
        )

    def _id_of(self, attempt: Attempt) -> str | None:
        if self._policy.identify is None:
            return attempt.id
        found = self._policy.identify(attempt)
        return found.decode("utf-8", "surrogateescape") if isinstance(found, bytes) else found

    def _is_known(self, attempt: Attempt) -> bool:
        if self._seen is None:
            return False
        record_id = self._id_of(attempt)
        return record_id is not None and record_id in self._seen
