"""Incremental fetch sessions (KIP-227): tell a broker only what has changed since the last fetch.

A consumer's `Fetcher` has one for each broker it reads from, a follower's `ReplicaFetcher` one for
its leader. A session decides what goes into the next request and what an answer means for it; it
knows neither positions nor records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from millstream.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)
from millstream.protocol.messages.fetch import FetchTopic, ForgottenTopic
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.protocol.messages.fetch import FetchPartition
    from millstream.types import TopicPartition

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
SESSION_ERRORS: Final = frozenset(
    {FetchSessionIdNotFound.code, InvalidFetchSessionEpoch.code, FetchSessionTopicIdError.code}
)
"""The broker does not know the session: a full fetch begins another."""
_EPOCH_MAX: Final = (1 << 31) - 1


class Wanted(Protocol):
    """What to ask for of one partition: values that can be compared."""

    @property
    def topic_id(self) -> Uuid:
        """The topic's id; zero where it is not known."""
        ...


WantedT = TypeVar("WantedT", bound=Wanted)


class SessionRequest(NamedTuple, Generic[WantedT]):
    """The session's part of a fetch."""

    session_id: int
    epoch: int
    send: list[tuple[TopicPartition, WantedT]]
    forget: list[tuple[TopicPartition, Uuid]]

    @property
    def is_full(self) -> bool:
        """Whether it says everything, and the broker need not remember anything."""
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def topics(self, ask: Callable[[int, WantedT], FetchPartition]) -> list[FetchTopic]:
        """What is asked for, by topic; `ask` says it for one partition."""
        topics: dict[tuple[str, Uuid], FetchTopic] = {}
        for partition, wanted in self.send:
            name = (partition.topic, wanted.topic_id)
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchTopic(topic=name[0], topic_id=name[1])
            topic.partitions.append(ask(partition.partition, wanted))
        return list(topics.values())

    def forgotten(self) -> list[ForgottenTopic]:
        """What is asked for no longer, by topic."""
        topics: dict[tuple[str, Uuid], ForgottenTopic] = {}
        for partition, topic_id in self.forget:
            name = (partition.topic, topic_id)
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = ForgottenTopic(topic=name[0], topic_id=topic_id)
            topic.partitions.append(partition.partition)
        return list(topics.values())


class FetchSession(Generic[WantedT]):
    """What one broker has been told, and what it has to be told next."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[TopicPartition, WantedT] = {}
        self._told: dict[TopicPartition, WantedT] = {}
        self._changed: dict[TopicPartition, None] = {}  # In order: a run can be repeated.
        self._uses_topic_ids = False

    @property
    def wanted(self) -> Mapping[TopicPartition, WantedT]:
        """What is asked of this broker."""
        return self._wanted

    @property
    def told(self) -> Mapping[TopicPartition, WantedT]:
        """What the broker was asked for by the last request and those before it."""
        return self._told

    @property
    def is_open(self) -> bool:
        """Whether the broker remembers something of us."""
        return self._id != NO_SESSION

    def want(self, partition: TopicPartition, wanted: WantedT) -> None:
        """Ask for a partition from the next request on."""
        if self._wanted.get(partition) != wanted:
            self._wanted[partition] = wanted
            self._changed[partition] = None

    def forget(self, partition: TopicPartition) -> None:
        """Ask for it no longer."""
        if self._wanted.pop(partition, None) is not None:
            self._changed[partition] = None

    def has_topic_ids(self) -> bool:
        """Whether every topic can be asked for by its id."""
        return all(each.topic_id != Uuid.ZERO for each in self._wanted.values())

    def next_request(self, *, by_topic_id: bool) -> SessionRequest[WantedT]:
        """What to say now. Topics by id and by name do not mix in one session."""
        if self._epoch != INITIAL_EPOCH and by_topic_id != self._uses_topic_ids:
            # The id of the old session with epoch 0 closes it and opens another.
            self._epoch = INITIAL_EPOCH
        self._uses_topic_ids = by_topic_id
        if self._epoch == INITIAL_EPOCH:
            self._told = dict(self._wanted)
            self._changed.clear()
            return SessionRequest(self._id, self._epoch, list(self._wanted.items()), [])
        return self._incremental()

    def _incremental(self) -> SessionRequest[WantedT]:
        send: list[tuple[TopicPartition, WantedT]] = []
        forget: list[tuple[TopicPartition, Uuid]] = []
        for partition in self._changed:
            wanted, told = self._wanted.get(partition), self._told.get(partition)
            is_another_topic = wanted and told and wanted.topic_id != told.topic_id
            if told is not None and (wanted is None or is_another_topic):
                forget.append((partition, told.topic_id))
                del self._told[partition]
            if wanted is not None and wanted != told:
                send.append((partition, wanted))
                self._told[partition] = wanted
        self._changed.clear()
        return SessionRequest(self._id, self._epoch, send, forget)

    def closing_request(self) -> SessionRequest[WantedT] | None:
        """What to say when nothing more will be asked; None if the broker keeps nothing."""
        closing: SessionRequest[WantedT] = SessionRequest(self._id, FINAL_EPOCH, [], [])
        is_open = self.is_open
        self.reset()
        return closing if is_open else None

    def on_answer(self, session_id: int) -> None:
        """The broker answered the last request."""
        if session_id == NO_SESSION:  # It has no room for sessions: say everything each time.
            self.reset()
            return
        self._id = session_id
        self._epoch = 1 if self._epoch in (INITIAL_EPOCH, _EPOCH_MAX) else self._epoch + 1

    def reset(self) -> None:
        """The broker knows nothing of us, or nothing that could be relied on: begin again."""
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._told = {}
        self._changed = dict.fromkeys(self._wanted)
