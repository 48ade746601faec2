"""A member of a classic group: join, sync, heartbeat, and again when the group changes.

A state machine that `Membership` drives. With eager assignors a member gives everything back
before it joins again; with cooperative ones it keeps what it has, gives up what the leader took
away, and joins once more so that others can get it. If it leads, it assigns, and has the group
rebalance when the topics change.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final

from millstream.client.consumer.membership.assignors import PreviousAssignment
from millstream.client.consumer.membership.classic_messages import (
    PROTOCOL_TYPE,
    computed_assignments,
    offered_protocols,
    read_assignment,
    read_members,
)
from millstream.client.consumer.membership.events import Assigned, Lost, Revoked
from millstream.client.consumer.membership.heartbeat import HeartbeatOrder
from millstream.client.groups import ConsumerGroupMetadata
from millstream.errors import (
    NO_ERROR,
    BrokerUnreachable,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    IllegalGeneration,
    MemberIdRequired,
    MillstreamError,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
    UnsupportedVersion,
    error_for_code,
)
from millstream.network.backoff import Backoff
from millstream.network.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from millstream.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millstream.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from millstream.client.consumer.membership.assignors import Assignor, GroupMember
    from millstream.client.consumer.membership.group_view import GroupView
    from millstream.client.consumer.membership.handover import Handover
    from millstream.client.consumer.membership.machine import Link, MemberHost
    from millstream.client.consumer.membership.settings import MembershipSettings
    from millstream.client.consumer.membership.subscription import Subscription
    from millstream.client.snapshot import MetadataSnapshot
    from millstream.protocol.message import Message
    from millstream.types import TopicPartition

_logger = logging.getLogger(__name__)

NO_GENERATION: Final = -1
JOIN_SLACK_MS: Final = 5_000
"""How much longer than the group may take a member waits for the answer to its JoinGroup."""
_STATIC_SINCE: Final = 5
_MEMBERS_SINCE: Final = 3
_RETRIED: Final = frozenset(
    {CoordinatorLoadInProgress.code, RebalanceInProgress.code, UnknownServerError.code}
)
_MOVED: Final = frozenset({CoordinatorNotAvailable.code, NotCoordinator.code})
_PUT_OUT: Final = frozenset({UnknownMemberId.code, IllegalGeneration.code})


class State(Enum):
    """Where a member stands."""

    UNJOINED = "unjoined"
    GIVING_BACK = "giving back"
    """Its listener runs for what it has to give back before it joins."""
    JOINING = "joining"
    ASSIGNING = "assigning"
    """It leads, and waits to hear how large the topics are."""
    SYNCING = "syncing"
    STABLE = "stable"
    DESERTED = "deserted"
    """It left because the user did not poll; it comes back when he does."""
    GONE = "gone"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNJOINED: frozenset({State.GIVING_BACK, State.JOINING, State.DESERTED, State.GONE}),
    State.GIVING_BACK: frozenset({State.JOINING, State.UNJOINED, State.DESERTED, State.GONE}),
    State.JOINING: frozenset(
        {State.JOINING, State.ASSIGNING, State.SYNCING, State.UNJOINED, State.DESERTED, State.GONE}
    ),
    State.ASSIGNING: frozenset({State.SYNCING, State.UNJOINED, State.DESERTED, State.GONE}),
    State.SYNCING: frozenset({State.STABLE, State.UNJOINED, State.DESERTED, State.GONE}),
    State.STABLE: frozenset(
        {State.GIVING_BACK, State.JOINING, State.UNJOINED, State.DESERTED, State.GONE}
    ),
    State.DESERTED: frozenset({State.UNJOINED, State.GONE}),
    State.GONE: frozenset({State.UNJOINED}),
}


class ClassicMember:
    """One consumer in a classic group; a `GroupMachine`."""

    def __init__(
        self,
        settings: MembershipSettings,
        link: Link,
        handover: Handover,
        view: GroupView,
        host: MemberHost,
        random: Random,
    ) -> None:
        self._settings = settings
        self._link = link
        self._handover = handover
        self._view = view
        self._host = host
        self._random = random
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._heartbeats = HeartbeatOrder(link, host.heartbeats_until_ms, self._on_heartbeat)
        self._state = State.GONE
        self._subscription: Subscription | None = None
        self._topics: frozenset[str] | None = None
        self._member_id = ""
        self._generation = NO_GENERATION
        self._owned: frozenset[TopicPartition] = frozenset()
        self._previous = PreviousAssignment()
        self._rejoin_reason: str | None = None
        self._failures = 0
        self._retry_ms = 0
        # Answers to what was asked in an earlier attempt must not touch this one.
        self._attempt = 0
        self._leads: _Leadership | None = None
        self._seen: MetadataSnapshot | None = None

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that are ours."""
        return self._owned

    @property
    def state(self) -> State:
        """Where the member stands."""
        return self._state

    @property
    def is_member(self) -> bool:
        """Whether the group knows us, as far as we know."""
        return bool(self._member_id) and self._state not in (State.GONE, State.DESERTED)

    # What the membership asks for.

    def subscribe(self, subscription: Subscription, now_ms: int) -> None:
        """Join, or tell the group that we want something else."""
        self._subscription = subscription
        self._topics = self._seen = None
        self._view.follow(subscription, () if self._leads is None else self._leads.topics)
        if self._state is State.GONE:
            self._move_to(State.UNJOINED)
        self.rejoin("the subscription has changed", now_ms)

    def rejoin(self, reason: str, now_ms: int) -> None:
        """Join again as soon as nothing else is under way."""
        self._rejoin_reason = self._rejoin_reason or reason

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called again at the latest."""
        if self._state in (State.GONE, State.DESERTED):
            return None
        self._look_at_topics(now_ms)
        if self._state is State.ASSIGNING:
            self._assign_when_known(now_ms)
        if self._heartbeats.needs_renewal(now_ms):
            self._start_heartbeats(now_ms)
        if self._state in (State.UNJOINED, State.STABLE):
            if not self._needs_to_join or self._handover.is_busy:
                return self._resume_heartbeats(now_ms)
            return self._join_when_possible(now_ms)
        return None

    def leave(self, now_ms: int, on_done: Callable[[], None], *, keeps_slot: bool) -> None:
        """Give everything back and go; a static member whose slot is kept just falls silent."""
        self._attempt += 1
        if self._state is State.GONE:
            on_done()
            return
        self._move_to(State.GONE)

        def go(then_ms: int) -> None:
            self._owned = frozenset()
            says_so = not (keeps_slot and self._settings.group_instance_id is not None)
            self._depart(then_ms, on_done, "the consumer leaves the group", says_so=says_so)

        left = self._owned - self._handover.being_revoked
        if left:
            self._handover.give(Revoked(left, self._settings.enable_auto_commit), go)
        else:
            go(now_ms)

    def desert(self, reason: MillstreamError, now_ms: int) -> None:
        """Go at once, since the user does not poll; what we own is lost."""
        if self._state in (State.GONE, State.DESERTED):
            return
        self._attempt += 1
        self._move_to(State.DESERTED)
        self._lose(reason)
        # A static member's partitions wait for it until its session is over.
        is_static = self._settings.group_instance_id is not None
        self._depart(now_ms, _nothing, "the poll interval was exceeded", says_so=not is_static)

    def return_to_group(self, now_ms: int) -> None:
        """The user polls again after a desertion."""
        if self._state is State.DESERTED:
            self._move_to(State.UNJOINED)
            self.rejoin("the user polls again", now_ms)

    def refused(self, code: int, now_ms: int) -> None:
        """A commit was refused: learn from it what the next heartbeat would have said."""
        if self._state is State.STABLE:
            self._take_heartbeat_code(code, now_ms)

    # Joining.

    @property
    def _needs_to_join(self) -> bool:
        return self._state is State.UNJOINED or self._rejoin_reason is not None

    def _look_at_topics(self, now_ms: int) -> None:
        """Notice that topics have come, gone or grown."""
        if self._view.snapshot is self._seen:
            return
        self._seen = self._view.snapshot
        assert self._subscription is not None
        topics = self._view.resolve(self._subscription)
        if topics != self._topics and topics is not None:
            is_first = self._topics is None
            self._topics = topics
            if not is_first:
                self.rejoin("other topics match the subscription", now_ms)
        if (
            self._state is State.STABLE
            and self._leads is not None
            and self._leads.sizes is not None
        ):
            sizes = self._view.sizes(self._leads.topics)
            if sizes != self._leads.sizes:
                self._leads.sizes = sizes
                self.rejoin("the group's topics have changed", now_ms)

    def _join_when_possible(self, now_ms: int) -> int | None:
        if self._topics is None:
            return None  # The metadata comes, and with it the next poll.
        if now_ms < self._retry_ms:
            return self._retry_ms
        if not self._link.is_ready(now_ms):
            return self._link.due_ms(now_ms)
        leaving = frozenset(
            each
            for each in self._owned
            if not self._settings.is_cooperative or each.topic not in self._topics
        )
        if leaving:
            self._move_to(State.GIVING_BACK)
            attempt = self._attempt
            event = Revoked(leaving, self._settings.enable_auto_commit)
            self._handover.give(event, lambda then_ms: self._gave_back(attempt, leaving, then_ms))
        else:
            self._join(now_ms)
        return None

    def _gave_back(self, attempt: int, partitions: frozenset[TopicPartition], now_ms: int) -> None:
        self._owned -= partitions
        if attempt == self._attempt:
            self._join(now_ms)

    def _join(self, now_ms: int) -> None:
        assert self._topics is not None
        self._heartbeats.stop()
        self._move_to(State.JOINING)
        self._attempt += 1
        attempt = self._attempt
        reason, self._rejoin_reason = self._rejoin_reason, None
        settings = self._settings
        request = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self._member_id,
            group_instance_id=settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=offered_protocols(
                settings.assignors, self._topics, self._owned, self._previous, settings.client_rack
            ),
            reason=reason,
        )
        self._link.send(
            VersionedRequest(ApiKey.JOIN_GROUP, lambda version: _checked(request, version)),
            now_ms,
            lambda answer, then_ms: self._on_joined(attempt, answer, then_ms),
            timeout_ms=self._group_patience_ms,
        )

    @property
    def _group_patience_ms(self) -> int:
        slowest_ms = self._settings.max_poll_interval_ms + JOIN_SLACK_MS
        return max(slowest_ms, self._settings.request_timeout_ms)

    def _on_joined(self, attempt: int, answer: Message | MillstreamError, now_ms: int) -> None:
        if attempt != self._attempt:
            return
        if not isinstance(answer, JoinGroupResponse):
            self._take_failure(answer, now_ms)
            return
        if answer.error_code == MemberIdRequired.code:
            self._member_id = answer.member_id
            self._join(now_ms)
            return
        if answer.error_code != NO_ERROR:
            self._take_join_code(answer.error_code, now_ms)
            return
        self._link.worked()
        self._failures = 0
        self._member_id = answer.member_id
        self._generation = answer.generation_id
        self._tell_identity()
        assignor = self._assignor(answer.protocol_name or "")
        if answer.leader != answer.member_id or assignor is None:
            self._leads = None
            self._sync(answer.protocol_name, [], now_ms)
            return
        members = read_members(answer.members)
        self._leads = _Leadership(assignor, members, skips=answer.skip_assignment)
        assert self._subscription is not None
        self._view.follow(self._subscription, self._leads.topics)
        self._leads.needed_update = self._view.need(self._leads.topics)
        self._move_to(State.ASSIGNING)
        self._assign_when_known(now_ms)

    def _assignor(self, name: str) -> Assignor | None:
        return next((each for each in self._settings.assignors if each.name == name), None)

    def _assign_when_known(self, now_ms: int) -> None:
        leads = self._leads
        assert leads is not None
        if self._view.updates < leads.needed_update:
            return
        topics = self._view.group_topics(leads.topics)
        leads.sizes = dict(topics.partition_counts)
        assignments: list[SyncGroupRequestAssignment] = []
        if not leads.skips:
            try:
                assignments = computed_assignments(leads.assignor, leads.members, topics)
            except MillstreamError as error:
                self._fail(error)
                return
        self._sync(leads.assignor.name, assignments, now_ms)

    def _sync(
        self, protocol: str | None, assignments: list[SyncGroupRequestAssignment], now_ms: int
    ) -> None:
        self._move_to(State.SYNCING)
        attempt = self._attempt
        request = SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol,
            assignments=assignments,
        )
        self._link.send(
            request,
            now_ms,
            lambda answer, then_ms: self._on_synced(attempt, answer, then_ms),
            timeout_ms=self._group_patience_ms,
        )

    def _on_synced(self, attempt: int, answer: Message | MillstreamError, now_ms: int) -> None:
        if attempt != self._attempt:
            return
        if not isinstance(answer, SyncGroupResponse):
            self._take_failure(answer, now_ms)
            return
        if answer.error_code != NO_ERROR:
            self._take_join_code(answer.error_code, now_ms)
            return
        try:
            assigned = read_assignment(answer.assignment)
        except MillstreamError as error:
            self._fail(error)
            return
        self._move_to(State.STABLE)
        self._seen = None  # The topics may have changed while the group was busy.
        self._start_heartbeats(now_ms)
        assert self._topics is not None
        if any(each.topic not in self._topics for each in assigned):
            self.rejoin("the assignment does not match the subscription any more", now_ms)
            return
        self._previous = PreviousAssignment(assigned, self._generation)
        self._take_assignment(assigned, now_ms)

    def _take_assignment(self, assigned: frozenset[TopicPartition], now_ms: int) -> None:
        taken_away = self._owned - assigned
        added = assigned - self._owned

        def receive(then_ms: int) -> None:
            if attempt == self._attempt:
                self._owned |= added
                self._handover.give(Assigned(added), _ignore_time)

        attempt = self._attempt
        if not taken_away:
            receive(now_ms)
            return

        def give_up(then_ms: int) -> None:
            self._owned -= taken_away
            self.rejoin("others can have what this member gave up", then_ms)
            receive(then_ms)

        self._handover.give(Revoked(taken_away, self._settings.enable_auto_commit), give_up)

    # Staying.

    def _start_heartbeats(self, now_ms: int) -> None:
        request = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        self._heartbeats.start(request, self._settings.heartbeat_interval_ms, now_ms)

    def _resume_heartbeats(self, now_ms: int) -> int | None:
        """After the connection was lost, as soon as the coordinator is found again."""
        if self._state is not State.STABLE or self._heartbeats.is_running:
            return None
        if now_ms < self._retry_ms:
            return self._retry_ms
        if not self._link.is_ready(now_ms):
            return self._link.due_ms(now_ms)
        # The group may have missed us for long: it hears of us at once, then regularly.
        self._start_heartbeats(now_ms)
        request = HeartbeatRequest(
            group_id=self._settings.group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
        )
        self._link.send(request, now_ms, self._on_heartbeat)
        return None

    def _on_heartbeat(self, answer: Message | MillstreamError, now_ms: int) -> None:
        if self._state not in (State.STABLE, State.GIVING_BACK):
            return
        if isinstance(answer, HeartbeatResponse):
            if answer.error_code == NO_ERROR:
                self._link.worked()
            else:
                self._take_heartbeat_code(answer.error_code, now_ms)
        elif isinstance(answer, MillstreamError):
            self._heartbeats.stop()
            self._link.lost(now_ms)

    def _take_heartbeat_code(self, code: int, now_ms: int) -> None:
        if code == RebalanceInProgress.code:
            self.rejoin("the group is rebalancing", now_ms)
        elif code in _PUT_OUT:
            self._put_out(code, now_ms)
        elif code in _MOVED:
            self._heartbeats.stop()
            self._link.lost(now_ms)
        elif code == FencedInstanceId.code or not error_for_code(code).retriable:
            self._fail(error_for_code(code))

    # When things go wrong.

    def _take_join_code(self, code: int, now_ms: int) -> None:
        if code in _PUT_OUT:
            self._put_out(code, now_ms)
        elif code in _MOVED:
            self._link.lost(now_ms)
            self._try_again_later(now_ms)
        elif code in _RETRIED or error_for_code(code).retriable:
            self._try_again_later(now_ms, at_once=code == RebalanceInProgress.code)
        else:
            self._fail(error_for_code(code))

    def _take_failure(self, error: Message | MillstreamError, now_ms: int) -> None:
        if isinstance(error, BrokerUnreachable):
            self._link.lost(now_ms)
            self._try_again_later(now_ms)
        else:
            assert isinstance(error, MillstreamError)
            self._fail(error)

    def _try_again_later(self, now_ms: int, *, at_once: bool = False) -> None:
        self._attempt += 1
        self._move_to(State.UNJOINED)
        if not at_once:
            self._failures += 1
            self._retry_ms = now_ms + self._backoff.after(self._failures, self._random)

    def _put_out(self, code: int, now_ms: int) -> None:
        """The group went on without us: what we had is lost, and we join anew."""
        error = error_for_code(code)
        _logger.info("group %s: put out (%s); joining again", self._settings.group_id, error)
        self._heartbeats.stop()
        if code == UnknownMemberId.code:
            self._member_id = ""
        self._attempt += 1
        self._move_to(State.UNJOINED)
        self._lose(error)

    def _lose(self, reason: MillstreamError) -> None:
        self._generation = NO_GENERATION
        self._previous = PreviousAssignment(self._previous.partitions, NO_GENERATION)
        self._leads = None
        self._tell_identity()
        lost = self._owned - self._handover.being_revoked
        self._owned = frozenset()
        if lost:
            self._handover.give(Lost(lost, reason), _ignore_time)

    def _fail(self, error: MillstreamError) -> None:
        self._heartbeats.stop()
        self._attempt += 1
        self._move_to(State.GONE)
        self._lose(error)
        self._member_id = ""
        self._tell_identity()
        self._host.failed(error)

    def _depart(
        self, now_ms: int, on_done: Callable[[], None], reason: str, *, says_so: bool
    ) -> None:
        self._heartbeats.stop()
        member_id, self._member_id = self._member_id, ""
        self._generation = NO_GENERATION
        self._tell_identity()
        if not says_so or not member_id or not self._link.is_ready(now_ms):
            on_done()
            return
        group_id, instance_id = self._settings.group_id, self._settings.group_instance_id

        def build(version: int) -> Message:
            if version < _MEMBERS_SINCE:
                return LeaveGroupRequest(group_id=group_id, member_id=member_id)
            identity = MemberIdentity(
                member_id=member_id, group_instance_id=instance_id, reason=reason
            )
            return LeaveGroupRequest(group_id=group_id, members=[identity])

        source = VersionedRequest(ApiKey.LEAVE_GROUP, build)
        self._link.send(source, now_ms, lambda answer, then_ms: on_done())

    def _tell_identity(self) -> None:
        self._host.identity_changed(
            ConsumerGroupMetadata(
                self._settings.group_id,
                self._generation,
                self._member_id,
                self._settings.group_instance_id,
            )
        )

    def _move_to(self, state: State) -> None:
        assert state in TRANSITIONS[self._state] or state is self._state
        self._state = state


class _Leadership:
    """What the leader of a group keeps in mind."""

    def __init__(self, assignor: Assignor, members: dict[str, GroupMember], *, skips: bool) -> None:
        self.assignor = assignor
        self.members = members
        self.skips = skips
        """The coordinator wants nothing assigned: a static member came back as the leader."""
        self.topics = frozenset[str]().union(*(each.topics for each in members.values()))
        self.needed_update = 0
        self.sizes: dict[str, int] | None = None
        """How large the topics were when they were assigned."""


def _checked(request: JoinGroupRequest, version: int) -> Message:
    if request.group_instance_id is not None and version < _STATIC_SINCE:
        raise UnsupportedVersion(
            "group_instance_id (static membership) needs a broker of Kafka 2.3 or newer: leave it "
            "out, or use a newer broker"
        )
    return request


def _ignore_time(now_ms: int) -> None:
    """The event was only told."""


def _nothing() -> None:
    """Nobody waits for it."""
