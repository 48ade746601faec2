"""The I/O thread's half of a share consumer: membership, share sessions, records, acknowledgements.

An actor of `ClientRuntime`. Records are asked for only while the application waits for some: what
is acquired is locked for this member and would keep others waiting. To each broker one request is
under way at a time, for a share session counts them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from millstream.client.consumer.membership.group_view import GroupView
from millstream.client.consumer.membership.link import CoordinatorLink
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.share_consumer.commit_waits import CommitWaits
from millstream.client.share_consumer.config import RECORD_LIMIT
from millstream.client.share_consumer.member import ShareMember
from millstream.client.share_consumer.node_session import FetchLimits, NodeSession
from millstream.client.share_consumer.share_answers import ShareAnswers
from millstream.errors import (
    NO_ERROR,
    ClientClosed,
    MillstreamError,
    PollIntervalExceeded,
    ShareSessionNotFound,
    error_for_code,
    is_retriable,
)
from millstream.network.client.backoff import Backoff
from millstream.protocol.messages import ShareAcknowledgeResponse, ShareFetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

    from millstream.client.consumer.membership.reconciliation import TopicIdPartition
    from millstream.client.runtime import ClientRuntime
    from millstream.client.share_consumer.commit_waits import OnCommitted
    from millstream.client.share_consumer.config import ShareConsumerConfig
    from millstream.client.share_consumer.in_hand import Decided
    from millstream.client.share_consumer.share_buffer import ShareBuffer
    from millstream.protocol.message import Message

_logger = logging.getLogger(__name__)


class _WaitingPoll(NamedTuple):
    """The application waits for records."""

    until_ms: int | None
    max_records: int


class ShareCore:
    """One share consumer, on its I/O thread."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        runtime: ClientRuntime,
        buffer: ShareBuffer,
        random: Random,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._buffer = buffer
        self._random = random
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._group_id = config.names.to_wire(config.group_id)
        self._view = GroupView(runtime.metadata, exclude_internal_topics=False)
        self._link = CoordinatorLink(
            runtime,
            self._group_id,
            self._backoff,
            config.request_timeout_ms,
            random,
            self._fail,
        )
        self.member = ShareMember(
            config, self._group_id, self._link, self._heartbeats_until_ms, self._fail, random
        )
        self._answers = ShareAnswers(config, runtime.metadata, self._view, buffer)
        self._waits = CommitWaits(buffer)
        self._sessions: dict[int, NodeSession] = {}
        self._failures: dict[int, int] = {}
        self._not_before_ms: dict[int, int] = {}
        self._waiting_poll: _WaitingPoll | None = None
        self._closing: list[Callable[[int], None]] = []
        # Written by the application's thread: single values, no lock needed.
        self.is_in_poll = False
        self.last_poll_ms = 0
        self._topics: frozenset[str] = frozenset()
        self._has_timed_out = False

    @property
    def lock_timeout_ms(self) -> int | None:
        """How long a record that was given stays with us, as the brokers said; any thread."""
        return self._answers.lock_timeout_ms

    # What the application asks for.

    def subscribe(self, topics: frozenset[str], now_ms: int) -> None:
        """Read these topics as a member of the group."""
        self._topics = topics
        self.last_poll_ms = now_ms
        self._view.follow(Subscription(topics=topics))
        self.member.subscribe(topics)

    def unsubscribe(
        self, decided: Iterable[Decided], now_ms: int, on_done: Callable[[], None]
    ) -> None:
        """Acknowledge, release everything else, and leave the group."""
        self._topics = frozenset()
        self._has_timed_out = False
        self._waiting_poll = None
        self._add(decided)
        self._view.unfollow()
        self._closing.append(lambda then_ms: self.member.leave(then_ms, on_done))
        self._buffer.drop()

    def want(
        self,
        decided: Iterable[Decided],
        now_ms: int,
        until_ms: int | None,
        max_records: int,
    ) -> None:
        """The application waits for records: acknowledge those before, and get it some."""
        if self._has_timed_out:
            self._has_timed_out = False
            self.member.subscribe(self._topics)
        self._add(decided)
        self._waiting_poll = _WaitingPoll(until_ms, max_records)

    def acknowledge(self, decided: Iterable[Decided]) -> None:
        """Acknowledge soon; nobody waits for it."""
        self._add(decided)

    def want_no_more(self) -> None:
        """The application does not wait any more."""
        self._waiting_poll = None

    def commit(
        self, decided: Iterable[Decided], now_ms: int, deadline_ms: int, on_done: OnCommitted
    ) -> None:
        """Acknowledge now; told what became of it when all brokers have answered."""
        decided = list(decided)
        self._waits.begin([each.partition for each in decided], deadline_ms, on_done)
        self._add(decided)
        for each in decided:
            each.session.must_flush = True

    # The actor.

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called again at the latest."""
        times = [self.member.poll(now_ms), self._watch_polls(now_ms)]
        times += [self._waits.poll(now_ms), self._link.poll(now_ms)]
        if self._closing:
            self._finish_closing(now_ms)
            return min((each for each in times if each is not None), default=None)
        wanted = self._wanted_by_node()
        for node_id in list(self._sessions.keys() | wanted.keys()):
            self._serve(node_id, wanted.get(node_id, frozenset()), now_ms)
        times += [each for each in self._not_before_ms.values() if each > now_ms]
        return min((each for each in times if each is not None), default=None)

    def _wanted_by_node(self) -> dict[int, frozenset[TopicIdPartition]]:
        """What we are to read, by who leads it; what nobody is known to lead waits for metadata."""
        found: dict[int, set[TopicIdPartition]] = {}
        snapshot = self._runtime.metadata.snapshot
        for each in self.member.assigned:
            topic = snapshot.topic_by_id(each.topic_id)
            leader = None if topic is None else snapshot.leader(topic.name, each.partition)
            if leader is None:
                self._runtime.metadata.request_update()
            else:
                found.setdefault(leader.leader_id, set()).add(each)
        return {node_id: frozenset(partitions) for node_id, partitions in found.items()}

    def _serve(self, node_id: int, wanted: frozenset[TopicIdPartition], now_ms: int) -> None:
        session = self._sessions.get(node_id)
        if session is not None and session.is_asking:
            return
        wants_fetch = bool(wanted) and self._is_fetching(now_ms)
        if session is not None and session.has_pending:
            rides_along = wants_fetch and session.can_ride_along(wanted)
            if not rides_along:
                self._acknowledge(session, now_ms)
                return
        if not wants_fetch or now_ms < self._not_before_ms.get(node_id, 0):
            return
        if self._config.share_acquire_mode == RECORD_LIMIT and self._is_any_asking():
            return  # One after the other: together they could bring more than was asked for.
        if session is None:
            session = NodeSession(node_id, self._group_id, self.member.member_id)
            self._sessions[node_id] = session
        self._fetch(session, wanted, now_ms)

    def _is_fetching(self, now_ms: int) -> bool:
        poll = self._waiting_poll
        if poll is None or not self._buffer.is_empty:
            return False
        return poll.until_ms is None or now_ms < poll.until_ms

    def _is_any_asking(self) -> bool:
        return any(each.is_asking for each in self._sessions.values())

    def _fetch(
        self, session: NodeSession, wanted: frozenset[TopicIdPartition], now_ms: int
    ) -> None:
        assert self._waiting_poll is not None
        wait_ms = self._config.fetch_max_wait_ms
        if self._waiting_poll.until_ms is not None:
            wait_ms = max(0, min(wait_ms, self._waiting_poll.until_ms - now_ms))
        limits = FetchLimits(
            wait_ms,
            self._config.fetch_min_bytes,
            self._config.fetch_max_bytes,
            self._waiting_poll.max_records,
            self._config.share_acquire_mode == RECORD_LIMIT,
        )
        self._send(session, session.fetch_request(wanted, limits), now_ms)

    def _acknowledge(self, session: NodeSession, now_ms: int, *, is_final: bool = False) -> None:
        self._send(session, session.acknowledge_request(is_final=is_final), now_ms)

    def _send(self, session: NodeSession, request: Message, now_ms: int) -> None:
        def on_done(answer: Message | MillstreamError, then_ms: int) -> None:
            self._on_answer(session, answer, then_ms)

        self._runtime.network.send(session.node_id, request, now_ms, on_done)

    # Answers.

    def _on_answer(
        self, session: NodeSession, answer: Message | MillstreamError, now_ms: int
    ) -> None:
        if isinstance(answer, MillstreamError):
            self._lose(session, answer, now_ms)
            return
        assert isinstance(answer, ShareFetchResponse | ShareAcknowledgeResponse)
        if answer.error_code != NO_ERROR:
            error = error_for_code(answer.error_code, answer.error_message)
            self._lose(session, error, now_ms)
            return
        self._failures.pop(session.node_id, None)
        self._settle(session.answered(), self._answers.acknowledged(answer, now_ms))
        self._answers.learn_lock(answer.acquisition_lock_timeout_ms)
        if self._closing or isinstance(answer, ShareAcknowledgeResponse):
            return  # Records that come now go back to the group with the session.
        if self._answers.take_records(session, answer, now_ms):
            self._waiting_poll = None

    def _lose(self, session: NodeSession, error: MillstreamError, now_ms: int) -> None:
        """The broker has released whatever came in this session."""
        node_id = session.node_id
        self._sessions.pop(node_id, None)
        self._buffer.drop(session)
        self._settle(session.lost(), {}, error)
        failures = self._failures[node_id] = self._failures.get(node_id, 0) + 1
        self._not_before_ms[node_id] = now_ms + self._backoff.after(failures, self._random)
        if is_retriable(error):
            self._runtime.metadata.request_update()
        else:
            self._buffer.put_error(error)

    def _settle(
        self,
        sent: Mapping[TopicIdPartition, Mapping[int, int]],
        errors: Mapping[TopicIdPartition, MillstreamError],
        error: MillstreamError | None = None,
    ) -> None:
        for each, decisions in sent.items():
            partition = self._answers.partition_of(each)
            if partition is not None:
                self._waits.settle(partition, decisions, error or errors.get(each))

    def _add(self, decided: Iterable[Decided]) -> None:
        for session, partition, decisions in decided:
            which = self._answers.id_of(partition)
            if session.is_over or which is None:
                error = ShareSessionNotFound(
                    f"{partition}: the connection to the broker was lost, and it gave the records "
                    "to the group again"
                )
                self._waits.settle(partition, decisions, error)
            else:
                session.add(which, decisions)

    # Going.

    def _finish_closing(self, now_ms: int) -> None:
        """End each session with what is left to say, then leave the group."""
        for session in list(self._sessions.values()):
            if session.is_asking:
                continue
            if session.is_open:
                self._acknowledge(session, now_ms, is_final=True)
                session.is_over = True
            else:
                del self._sessions[session.node_id]
        if not self._sessions:
            closing, self._closing = self._closing, []
            for leave in closing:
                leave(now_ms)

    def _watch_polls(self, now_ms: int) -> int | None:
        """Leave the group if the application does not poll: others shall have its records."""
        if self.is_in_poll or not self.member.is_member:
            return None
        deadline_ms = self.last_poll_ms + self._config.max_poll_interval_ms
        if now_ms < deadline_ms:
            return deadline_ms
        seconds = self._config.max_poll_interval_ms / 1000
        error = PollIntervalExceeded(
            f"poll() was not called for {seconds:g} s, so this consumer has left share group "
            f"{self._config.group_id!r} and its records went back to it: raise max_poll_interval, "
            "or handle fewer records with each poll"
        )
        _logger.warning("%s", error)
        self._has_timed_out = True
        self._buffer.drop()
        self._closing.append(lambda then_ms: self.member.leave(then_ms, lambda: None))
        return None

    def _heartbeats_until_ms(self, now_ms: int) -> int:
        since_ms = now_ms if self.is_in_poll else self.last_poll_ms
        return since_ms + self._config.max_poll_interval_ms

    def _fail(self, error: MillstreamError) -> None:
        self._topics = frozenset()
        self._view.unfollow()
        if not isinstance(error, ClientClosed):  # Then there is nobody to tell.
            self._buffer.put_error(error)
