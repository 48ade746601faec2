"""`Membership`: a consumer's place in its group, and the group's offsets.

The consumer's core owns one and adds it to the runtime as an actor. It chooses the group protocol,
drives the machine for it, watches that the user polls often enough, and commits. Everything runs
on the I/O thread except `enter_poll`, `leave_poll`, `group_metadata` and `subscribed_topics`, which
any thread may use. The agreement with the consumer is in `port` and `events`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.client.consumer.membership.classic import ClassicMember
from millstream.client.consumer.membership.commits import OffsetCommits
from millstream.client.consumer.membership.consumer_protocol import ConsumerMember
from millstream.client.consumer.membership.group_view import GroupView
from millstream.client.consumer.membership.handover import Handover
from millstream.client.consumer.membership.link import CoordinatorLink
from millstream.client.consumer.membership.offset_fetches import OffsetFetches
from millstream.client.groups import ConsumerGroupMetadata
from millstream.errors import (
    ClientClosed,
    CommitFailed,
    GroupIdNotFound,
    InconsistentGroupProtocol,
    MillstreamError,
    PollIntervalExceeded,
    UnsupportedVersion,
)
from millstream.network.client.backoff import Backoff
from millstream.protocol.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from random import Random

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.membership.commits import OnCommitted
    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.client.consumer.membership.machine import GroupMachine
    from millstream.client.consumer.membership.offset_fetches import OnFetched
    from millstream.client.consumer.membership.port import AssignmentOwner
    from millstream.client.consumer.membership.subscription import Subscription
    from millstream.client.groups import OffsetAndMetadata
    from millstream.client.runtime import ClientRuntime
    from millstream.types import TopicPartition

_logger = logging.getLogger(__name__)

_NOT_THIS_PROTOCOL = (UnsupportedVersion, GroupIdNotFound, InconsistentGroupProtocol)
"""The coordinator knows the consumer protocol but not for this group: use the classic one."""


class Membership:
    """One consumer's membership. An actor of `ClientRuntime`."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ClientRuntime,
        owner: AssignmentOwner,
        random: Random,
    ) -> None:
        self._config = config
        self._owner = owner
        self._random = random
        self._handover = Handover(owner)
        self._view = GroupView(
            runtime.metadata, exclude_internal_topics=config.exclude_internal_topics
        )
        self._link = CoordinatorLink(
            runtime,
            config.wire_group_id,
            Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            config.request_timeout_ms,
            random,
            self.failed,
        )
        self._identity = self._nobody()
        self._commits = OffsetCommits(
            runtime.router, self._view, config.wire_group_id, self.group_metadata, self._on_refused
        )
        self._fetches = OffsetFetches(
            runtime.router, self._view, config.wire_group_id, self.group_metadata
        )
        self._machine: GroupMachine | None = None
        self._subscription: Subscription | None = None
        self._is_closed = False
        # Written by the polling thread, read by the I/O thread: single values, no lock needed.
        self._is_in_poll = False
        self._last_poll_ms: int | None = None
        self._has_timed_out = False
        self._next_commit_ms: int | None = None
        self._auto_committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._is_auto_committing = False
        self.on_auto_committed: Callable[[dict[TopicPartition, OffsetAndMetadata]], None] = (
            lambda _: None
        )
        """Told, on the I/O thread, what was committed without being asked for."""

    # Subscriptions.

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics that are subscribed to; those that match, as far as known, of a pattern."""
        if self._subscription is None:
            return frozenset()
        return self._view.resolve(self._subscription) or frozenset()

    def subscribe(self, subscription: Subscription, now_ms: int) -> None:
        """Join the group for these topics, or want these instead of those before."""
        subscription.matcher()  # Raises if the expression cannot be compiled.
        self._subscription = subscription
        if self._last_poll_ms is None:
            self._last_poll_ms = now_ms
        if self._machine is not None:
            self._machine.subscribe(subscription, now_ms)
        else:
            self._view.follow(subscription)

    def unsubscribe(self, now_ms: int, on_done: Callable[[], None]) -> None:
        """Give everything back and leave; `on_done` when the group has heard of it."""
        self._subscription = None
        self._view.unfollow()
        self._has_timed_out = False
        self._auto_committed.clear()
        if self._machine is None:
            on_done()
        else:
            machine, self._machine = self._machine, None
            machine.leave(now_ms, on_done, keeps_slot=True)

    def close(self, now_ms: int, on_done: Callable[[], None]) -> None:
        """Leave for good. A static member's partitions wait for it until its session is over."""
        self._is_closed = True
        self.unsubscribe(now_ms, on_done)

    def request_rejoin(self, now_ms: int) -> None:
        """Have the group rebalance, if its members decide that."""
        if self._machine is not None:
            self._machine.rejoin("the user asked for a rebalance", now_ms)

    def acknowledge(self, event: RebalanceEvent, now_ms: int) -> None:
        """The user's listener has run for an event."""
        self._handover.acknowledge(event, now_ms)

    # Polls.

    def enter_poll(self, now_ms: int) -> bool:
        """The application polls; True if `on_poll` is to be posted with what it has consumed.

        Until `leave_poll` the poll interval does not run.
        """
        self._last_poll_ms = now_ms
        self._is_in_poll = True
        return self._has_timed_out or self._is_commit_due(now_ms)

    def leave_poll(self, now_ms: int) -> None:
        """The application got its records and works with them."""
        self._last_poll_ms = now_ms
        self._is_in_poll = False

    def on_poll(self, consumed: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int) -> None:
        """The application polls, so it is done with all records that it was given before."""
        if self._has_timed_out:
            self._has_timed_out = False
            if self._machine is not None:
                self._machine.return_to_group(now_ms)
        if self._is_commit_due(now_ms):
            self._auto_commit(consumed, now_ms)

    # Offsets.

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now_ms: int,
        on_done: OnCommitted,
        *,
        deadline_ms: int | None = None,
    ) -> None:
        """Commit after everything that was asked for before; tried again until the deadline."""
        refusal = self._refusal(offsets)
        if refusal is not None:
            on_done(refusal)
            return
        if deadline_ms is None:
            deadline_ms = now_ms + self._config.default_api_timeout_ms
        self._commits.commit(offsets, now_ms, on_done, deadline_ms)

    def committed(
        self,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        on_done: OnFetched,
        *,
        deadline_ms: int | None = None,
    ) -> None:
        """Ask how far the group has read; None for partitions without a committed offset."""
        if deadline_ms is None:
            deadline_ms = now_ms + self._config.default_api_timeout_ms
        self._fetches.fetch(frozenset(partitions), now_ms, on_done, deadline_ms)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who we are to the group now."""
        return self._identity

    # The actor.

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called again at the latest."""
        times = [self._commits.poll(now_ms), self._fetches.poll(now_ms), self._link.poll(now_ms)]
        if self._subscription is not None and not self._is_closed:
            if self._machine is None:
                times.append(self._choose_protocol(now_ms))
            if self._machine is not None:
                times.append(self._watch_polls(now_ms))
                times.append(self._machine.poll(now_ms))
        return min((each for each in times if each is not None), default=None)

    def _choose_protocol(self, now_ms: int) -> int | None:
        assert self._subscription is not None
        choice = self._config.group_protocol
        if choice == "auto" and self._config.has_own_assignors:
            choice = "classic"
        if choice == "auto":
            if not self._link.is_ready(now_ms):
                return self._link.due_ms(now_ms)
            offers = self._link.version_of(ApiKey.CONSUMER_GROUP_HEARTBEAT) is not None
            choice = "consumer" if offers else "classic"
        idle = self._config.without_effect(choice)
        if idle:
            _logger.warning(
                "group %s uses the %s protocol, in which settings have no effect: %s",
                self._config.wire_group_id,
                choice,
                "; ".join(idle),
            )
        self._use(ConsumerMember if choice == "consumer" else ClassicMember, now_ms)
        return None

    def _use(self, kind: type[ConsumerMember | ClassicMember], now_ms: int) -> None:
        assert self._subscription is not None
        self._machine = kind(
            self._config, self._link, self._handover, self._view, self, self._random
        )
        self._machine.subscribe(self._subscription, now_ms)

    def _watch_polls(self, now_ms: int) -> int | None:
        """Leave the group if the user does not poll: others shall go on with what we have."""
        assert self._machine is not None
        if self._is_in_poll or not self._machine.is_member or self._last_poll_ms is None:
            return None
        deadline_ms = self._last_poll_ms + self._config.max_poll_interval_ms
        if now_ms < deadline_ms:
            return deadline_ms
        seconds = self._config.max_poll_interval_ms / 1000
        error = PollIntervalExceeded(
            f"poll() was not called for {seconds:g} s, so this consumer has left group "
            f"{self._config.wire_group_id!r}: take fewer records with each poll "
            "(max_poll_records), handle them faster, or raise max_poll_interval"
        )
        _logger.warning("%s", error)
        self._has_timed_out = True
        self._machine.leave_on_poll_timeout(error, now_ms)
        return None

    # What the machine tells; a `MemberHost`.

    def heartbeats_until_ms(self, now_ms: int) -> int:
        """Until when the group may believe that the application is there, unless it polls again."""
        since_ms = now_ms if self._is_in_poll or self._last_poll_ms is None else self._last_poll_ms
        return since_ms + self._config.max_poll_interval_ms

    def identity_changed(self, identity: ConsumerGroupMetadata) -> None:
        """Who we are to the group from now on."""
        self._identity = identity

    def failed(self, error: MillstreamError) -> None:
        """The membership is over, unless another protocol helps."""
        is_consumer = isinstance(self._machine, ConsumerMember)
        self._machine = None
        may_change = self._config.group_protocol == "auto" and self._subscription is not None
        if is_consumer and may_change and isinstance(error, _NOT_THIS_PROTOCOL):
            _logger.info("group %s: using the classic protocol", self._config.wire_group_id)
            assert self._last_poll_ms is not None
            self._use(ClassicMember, self._last_poll_ms)
            return
        self._subscription = None
        self._view.unfollow()
        if not isinstance(error, ClientClosed):  # Then there is nobody to tell.
            self._owner.on_group_error(error)

    # Inside.

    def _nobody(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(
            self._config.wire_group_id, group_instance_id=self._config.group_instance_id
        )

    def _on_refused(self, code: int, now_ms: int) -> None:
        if self._machine is not None:
            self._machine.refused(code, now_ms)

    def _refusal(self, offsets: Iterable[TopicPartition]) -> CommitFailed | None:
        """Why these offsets are not ours to commit."""
        if self._machine is None:
            return None
        foreign = sorted(set(offsets) - self._machine.owned)
        if not foreign:
            return None
        why = (
            "it left the group because poll() was not called in time"
            if self._has_timed_out
            else "the group has given it to another member"
        )
        return CommitFailed(
            f"{foreign[0]} is not assigned to this consumer: {why}. Its records are delivered "
            "again from the last commit; commit only what assignment() has"
        )

    def _is_commit_due(self, now_ms: int) -> bool:
        if not self._config.enable_auto_commit:
            return False
        if self._next_commit_ms is None:
            self._next_commit_ms = now_ms + self._config.auto_commit_interval_ms
        return now_ms >= self._next_commit_ms and not self._is_auto_committing

    def _auto_commit(
        self, consumed: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int
    ) -> None:
        self._next_commit_ms = now_ms + self._config.auto_commit_interval_ms
        owned = None if self._machine is None else self._machine.owned
        news = {
            each: offset
            for each, offset in consumed.items()
            if (owned is None or each in owned) and self._auto_committed.get(each) != offset
        }
        if not news:
            return

        def on_done(error: MillstreamError | None) -> None:
            self._is_auto_committing = False
            if error is None:
                self._auto_committed.update(news)
                self.on_auto_committed(news)
            else:
                _logger.warning("group %s: auto-commit: %s", self._config.wire_group_id, error)

        self._is_auto_committing = True
        self.commit(news, now_ms, on_done)
