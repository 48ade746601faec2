"""Fetches ahead of the application: one request at a time to each broker, in fetch sessions.

An actor of the client's runtime. It asks for every partition whose position is known and valid,
from its leader or from a replica nearby (KIP-392), as long as the `FetchBuffer` has room, and hands
each answer to `FetchAnswers`. It never decodes a record and never waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.network.client.fetch_session import SESSION_ERRORS, FetchSession
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import FetchRequest, FetchResponse
from millstream.protocol.messages.fetch import FetchPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.fetch_answers import FetchAnswers
    from millstream.client.consumer.fetch_buffer import FetchBuffer
    from millstream.client.consumer.subscription_state import PartitionState, SubscriptionState
    from millstream.client.metadata import MetadataSnapshot
    from millstream.client.runtime import ClientRuntime
    from millstream.errors import MillstreamError
    from millstream.network.client.fetch_session import SessionRequest
    from millstream.protocol.message import Message
    from millstream.protocol.messages.fetch import FetchTopic
    from millstream.types import TopicPartition, Uuid

SESSIONS_SINCE: Final = 7
"""The first version of Fetch with sessions."""
EPOCHS_SINCE: Final = 12
"""The first version in which the broker compares the last fetched epoch with its log."""
TOPIC_IDS_SINCE: Final = 13
LEADERS_ONLY_MS: Final = 10_000
"""How long leaders are asked without naming a rack after the replica that they named could not be
reached: they would name it again until they notice its death, and send no records."""
_ANSWER_BYTES_MIN: Final = 64 * 1024


class Wanted(NamedTuple):
    """What to ask for of one partition."""

    run: int
    """Which run of reading asks: an answer counts only while it is still the same."""
    topic_id: Uuid
    offset: int
    leader_epoch: int
    last_epoch: int
    bytes_max: int


class _Target:
    """A broker that is fetched from."""

    __slots__ = ("compares_epochs", "is_asked", "session")

    def __init__(self) -> None:
        self.session: FetchSession[Wanted] = FetchSession()
        self.is_asked = False
        self.compares_epochs = False
        """Whether the last fetch left it to the broker to compare epochs with its log."""


class Fetcher:
    """Keeps one fetch under way to each broker that has something we want."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ClientRuntime,
        state: SubscriptionState,
        buffer: FetchBuffer,
        answers: FetchAnswers,
        validate: Callable[[PartitionState], None],
    ) -> None:
        self._config = config
        self._metadata = runtime.metadata
        self._network = runtime.network
        self._state = state
        self._buffer = buffer
        self._answers = answers
        self._validate = validate
        self._targets: dict[int, _Target] = {}
        self._node_of: dict[TopicPartition, int] = {}
        self._stale: dict[TopicPartition, None] = {}  # In order: a run can be repeated.
        self._later: dict[TopicPartition, int] = {}
        self._later_ms = 0
        self._leaders_only_until_ms = 0
        self._is_closed = False
        runtime.metadata.subscribe(self._on_metadata)

    def refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Look at partitions again: something about them has changed."""
        self._stale.update(dict.fromkeys(partitions))

    def poll(self, now_ms: int) -> int | None:
        """Fetch from every broker that is free; when to look again."""
        if self._is_closed:
            return None
        self._wake_up_later(now_ms)
        for partition in self._stale:
            self._place(partition, now_ms)
        if self._stale:
            self._stale.clear()
            self._later_ms = min(self._later.values(), default=0)
        due_ms = self._fetch(now_ms)
        if not self._later:
            return due_ms
        return self._later_ms if due_ms is None else min(due_ms, self._later_ms)

    def close(self, now_ms: int) -> None:
        """Fetch no more; tell the brokers to forget their sessions, without waiting for it."""
        self._is_closed = True
        for node_id, target in self._targets.items():
            closing = target.session.closing_request()
            if closing is not None and self._network.is_ready(node_id, now_ms):
                request = self._request(closing, by_topic_id=False, bytes_max=0, wait_ms=0)
                self._network.send(node_id, request, now_ms, lambda _answer, _now_ms: None)

    # ---- which partition from which broker ----

    def _on_metadata(self, old: MetadataSnapshot, new: MetadataSnapshot, now_ms: int) -> None:
        self.refresh(
            each.partition
            for each in self._state
            if old.partition(*each.partition) != new.partition(*each.partition)
            or each.partition not in self._node_of
        )

    def _wake_up_later(self, now_ms: int) -> None:
        if not self._later or now_ms < self._later_ms:
            return
        due = [each for each, when_ms in self._later.items() if when_ms <= now_ms]
        for partition in due:
            del self._later[partition]
            self._stale[partition] = None

    def _place(self, partition: TopicPartition, now_ms: int) -> None:
        """Put a partition into the session of the broker it is read from, out of any other."""
        state = self._state.get(partition)
        if state is not None and self._reads_on(state, now_ms):
            return
        node_id = None if state is None else self._node_for(state, now_ms)
        before = self._node_of.pop(partition, None)
        if before is not None and before != node_id:
            self._targets[before].session.forget(partition)
        if state is None or node_id is None:
            return
        self._node_of[partition] = node_id
        target = self._targets.setdefault(node_id, _Target())
        topic = self._metadata.snapshot.topics[partition.topic]
        leader = topic.partitions[partition.partition]
        wanted = Wanted(
            state.run,
            topic.topic_id,
            state.offset,
            leader.leader_epoch,
            state.last_epoch,
            self._config.max_partition_fetch_bytes,
        )
        target.session.want(partition, wanted)

    def _reads_on(self, state: PartitionState, now_ms: int) -> bool:
        """The usual case, made short: the same leader is asked for what comes next."""
        node_id = self._node_of.get(state.partition)
        if node_id is None or not state.is_fetchable or state.preferred_replica >= 0:
            return False
        target = self._targets[node_id]
        before = target.session.wanted.get(state.partition)
        leader = self._metadata.snapshot.leader(*state.partition)
        if (
            before is None
            or leader is None
            or leader.leader_id != node_id
            or leader.leader_epoch != before.leader_epoch
            or before.topic_id != self._metadata.snapshot.topics[state.partition.topic].topic_id
            or state.not_before_ms > now_ms
            or not target.compares_epochs
        ):
            return False
        wanted = before._replace(run=state.run, offset=state.offset, last_epoch=state.last_epoch)
        target.session.want(state.partition, wanted)
        return True

    def _node_for(self, state: PartitionState, now_ms: int) -> int | None:
        if not state.is_fetchable:
            return None
        if state.not_before_ms > now_ms:
            self._later[state.partition] = state.not_before_ms
            return None
        leader = self._metadata.snapshot.leader(*state.partition)
        if leader is None:
            self._metadata.request_update()
            return None
        if self._must_validate(state, leader.leader_id, leader.leader_epoch):
            self._validate(state)
            return None
        if state.preferred_replica >= 0:
            is_there = state.preferred_replica in self._metadata.snapshot.brokers
            if is_there and state.preferred_until_ms > now_ms:
                self._later[state.partition] = state.preferred_until_ms
                return state.preferred_replica
            state.preferred_replica = -1
        return leader.leader_id

    def _must_validate(self, state: PartitionState, leader_id: int, leader_epoch: int) -> bool:
        """Whether to ask if the log still has what was read; newer brokers do that by themselves
        at each fetch."""
        if leader_epoch < 0 or state.last_epoch < 0 or state.validated_epoch == leader_epoch:
            return False
        version = self._network.version_of(leader_id, ApiKey.FETCH)
        return version is not None and version < EPOCHS_SINCE

    # ---- requests ----

    def _fetch(self, now_ms: int) -> int | None:
        """Ask every broker that can be asked; when one that cannot is worth another try."""
        free = [
            (node_id, target)
            for node_id, target in self._targets.items()
            if target.session.wanted and not target.is_asked
        ]
        if not free or self._buffer.is_full():
            return None
        due_ms: int | None = None
        for node_id, target in free:
            if self._network.is_ready(node_id, now_ms):
                self._ask(node_id, target, now_ms)
                continue
            delay_ms = self._network.connection_delay_ms(node_id, now_ms)
            if self._is_lost_follower(node_id, target, now_ms):
                self._on_failure(node_id, target, now_ms)
                due_ms = now_ms
            elif not self._network.knows(node_id):
                self._on_failure(node_id, target, now_ms)
            elif delay_ms:
                due_ms = min(due_ms or now_ms + delay_ms, now_ms + delay_ms)
        return due_ms

    def _is_lost_follower(self, node_id: int, target: _Target, now_ms: int) -> bool:
        """Whether a broker cannot be connected to that others can stand in for at once."""
        return self._network.is_avoided(node_id, now_ms) and any(
            state.preferred_replica == node_id
            for each in target.session.wanted
            if (state := self._state.get(each)) is not None
        )

    def _ask(self, node_id: int, target: _Target, now_ms: int) -> None:
        version = self._network.version_of(node_id, ApiKey.FETCH)
        if version is None:
            return
        by_topic_id = version >= TOPIC_IDS_SINCE and target.session.has_topic_ids()
        if version < SESSIONS_SINCE:
            target.session.reset()
        said = target.session.next_request(by_topic_id=by_topic_id)
        share = self._config.prefetch_bytes // max(1, len(self._targets))
        bytes_max = min(self._config.fetch_max_bytes, max(share, _ANSWER_BYTES_MIN))
        request = self._request(
            said,
            by_topic_id=by_topic_id,
            bytes_max=bytes_max,
            wait_ms=self._config.fetch_max_wait_ms,
            has_epochs=version >= EPOCHS_SINCE,
            rack=self._config.client_rack if now_ms >= self._leaders_only_until_ms else "",
        )
        target.is_asked = True
        target.compares_epochs = version >= EPOCHS_SINCE

        def on_done(answer: Message | MillstreamError, done_ms: int) -> None:
            target.is_asked = False
            if isinstance(answer, FetchResponse):
                self._on_answer(node_id, target, answer, done_ms)
            else:
                self._on_failure(node_id, target, done_ms)

        highest = None if by_topic_id else TOPIC_IDS_SINCE - 1
        source = VersionedRequest(ApiKey.FETCH, lambda _version: request, highest)
        self._network.send(node_id, source, now_ms, on_done)

    def _request(
        self,
        said: SessionRequest[Wanted],
        *,
        by_topic_id: bool,
        bytes_max: int,
        wait_ms: int,
        has_epochs: bool = False,
        rack: str = "",
    ) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=bytes_max,
            isolation_level=int(self._config.reads_committed),
            session_id=said.session_id,
            session_epoch=said.epoch,
            topics=_topics(said, has_epochs=has_epochs),
            forgotten_topics_data=said.forgotten(),
            rack_id=rack,
        )

    # ---- answers ----

    def _on_answer(self, node_id: int, target: _Target, answer: FetchResponse, now_ms: int) -> None:
        if self._is_closed:
            return
        if answer.error_code:
            target.session.reset()
            if answer.error_code not in SESSION_ERRORS:
                self._metadata.request_update()
                self._delay(target, now_ms)
            return
        self.refresh(self._answers.take(node_id, answer, target.session.told, now_ms))
        target.session.on_answer(answer.session_id)

    def _delay(self, target: _Target, now_ms: int) -> None:
        for partition in target.session.wanted:
            state = self._state.get(partition)
            if state is not None:
                state.not_before_ms = now_ms + self._config.retry_backoff_ms
            self._stale[partition] = None

    def _on_failure(self, node_id: int, target: _Target, now_ms: int) -> None:
        """The broker is gone: begin a new session with it, and see who has the partitions now."""
        target.session.reset()
        target.compares_epochs = False
        self._metadata.request_update()
        for partition in target.session.wanted:
            state = self._state.get(partition)
            if state is not None and state.preferred_replica == node_id:
                state.preferred_replica = -1
                self._leaders_only_until_ms = now_ms + LEADERS_ONLY_MS
            self._stale[partition] = None


def _topics(said: SessionRequest[Wanted], *, has_epochs: bool) -> list[FetchTopic]:
    return said.topics(
        lambda index, wanted: FetchPartition(
            partition=index,
            current_leader_epoch=wanted.leader_epoch,
            fetch_offset=wanted.offset,
            last_fetched_epoch=wanted.last_epoch if has_epochs else -1,
            partition_max_bytes=wanted.bytes_max,
        )
    )
