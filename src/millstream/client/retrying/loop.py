"""What a retrying consumer does, written once for both APIs, as steps (see `consumer.steps`).

`RetryingConsumer` performs them blocking, `AsyncRetryingConsumer` in its event loop; consumer,
producer and handler are of the API's own kind, blocking or asyncio. Nothing here waits by itself.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.client.consumer.steps import Invoke
from millstream.client.retrying.core import Handle, Hold, Reroute, Skip
from millstream.client.retrying.retrying_api import RetryingApi
from millstream.errors import (
    BrokerUnreachable,
    CommitFailed,
    FencedMemberEpoch,
    IllegalGeneration,
    MillstreamError,
    OperationTimeout,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
    Wakeup,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.client.admin.admin import Admin
    from millstream.client.admin.async_admin import AsyncAdmin
    from millstream.client.admin.outcomes import Outcomes
    from millstream.client.admin.topics import TopicDescription
    from millstream.client.consumer.async_consumer import AsyncConsumer
    from millstream.client.consumer.consumer import Consumer
    from millstream.client.consumer.steps import Steps
    from millstream.client.groups import OffsetAndMetadata
    from millstream.client.producer.async_producer import AsyncProducer
    from millstream.client.producer.producer import Producer
    from millstream.client.retrying.attempt import Attempt
    from millstream.records.kernel import ConsumerRecord

_log = logging.getLogger(__name__)

_GROUP_WENT_ON: Final = (
    CommitFailed,
    FencedMemberEpoch,
    IllegalGeneration,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
)
"""What a commit ends with, within a transaction or not, after a rebalance that came first."""

_AWAY: Final = (BrokerUnreachable, OperationTimeout)
"""What calls end with while no broker answers: it may be back later."""

_ASK_SECONDS: Final = 5.0
"""How long brokers are asked for topics at a time; `stop` is heard in between."""


class RetryingLoop(RetryingApi):
    """From polls to commits: handle, send on, hold back, settle."""

    _consumer: Consumer | AsyncConsumer
    _producer: Producer | AsyncProducer
    _handler: Callable[[Attempt], Any]
    _is_running = False
    _trouble = ""
    """What is waited for, as it was last told."""

    def stop(self) -> None:
        """Have `run` end after the record at hand. From any thread, or a signal's handler."""
        self._is_stopping = True
        if self._is_running:
            self._consumer.wakeup()

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Others have the partitions already."""
        self._core.forget(partitions)

    def _create_topics(self, admin: Admin | AsyncAdmin, idle_timeout: float | None) -> Steps[None]:
        """Make the retry and dead-letter topics once the topics they are for are there.

        Until then, and while no broker can be reached, it waits as a consumer does, which has
        brokers create the topic if they do that.
        """
        self._consumer.subscribe(self._topics.sources)
        quiet_since_ms = self._clock.monotonic_ms()
        while not self._is_stopping:
            try:
                describe = partial(admin.describe_topics, timeout=_ASK_SECONDS)
                described = yield Invoke(describe, (self._topics.sources,))
                wanted = self._wanted_topics(_all_described(described))
                self._check_created((yield Invoke(admin.create_topics, (wanted,))))
            except (UnknownTopicOrPartition, *_AWAY) as error:
                if self._is_idle(quiet_since_ms, idle_timeout):
                    raise
                self._note_trouble(error)
            else:
                return
            # What comes is for later, when its retries have a place to go.
            self._leave((yield from self._poll()))

    def _work(self, admin: Admin | AsyncAdmin | None, idle_timeout: float | None) -> Steps[None]:
        """Handle records until `stop`, or until nothing came and nothing waits for so long."""
        self._is_running = True
        try:
            if admin is not None:
                yield from self._create_topics(admin, idle_timeout)
            self._consumer.subscribe(self._topics.consumed, listener=self)
            yield from self._loop(idle_timeout)
        finally:
            self._is_running = False
            yield from self._settle()

    def _loop(self, idle_timeout: float | None) -> Steps[None]:
        quiet_since_ms = self._clock.monotonic_ms()
        while not self._is_stopping:
            records = yield from self._poll()
            yield from self._handle_all(records)
            yield from self._settle()
            if records or self._is_joining():
                quiet_since_ms = self._clock.monotonic_ms()
            elif self._is_idle(quiet_since_ms, idle_timeout):
                break

    def _is_joining(self) -> bool:
        """Whether its group has not taken it in yet, and brokers answer: then records may come."""
        return not self._trouble and self._consumer.group_metadata().generation_id <= 0

    def _poll(self) -> Steps[list[ConsumerRecord[Any, Any]]]:
        due = set(self._core.take_due(self._clock.wall_ms())) & self._consumer.assignment()
        if due:
            self._consumer.resume(due)
        try:
            records: list[ConsumerRecord[Any, Any]]
            records = yield Invoke(self._consumer.poll, (self._poll_seconds(),))
        except Wakeup:
            return []
        except _AWAY as error:
            self._note_trouble(error)
            return []
        self._trouble = ""
        return records

    def _note_trouble(self, error: MillstreamError) -> None:
        """Say once what is waited for; again when it is something else."""
        trouble = f"{type(error).__name__}: {error}"
        if trouble != self._trouble:
            self._trouble = trouble
            _log.warning("%s: waiting, for %s", ", ".join(self._topics.sources), trouble)

    def _handle_all(self, records: Sequence[ConsumerRecord[Any, Any]]) -> Steps[None]:
        """Handle records while there is time before the next poll; the rest is read again."""
        started_ms = self._clock.monotonic_ms()
        self._pace.polled(started_ms)
        for index, record in enumerate(records):
            if self._is_stopping:
                break
            if index and self._pace.must_poll(started_ms):
                self._leave(records[index:])
                break
            yield from self._handle(record)
            ended_ms = self._clock.monotonic_ms()
            self._pace.handled(record, ended_ms - started_ms)
            started_ms = ended_ms

    def _leave(self, records: Sequence[ConsumerRecord[Any, Any]]) -> None:
        """Have records given by a later poll again."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for partition in first.keys() & self._consumer.assignment():
            if not self._core.is_held(partition):
                self._consumer.seek(partition, first[partition])

    def _handle(self, record: ConsumerRecord[Any, Any]) -> Steps[None]:
        decision = self._core.admit(record, self._clock.wall_ms())
        match decision:
            case Handle(attempt):
                yield from self._attempt(record, attempt)
            case Reroute():
                yield from self._reroute(record, decision)
            case Hold(partition, offset, _):
                self._consumer.pause([partition])
                self._consumer.seek(partition, offset)
            case Skip():
                self._core.skip(record)
            case None:
                pass  # Its partition waits, and is read again from there.

    def _attempt(self, record: ConsumerRecord[Any, Any], attempt: Attempt) -> Steps[None]:
        try:
            yield Invoke(self._handler, (attempt,))
        except Exception as error:
            _log.warning("attempt %d of %s failed: %r", attempt.number, attempt.id, error)
            route = self._core.fail(record, error, self._clock.wall_ms())
            yield from self._reroute(record, route)
        else:
            self._core.succeed(record, attempt, self._clock.wall_ms())

    def _reroute(self, record: ConsumerRecord[Any, Any], route: Reroute) -> Steps[None]:
        if self._settings.transactional_id is not None:
            # No transaction is open while a handler works: it would end before a slow one does.
            self._core.keep(record, route)
            return
        yield from self._send(route)
        self._core.rerouted(record, route)

    def _send(self, route: Reroute) -> Steps[None]:
        send = partial(self._producer.send, key=route.key, headers=route.headers)
        while True:
            try:
                yield Invoke(send, (route.topic, route.value))
            except _AWAY as error:
                if self._is_stopping:
                    raise
                self._note_trouble(error)
            else:
                return

    def _settle(self) -> Steps[None]:
        """Make what was done last: first the records that were sent on, then the offsets.

        If the group has gone on meanwhile, it is tried again after the next poll with what this
        member still has then; the rest is handled again, by others or here.
        """
        finished, kept = self._core.take_finished(), self._core.take_kept()
        if not finished:
            return
        try:
            if kept:
                yield from self._store_together(finished, kept)
            else:
                yield Invoke(self._producer.flush, ())
                yield Invoke(self._consumer.commit, (finished,))
        except _GROUP_WENT_ON as error:
            explanation = self._pace.explanation()
            if explanation is not None:
                raise explanation from error
            _log.warning("not committed now, as the group has gone on meanwhile: %s", error)
            self._core.restore(finished, kept)
        except _AWAY as error:
            # A transaction may have been committed all the same: only its next owner can tell.
            if kept or self._is_stopping:
                raise
            self._note_trouble(error)
            self._core.restore(finished, kept)

    def _store_together(
        self,
        finished: Mapping[TopicPartition, OffsetAndMetadata],
        kept: Sequence[tuple[TopicPartition, Reroute]],
    ) -> Steps[None]:
        """Retries and offsets in one transaction."""
        yield Invoke(self._producer.begin_transaction, ())
        try:
            for _, route in kept:
                yield from self._send(route)
            group = self._consumer.group_metadata()
            yield Invoke(self._producer.send_offsets_to_transaction, (finished, group))
            yield Invoke(self._producer.commit_transaction, ())
        except BaseException:
            with suppress(MillstreamError):
                yield Invoke(self._producer.abort_transaction, ())
            raise

    def _give_up(self, partitions: Sequence[TopicPartition]) -> Steps[None]:
        """Commit what was done before others go on with the partitions."""
        yield from self._settle()
        self._core.forget(partitions)


def _all_described(
    described: Outcomes[str, TopicDescription],
) -> Mapping[str, TopicDescription]:
    """All descriptions, or an error that names a topic that has none."""
    for topic, error in described.errors.items():
        raise type(error)(f"topic {topic}: {error}")
    return described.results
