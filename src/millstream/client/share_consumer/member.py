"""A member of a share group: it joins, stays by heartbeats, and is told which partitions to read.

A state machine that `ShareCore` drives. Partitions are shared, so nothing has to be revoked
before anything is taken: the assignment that came last is the one that holds.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.client.consumer.membership.heartbeat import PeriodicHeartbeat
from millstream.client.consumer.membership.reconciliation import TopicIdPartition
from millstream.errors import (
    NO_ERROR,
    ApiError,
    BrokerUnreachable,
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    MillstreamError,
    NotCoordinator,
    UnknownMemberId,
    error_for_code,
)
from millstream.network.client.backoff import Backoff
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.client.consumer.membership.machine import Link
    from millstream.client.share_consumer.config import ShareConsumerConfig
    from millstream.protocol.message import Message

_logger = logging.getLogger(__name__)

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
_DEFAULT_INTERVAL_MS: Final = 5_000
_MOVED: Final = frozenset({CoordinatorNotAvailable.code, NotCoordinator.code})
_PUT_OUT: Final = frozenset({UnknownMemberId.code, FencedMemberEpoch.code})


class ShareMember:
    """One consumer in a share group."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        group_id: str,
        link: Link,
        until_ms: Callable[[int], int],
        on_failure: Callable[[MillstreamError], None],
        random: Random,
    ) -> None:
        self._config = config
        self._group_id = group_id
        self._link = link
        self._on_failure = on_failure
        self._random = random
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._heartbeats = PeriodicHeartbeat(link, until_ms, self._on_heartbeat)
        self._topics: frozenset[str] = frozenset()
        self._is_active = False
        self._epoch = JOINING_EPOCH
        self._interval_ms = _DEFAULT_INTERVAL_MS
        self._has_news = False
        self._asking = 0
        self._attempt = 0
        self._failures = 0
        self._retry_ms = 0
        self.member_id = str(Uuid.random(random))
        """Ours for good: share sessions are opened under it too."""
        self.assigned: frozenset[TopicIdPartition] = frozenset()
        """What this member is to read."""

    @property
    def is_member(self) -> bool:
        """Whether the group knows us, as far as we know."""
        return self._is_active and self._epoch > JOINING_EPOCH

    def subscribe(self, topics: frozenset[str]) -> None:
        """Join, or want something else."""
        self._topics = topics
        self._is_active = True
        self._has_news = True

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called again at the latest."""
        if not self._is_active or self._asking:
            return None
        is_steady = self._heartbeats.is_running and not self._heartbeats.needs_renewal(now_ms)
        if is_steady and not self._has_news:
            return None
        if now_ms < self._retry_ms:
            return self._retry_ms
        if not self._link.is_ready(now_ms):
            return self._link.due_ms(now_ms)
        self._say_everything(now_ms)
        return None

    def leave(self, now_ms: int, on_done: Callable[[], None]) -> None:
        """Go; `subscribe` comes back."""
        was_member = self.is_member
        self._stop()
        self._is_active = False
        if not was_member:
            on_done()
            return
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=LEAVING_EPOCH
        )
        self._link.send_leave(request, now_ms, on_done)

    def _stop(self) -> None:
        self._heartbeats.stop()
        self._attempt += 1
        self._asking = 0
        self._epoch = JOINING_EPOCH
        self.assigned = frozenset()

    def _say_everything(self, now_ms: int) -> None:
        self._heartbeats.stop()
        if self._epoch > JOINING_EPOCH:
            # Also while the answer is on its way, and this process may not run when it comes.
            self._heartbeats.start(self._steady_request(), self._interval_ms, now_ms)
        self._has_news = False
        self._attempt += 1
        self._asking = attempt = self._attempt
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=self._epoch,
            rack_id=self._config.client_rack or None,
            subscribed_topic_names=sorted(self._topics),
        )

        def on_done(answer: Message | MillstreamError, then_ms: int) -> None:
            if attempt == self._asking:
                self._asking = 0
                self._hear(answer, then_ms)

        self._link.send(request, now_ms, on_done)

    def _steady_request(self) -> Message:
        return ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=self._epoch
        )

    def _on_heartbeat(self, answer: Message | MillstreamError, now_ms: int) -> None:
        if self._is_active:
            self._hear(answer, now_ms)

    def _hear(self, answer: Message | MillstreamError, now_ms: int) -> None:
        if isinstance(answer, ShareGroupHeartbeatResponse):
            if answer.error_code == NO_ERROR:
                self._take(answer, now_ms)
            else:
                error = error_for_code(answer.error_code, answer.error_message)
                self._take_error(error, now_ms)
        elif isinstance(answer, BrokerUnreachable):
            self._link.lost(now_ms)
            self._try_again_later(now_ms)
        else:
            assert isinstance(answer, MillstreamError)
            self._fail(answer)

    def _take(self, answer: ShareGroupHeartbeatResponse, now_ms: int) -> None:
        self._link.worked()
        self._failures = 0
        has_moved = answer.member_epoch != self._epoch
        self._epoch = answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms or self._interval_ms
        if answer.assignment is not None:
            self.assigned = frozenset(
                TopicIdPartition(topic.topic_id, index)
                for topic in answer.assignment.topic_partitions
                for index in topic.partitions
            )
        if has_moved and self._heartbeats.may_have_sent(now_ms):
            # The order says an old epoch: a heartbeat that says everything begins a new one.
            self._has_news = True
        elif has_moved or not self._heartbeats.is_running:
            self._heartbeats.start(self._steady_request(), self._interval_ms, now_ms)

    def _take_error(self, error: ApiError, now_ms: int) -> None:
        if error.code in _PUT_OUT:
            _logger.info("share group %s: put out (%s); joining again", self._group_id, error)
            self._stop()
            self._has_news = True
        elif error.retriable:
            if error.code in _MOVED:
                self._link.lost(now_ms)
            self._try_again_later(now_ms)
        else:
            self._fail(error)

    def _try_again_later(self, now_ms: int) -> None:
        self._heartbeats.stop()
        self._has_news = True
        self._failures += 1
        self._retry_ms = now_ms + self._backoff.after(self._failures, self._random)

    def _fail(self, error: MillstreamError) -> None:
        self._stop()
        self._is_active = False
        self._on_failure(error)
