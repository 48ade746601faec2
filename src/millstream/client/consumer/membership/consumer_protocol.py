"""A member of a consumer group (KIP-848): one request says and hears everything.

A state machine that `Membership` drives. The coordinator assigns; the member takes one step at a
time towards what it is told: it gives up what it shall not have, its listener runs, it takes what
is new, and says what it has. In steady state the heartbeat is a periodic request. It names what the
member owns, so that the coordinator takes it for a lost answer, and not for a stranger, when the
epoch went on while this process could not hear.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final

from millstream.client.consumer.membership.consumer_messages import (
    full_heartbeat,
    leave_heartbeat,
    steady_heartbeat,
)
from millstream.client.consumer.membership.events import Lost, Revoked
from millstream.client.consumer.membership.heartbeat import PeriodicHeartbeat
from millstream.client.consumer.membership.reconciliation import Reconciliation, TopicIdPartition
from millstream.client.groups import ConsumerGroupMetadata
from millstream.errors import (
    NO_ERROR,
    ApiError,
    BrokerUnreachable,
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    MillstreamError,
    NotCoordinator,
    UnknownMemberId,
    UnreleasedInstanceId,
    error_for_code,
)
from millstream.network.client.backoff import Backoff
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.membership.group_view import GroupView
    from millstream.client.consumer.membership.handover import Handover
    from millstream.client.consumer.membership.machine import Link, MemberHost
    from millstream.client.consumer.membership.subscription import Subscription
    from millstream.client.snapshot import MetadataSnapshot
    from millstream.protocol.message import Message
    from millstream.types import TopicPartition

_logger = logging.getLogger(__name__)

JOINING_EPOCH: Final = 0
NO_EPOCH: Final = -1
"""What commits and transactions say outside of the group."""
_CLIENT_IDS_SINCE: Final = 1
_REGEX_SINCE: Final = 1
_MOVED: Final = frozenset({CoordinatorNotAvailable.code, NotCoordinator.code})
_PUT_OUT: Final = frozenset({UnknownMemberId.code, FencedMemberEpoch.code})


class State(Enum):
    """Where a member stands."""

    ACTIVE = "active"
    """It is in the group, or on its way into it (then its epoch is 0)."""
    TIMED_OUT = "poll timed out"
    """It left because the user did not poll; it comes back with the next poll."""
    GONE = "gone"


class ConsumerMember:
    """One consumer in a consumer group; a `GroupMachine`."""

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        handover: Handover,
        view: GroupView,
        host: MemberHost,
        random: Random,
    ) -> None:
        self._config = config
        self._link = link
        self._handover = handover
        self._view = view
        self._host = host
        self._random = random
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._heartbeats = PeriodicHeartbeat(link, host.heartbeats_until_ms, self._on_heartbeat)
        self._parts = Reconciliation(handover, view, config.enable_auto_commit, self._has_changed)
        self._state = State.GONE
        self._subscription: Subscription | None = None
        self._topics: frozenset[str] | None = None
        self._member_id = ""
        self._epoch = JOINING_EPOCH
        self._interval_ms = config.heartbeat_interval_ms
        self._has_news = False
        self._is_asking = False
        self._attempt = 0
        self._failures = 0
        self._retry_ms = 0
        self._unreleased_since_ms: int | None = None
        self._seen: MetadataSnapshot | None = None
        self._has_said_regex = False

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that are ours."""
        return self._parts.owned

    @property
    def state(self) -> State:
        """Where the member stands."""
        return self._state

    @property
    def is_member(self) -> bool:
        """Whether the group knows us, as far as we know."""
        return self._state is State.ACTIVE and self._epoch > JOINING_EPOCH

    # What the membership asks for.

    def subscribe(self, subscription: Subscription, now_ms: int) -> None:
        """Join, or tell the group that we want something else."""
        self._subscription = subscription
        self._topics = self._seen = None
        self._view.follow(subscription)
        if self._state is not State.ACTIVE:
            self._enter()
        self._has_news = True

    def rejoin(self, reason: str, now_ms: int) -> None:
        """The coordinator decides when to rebalance: there is nothing to ask for."""

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called again at the latest."""
        if self._state is not State.ACTIVE:
            return None
        self._look_at_topics()
        self._parts.advance(now_ms)
        if self._heartbeats.needs_renewal(now_ms):
            self._has_news = True
        is_silent = not self._heartbeats.is_running and not self._is_asking
        if self._is_asking or not (self._has_news or is_silent):
            return None
        if self._epoch == JOINING_EPOCH and self._handover.is_busy:
            return None  # The application hears first that its partitions are lost.
        if now_ms < self._retry_ms:
            return self._retry_ms
        if not self._link.is_ready(now_ms):
            return self._link.due_ms(now_ms)
        if not self._matches_on_broker and self._topics is None:
            return None  # The metadata comes, and with it the next poll.
        self._say_everything(now_ms)
        return None

    def leave(self, now_ms: int, on_done: Callable[[], None], *, keeps_slot: bool) -> None:
        """Give everything back and go; a static member whose slot is kept may come back."""
        if self._state is State.GONE:
            on_done()
            return
        self._end_attempt()
        self._state = State.GONE

        def go(then_ms: int) -> None:
            self._parts.forget()
            self._depart(then_ms, on_done, keeps_slot=keeps_slot)

        left = self.owned - self._handover.being_revoked
        if left:
            self._handover.give(Revoked(left, self._config.enable_auto_commit), go)
        else:
            go(now_ms)

    def leave_on_poll_timeout(self, reason: MillstreamError, now_ms: int) -> None:
        """Go at once, since the user does not poll; what we own is lost."""
        if self._state is not State.ACTIVE:
            return
        self._end_attempt()
        self._state = State.TIMED_OUT
        self._lose(reason)
        self._depart(now_ms, lambda: None, keeps_slot=True)

    def return_to_group(self, now_ms: int) -> None:
        """The user polls again after a poll timeout."""
        if self._state is State.TIMED_OUT:
            self._enter()

    def refused(self, code: int, now_ms: int) -> None:
        """A commit was refused: the next heartbeat will tell more, so it is sent now."""
        if self.is_member and code in _PUT_OUT:
            self._has_news = True

    # Saying and hearing.

    @property
    def _matches_on_broker(self) -> bool:
        assert self._subscription is not None
        version = self._link.version_of(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        is_able = version is not None and version >= _REGEX_SINCE
        return self._subscription.regex is not None and is_able

    def _look_at_topics(self) -> None:
        """Notice that other topics match a pattern, where that is decided here."""
        if self._view.snapshot is self._seen:
            return
        self._seen = self._view.snapshot
        assert self._subscription is not None
        topics = self._view.resolve(self._subscription)
        if topics is not None and topics != self._topics:
            self._has_news = self._has_news or not self._matches_on_broker
            self._topics = topics

    def _has_changed(self) -> None:
        """What we own is not what the coordinator has last heard."""
        self._has_news = True

    def _say_everything(self, now_ms: int) -> None:
        """A full heartbeat: it joins, tells news, and is answered with the whole assignment."""
        self._heartbeats.stop()
        if self._epoch > JOINING_EPOCH:
            # Also while the answer is on its way, and this process may not run when it comes.
            self._heartbeats.start(self._steady_request(), self._interval_ms, now_ms)
        self._attempt += 1
        attempt = self._attempt
        self._is_asking = True
        self._has_news = False
        self._link.send(
            VersionedRequest(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._full_request),
            now_ms,
            lambda answer, then_ms: self._on_answer(attempt, answer, then_ms),
        )

    def _full_request(self, version: int) -> Message:
        assert self._subscription is not None
        if version >= _CLIENT_IDS_SINCE and not self._member_id:
            self._member_id = str(Uuid.random(self._random))
        regex = self._subscription.regex if version >= _REGEX_SINCE else None
        # None means "as before", so an expression is taken back by an empty one.
        takes_back = regex is None and self._has_said_regex
        self._has_said_regex = regex is not None
        return full_heartbeat(
            self._config,
            self._member_id,
            self._epoch,
            frozenset() if regex is not None else self._topics or frozenset(),
            "" if takes_back else regex,
            self._parts.owned_by_id(),
        )

    def _steady_request(self) -> Message:
        owned = self._parts.owned_by_id()
        return steady_heartbeat(self._config, self._member_id, self._epoch, owned)

    def _on_answer(self, attempt: int, answer: Message | MillstreamError, now_ms: int) -> None:
        if attempt == self._attempt:
            self._is_asking = False
            self._hear(answer, now_ms)

    def _on_heartbeat(self, answer: Message | MillstreamError, now_ms: int) -> None:
        if self._state is State.ACTIVE:
            self._hear(answer, now_ms)

    def _hear(self, answer: Message | MillstreamError, now_ms: int) -> None:
        if isinstance(answer, ConsumerGroupHeartbeatResponse):
            if answer.error_code == NO_ERROR:
                self._take(answer, now_ms)
            else:
                error = error_for_code(answer.error_code, answer.error_message)
                self._take_error(error, now_ms)
        elif isinstance(answer, BrokerUnreachable):
            self._heartbeats.stop()
            self._link.lost(now_ms)
            self._try_again_later(now_ms)
        else:
            assert isinstance(answer, MillstreamError)
            self._fail(answer)

    def _take(self, answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        self._link.worked()
        self._failures = 0
        self._unreleased_since_ms = None
        self._member_id = answer.member_id or self._member_id
        has_moved = answer.member_epoch != self._epoch
        self._epoch = answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms or self._interval_ms
        if has_moved:
            self._tell_identity()
        if answer.assignment is not None:
            self._parts.aim_at(
                frozenset(
                    TopicIdPartition(topic.topic_id, index)
                    for topic in answer.assignment.topic_partitions
                    for index in topic.partitions
                )
            )
        self._parts.advance(now_ms)
        if has_moved and self._heartbeats.may_have_sent(now_ms):
            # The order says an old epoch now, and answers to it may be on their way: the answer
            # to a full heartbeat has everything that they have.
            self._has_news = True
        elif has_moved or not self._heartbeats.is_running:
            self._heartbeats.start(self._steady_request(), self._interval_ms, now_ms)

    # When things go wrong.

    def _take_error(self, error: ApiError, now_ms: int) -> None:
        if error.code in _PUT_OUT:
            self._put_out(error)
        elif error.code in _MOVED:
            self._heartbeats.stop()
            self._link.lost(now_ms)
            self._try_again_later(now_ms)
        elif error.retriable or self._may_be_released(error, now_ms):
            self._heartbeats.stop()
            self._try_again_later(now_ms)
        else:
            self._fail(error)

    def _may_be_released(self, error: ApiError, now_ms: int) -> bool:
        """Whether the former holder of our instance id may only have crashed: its session ends."""
        if error.code != UnreleasedInstanceId.code:
            return False
        if self._unreleased_since_ms is None:
            self._unreleased_since_ms = now_ms
            _logger.warning(
                "group %s: instance id %r still belongs to a member that has not left; waiting "
                "for its session to end",
                self._config.wire_group_id,
                self._config.group_instance_id,
            )
        return now_ms - self._unreleased_since_ms < self._config.default_api_timeout_ms

    def _try_again_later(self, now_ms: int) -> None:
        self._has_news = True
        self._failures += 1
        self._retry_ms = now_ms + self._backoff.after(self._failures, self._random)

    def _put_out(self, error: ApiError) -> None:
        """The group went on without us: what we had is lost, and we join anew."""
        _logger.info("group %s: put out (%s); joining again", self._config.wire_group_id, error)
        self._end_attempt()
        self._lose(error)
        self._enter()

    def _enter(self) -> None:
        self._state = State.ACTIVE
        self._epoch = JOINING_EPOCH
        self._has_news = True
        self._tell_identity()

    def _lose(self, reason: MillstreamError) -> None:
        lost = self.owned - self._handover.being_revoked
        self._parts.forget()
        if lost:
            self._handover.give(Lost(lost, reason))

    def _fail(self, error: MillstreamError) -> None:
        self._end_attempt()
        self._state = State.GONE
        self._lose(error)
        self._epoch = JOINING_EPOCH
        self._tell_identity()
        self._host.failed(error)

    def _end_attempt(self) -> None:
        self._heartbeats.stop()
        self._attempt += 1
        self._is_asking = False
        self._has_news = False

    def _depart(self, now_ms: int, on_done: Callable[[], None], *, keeps_slot: bool) -> None:
        was_in = self._epoch > JOINING_EPOCH
        self._epoch = JOINING_EPOCH
        self._tell_identity()
        if was_in:
            request = leave_heartbeat(self._config, self._member_id, keeps_slot=keeps_slot)
            self._link.send_leave(request, now_ms, on_done)
        else:
            on_done()

    def _tell_identity(self) -> None:
        is_in = self._epoch > JOINING_EPOCH
        self._host.identity_changed(
            ConsumerGroupMetadata(
                self._config.wire_group_id,
                self._epoch if is_in else NO_EPOCH,
                self._member_id if is_in else "",
                self._config.group_instance_id,
            )
        )
