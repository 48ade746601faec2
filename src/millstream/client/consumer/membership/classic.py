"""A member of a classic group: it joins, stays by heartbeats, and joins again when things change.

`Membership` drives `ClassicMember`, a state machine. Each way into a generation is a `JoinRound`;
in a generation that the member leads, `Leadership` assigns the partitions. With eager assignors a
member revokes everything before it joins again; with cooperative ones it keeps what it has,
revokes what the leader took away, and joins once more so that others can get it. A leader has the
group rebalance when the topics change.
"""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.client.consumer.membership.assignors import PreviousAssignment
from millstream.client.consumer.membership.classic_messages import (
    computed_assignments,
    heartbeat_request,
    join_request,
    leave_request,
    offered_protocols,
    read_assignment,
    read_members,
    sync_request,
)
from millstream.client.consumer.membership.events import Assigned, Lost, Revoked
from millstream.client.consumer.membership.heartbeat import PeriodicHeartbeat
from millstream.client.groups import ConsumerGroupMetadata
from millstream.errors import (
    NO_ERROR,
    BrokerUnreachable,
    CoordinatorNotAvailable,
    IllegalGeneration,
    MemberIdRequired,
    MillstreamError,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
    error_for_code,
)
from millstream.network.client.backoff import Backoff
from millstream.protocol.messages.heartbeat import HeartbeatResponse
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.membership.assignors import Assignor
    from millstream.client.consumer.membership.group_view import GroupView
    from millstream.client.consumer.membership.handover import Handover
    from millstream.client.consumer.membership.machine import Link, MemberHost
    from millstream.client.consumer.membership.subscription import Subscription
    from millstream.client.snapshot import MetadataSnapshot
    from millstream.protocol.message import Message
    from millstream.protocol.messages.sync_group import SyncGroupRequestAssignment
    from millstream.types import TopicPartition

_logger = logging.getLogger(__name__)

NO_GENERATION: Final = -1
JOIN_SLACK_MS: Final = 5_000
"""How much longer than the group may take a member waits for the answer to its JoinGroup."""

_MOVED: Final = frozenset({CoordinatorNotAvailable.code, NotCoordinator.code})
_PUT_OUT: Final = frozenset({UnknownMemberId.code, IllegalGeneration.code})


class State(Enum):
    """Where a member stands."""

    UNJOINED = "unjoined"
    REVOKING = "revoking"
    """Its listener runs for what it revokes before it joins."""
    JOINING = "joining"
    STABLE = "stable"
    TIMED_OUT = "poll timed out"
    """It left because the user did not poll; it comes back with the next poll."""
    GONE = "gone"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNJOINED: frozenset({State.REVOKING, State.JOINING, State.TIMED_OUT, State.GONE}),
    State.REVOKING: frozenset({State.JOINING, State.UNJOINED, State.TIMED_OUT, State.GONE}),
    State.JOINING: frozenset({State.STABLE, State.UNJOINED, State.TIMED_OUT, State.GONE}),
    State.STABLE: frozenset(
        {State.REVOKING, State.JOINING, State.UNJOINED, State.TIMED_OUT, State.GONE}
    ),
    State.TIMED_OUT: frozenset({State.UNJOINED, State.GONE}),
    State.GONE: frozenset({State.UNJOINED}),
}


class ClassicMember:
    """One consumer in a classic group; a `GroupMachine` that begins rounds and hears of them."""

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
        self._state = State.GONE
        self._subscription: Subscription | None = None
        self._topics: frozenset[str] | None = None
        self._member_id = ""
        self._generation = NO_GENERATION
        self._owned: frozenset[TopicPartition] = frozenset()
        self._previous = PreviousAssignment()
        self._rejoin_reason: str | None = None
        self._round: JoinRound | None = None
        self._leads: Leadership | None = None
        self._seen: MetadataSnapshot | None = None
        self._failures = 0
        self._retry_ms = 0

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
        return bool(self._member_id) and self._state not in (State.GONE, State.TIMED_OUT)

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
        if self._state in (State.GONE, State.TIMED_OUT):
            return None
        self._look_at_topics(now_ms)
        if self._round is not None:
            self._round.poll(now_ms)
        if self._heartbeats.needs_renewal(now_ms):
            self._heartbeats.renew(self._heartbeat_request(), now_ms)
        if self._state not in (State.UNJOINED, State.STABLE):
            return None
        if self._handover.is_busy or not self._needs_to_join:
            return self._resume_heartbeats(now_ms)
        return self._join_when_possible(now_ms)

    def leave(self, now_ms: int, on_done: Callable[[], None], *, keeps_slot: bool) -> None:
        """Revoke everything and go; a static member whose slot is kept just falls silent."""
        if self._state is State.GONE:
            on_done()
            return
        self._move_to(State.GONE)

        def go(then_ms: int) -> None:
            self._owned = frozenset()
            says_so = not (keeps_slot and self._config.group_instance_id is not None)
            self._depart(then_ms, on_done, "the consumer leaves the group", says_so=says_so)

        left = self._owned - self._handover.being_revoked
        if left:
            self._handover.give(Revoked(left, self._config.enable_auto_commit), go)
        else:
            go(now_ms)

    def leave_on_poll_timeout(self, reason: MillstreamError, now_ms: int) -> None:
        """Go at once, since the user does not poll; what we own is lost."""
        if self._state in (State.GONE, State.TIMED_OUT):
            return
        self._move_to(State.TIMED_OUT)
        self._lose(reason)
        # A static member's partitions wait for it until its session is over.
        says_so = self._config.group_instance_id is None
        self._depart(now_ms, lambda: None, "the poll interval was exceeded", says_so=says_so)

    def return_to_group(self, now_ms: int) -> None:
        """The user polls again after a poll timeout."""
        if self._state is State.TIMED_OUT:
            self._move_to(State.UNJOINED)
            self.rejoin("the user polls again", now_ms)

    def refused(self, code: int, now_ms: int) -> None:
        """A commit was refused: learn from it what the next heartbeat would have said."""
        if self._state is State.STABLE and code in (*_PUT_OUT, RebalanceInProgress.code):
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
        before, topics = self._topics, self._view.resolve(self._subscription)
        if topics is not None and topics != before:
            self._topics = topics
            if before is not None:
                self.rejoin("other topics match the subscription", now_ms)
        if self._state is State.STABLE and self._leads and self._leads.have_topics_changed():
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
            if not self._config.is_cooperative or each.topic not in self._topics
        )
        if not leaving:
            self._join(now_ms)
            return None
        self._move_to(State.REVOKING)

        def revoked(then_ms: int) -> None:
            self._owned -= leaving
            if self._state is State.REVOKING:
                self._join(then_ms)

        self._handover.give(Revoked(leaving, self._config.enable_auto_commit), revoked)
        return None

    def _join(self, now_ms: int) -> None:
        assert self._topics is not None
        assert self._subscription is not None
        # A JoinGroup may wait for long, and nothing behind it on the connection is answered.
        self._heartbeats.stop()
        self._move_to(State.JOINING)
        reason, self._rejoin_reason = self._rejoin_reason, None
        entrant = Entrant(
            self._member_id, self._subscription, self._topics, self._owned, self._previous, reason
        )
        self._round = JoinRound(self._config, self._link, self._view, entrant, self)
        self._round.join(now_ms)

    def on_member_id(self, member_id: str) -> None:
        """The coordinator has given us an id."""
        self._member_id = member_id

    def on_generation(self, generation: int, leads: Leadership | None) -> None:
        """We are in a generation."""
        self._link.worked()
        self._failures = 0
        self._generation = generation
        self._leads = leads
        self._tell_identity()

    def on_assignment(self, assigned: frozenset[TopicPartition], now_ms: int) -> None:
        """The round is over: this is ours."""
        self._move_to(State.STABLE)
        self._seen = None  # The topics may have changed while the group was busy.
        self._start_heartbeats(now_ms)
        assert self._topics is not None
        if any(each.topic not in self._topics for each in assigned):
            self.rejoin("the assignment does not match the subscription any more", now_ms)
            return
        self._previous = PreviousAssignment(assigned, self._generation)
        taken_away = self._owned - assigned
        if not taken_away:
            self._receive(assigned)
            return

        def give_up(then_ms: int) -> None:
            self._owned -= taken_away
            if self._state is State.STABLE:
                self.rejoin("others can have what this member gave up", then_ms)
                self._receive(assigned)

        self._handover.give(Revoked(taken_away, self._config.enable_auto_commit), give_up)

    def _receive(self, assigned: frozenset[TopicPartition]) -> None:
        added = assigned - self._owned
        self._owned |= added
        self._handover.give(Assigned(added))

    def on_refusal(self, code: int, now_ms: int) -> None:
        """The round is over: the coordinator refused with a code."""
        error = error_for_code(code)
        if code in _PUT_OUT:
            self._put_out(code)
        elif code == RebalanceInProgress.code:
            self._move_to(State.UNJOINED)
        elif error.retriable or code == UnknownServerError.code:
            if code in _MOVED:
                self._link.lost(now_ms)
            self._try_again_later(now_ms)
        else:
            self._fail(error)

    def on_breakdown(self, error: MillstreamError, now_ms: int) -> None:
        """The round is over: no answer, or one that cannot be used."""
        if isinstance(error, BrokerUnreachable):
            self._link.lost(now_ms)
            self._try_again_later(now_ms)
        else:
            self._fail(error)

    # Staying.

    def _heartbeat_request(self) -> Message:
        return heartbeat_request(self._config, self._member_id, self._generation)

    def _start_heartbeats(self, now_ms: int) -> None:
        interval_ms = self._config.heartbeat_interval_ms
        self._heartbeats.start(self._heartbeat_request(), interval_ms, now_ms)

    def _resume_heartbeats(self, now_ms: int) -> int | None:
        """After the connection was lost, as soon as the coordinator is found again."""
        if self._state is not State.STABLE or self._heartbeats.is_running:
            return None
        if not self._link.is_ready(now_ms):
            return self._link.due_ms(now_ms)
        # The group may have missed us for long: it hears of us at once, then regularly.
        self._link.send(self._heartbeat_request(), now_ms, self._on_heartbeat)
        self._start_heartbeats(now_ms)
        return None

    def _on_heartbeat(self, answer: Message | MillstreamError, now_ms: int) -> None:
        if self._state not in (State.STABLE, State.REVOKING):
            return
        if isinstance(answer, HeartbeatResponse):
            if answer.error_code == NO_ERROR:
                self._link.worked()
            else:
                self._take_heartbeat_code(answer.error_code, now_ms)
        else:
            self._heartbeats.stop()
            self._link.lost(now_ms)

    def _take_heartbeat_code(self, code: int, now_ms: int) -> None:
        if code == RebalanceInProgress.code:
            self.rejoin("the group is rebalancing", now_ms)
        elif code in _PUT_OUT:
            self._put_out(code)
        elif code in _MOVED:
            self._heartbeats.stop()
            self._link.lost(now_ms)
        elif not error_for_code(code).retriable:
            self._fail(error_for_code(code))

    # When things go wrong.

    def _try_again_later(self, now_ms: int) -> None:
        self._move_to(State.UNJOINED)
        self._failures += 1
        self._retry_ms = now_ms + self._backoff.after(self._failures, self._random)

    def _put_out(self, code: int) -> None:
        """The group went on without us: what we had is lost, and we join anew."""
        error = error_for_code(code)
        _logger.info("group %s: put out (%s); joining again", self._config.wire_group_id, error)
        self._heartbeats.stop()
        if code == UnknownMemberId.code:
            self._member_id = ""
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
            self._handover.give(Lost(lost, reason))

    def _fail(self, error: MillstreamError) -> None:
        self._heartbeats.stop()
        self._move_to(State.GONE)
        self._member_id = ""
        self._lose(error)
        self._host.failed(error)

    def _depart(
        self, now_ms: int, on_done: Callable[[], None], reason: str, *, says_so: bool
    ) -> None:
        self._heartbeats.stop()
        member_id, self._member_id = self._member_id, ""
        self._generation = NO_GENERATION
        self._tell_identity()
        if says_so and member_id:
            request = leave_request(self._config, member_id, reason)
            self._link.send_leave(request, now_ms, on_done)
        else:
            on_done()

    def _tell_identity(self) -> None:
        self._host.identity_changed(
            ConsumerGroupMetadata(
                self._config.wire_group_id,
                self._generation,
                self._member_id if self._generation != NO_GENERATION else "",
                self._config.group_instance_id,
            )
        )

    def _move_to(self, state: State) -> None:
        assert state in TRANSITIONS[self._state]
        self._state = state
        if state is not State.JOINING and self._round is not None:
            self._round.cancel()
            self._round = None


class Entrant(NamedTuple):
    """A member that joins, and what it says about itself."""

    member_id: str
    subscription: Subscription
    topics: frozenset[str]
    owned: frozenset[TopicPartition]
    previous: PreviousAssignment
    reason: str | None


class JoinRound:
    """One way into the next generation: JoinGroup, assigning if we lead, SyncGroup.

    `ClassicMember` begins a round and hears how it ended. A round that was cancelled says nothing
    more, so an answer that comes late cannot touch the rounds after it.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        link: Link,
        view: GroupView,
        entrant: Entrant,
        member: ClassicMember,
    ) -> None:
        self._config = config
        self._link = link
        self._view = view
        self._entrant = entrant
        self._member = member
        self._member_id = entrant.member_id
        self._generation = -1
        self._leads: Leadership | None = None
        self._waits_for_topics = False
        self._is_over = False

    def cancel(self) -> None:
        """Whatever comes of it, nobody wants to know."""
        self._is_over = True

    def join(self, now_ms: int) -> None:
        """Ask to be let in."""
        entrant = self._entrant
        protocols = offered_protocols(
            self._config.assignors,
            entrant.topics,
            entrant.owned,
            entrant.previous,
            self._config.client_rack,
        )
        self._link.send(
            join_request(self._config, self._member_id, protocols, entrant.reason),
            now_ms,
            self._on_joined,
            timeout_ms=self._answer_timeout_ms,
        )

    def poll(self, now_ms: int) -> None:
        """Go on when the leader knows the topics."""
        if self._waits_for_topics and not self._is_over:
            self._assign_when_informed(now_ms)

    @property
    def _answer_timeout_ms(self) -> int:
        # Both answers wait for the slowest member of the group.
        slowest_ms = self._config.max_poll_interval_ms + JOIN_SLACK_MS
        return max(slowest_ms, self._config.request_timeout_ms)

    def _on_joined(self, answer: Message | MillstreamError, now_ms: int) -> None:
        if self._is_over:
            return
        if not isinstance(answer, JoinGroupResponse):
            self._break_down(answer, now_ms)
        elif answer.error_code == MemberIdRequired.code:
            self._member_id = answer.member_id
            self._member.on_member_id(answer.member_id)
            self.join(now_ms)
        elif answer.error_code != NO_ERROR:
            self._refuse(answer.error_code, now_ms)
        else:
            self._enter(answer, now_ms)

    def _enter(self, answer: JoinGroupResponse, now_ms: int) -> None:
        self._member_id = answer.member_id
        self._generation = answer.generation_id
        name = answer.protocol_name or ""
        assignor = next((each for each in self._config.assignors if each.name == name), None)
        if answer.leader == answer.member_id and assignor is not None:
            self._leads = Leadership(assignor, answer, self._view)
        self._member.on_member_id(answer.member_id)
        self._member.on_generation(answer.generation_id, self._leads)
        if self._leads is None:
            self._sync(name, [], now_ms)
            return
        self._view.follow(self._entrant.subscription, self._leads.topics)
        self._leads.ask()
        self._assign_when_informed(now_ms)

    def _assign_when_informed(self, now_ms: int) -> None:
        assert self._leads is not None
        self._waits_for_topics = not self._leads.is_informed
        if self._waits_for_topics:
            return
        try:
            assignments = self._leads.assign()
        except MillstreamError as error:
            self._break_down(error, now_ms)
        else:
            self._sync(self._leads.assignor.name, assignments, now_ms)

    def _sync(
        self, protocol: str, assignments: list[SyncGroupRequestAssignment], now_ms: int
    ) -> None:
        request = sync_request(
            self._config, self._member_id, self._generation, protocol, assignments
        )
        self._link.send(request, now_ms, self._on_synced, timeout_ms=self._answer_timeout_ms)

    def _on_synced(self, answer: Message | MillstreamError, now_ms: int) -> None:
        if self._is_over:
            return
        if not isinstance(answer, SyncGroupResponse):
            self._break_down(answer, now_ms)
        elif answer.error_code != NO_ERROR:
            self._refuse(answer.error_code, now_ms)
        else:
            try:
                assigned = read_assignment(answer.assignment)
            except MillstreamError as error:
                self._break_down(error, now_ms)
                return
            self._is_over = True
            self._member.on_assignment(assigned, now_ms)

    def _refuse(self, code: int, now_ms: int) -> None:
        self._is_over = True
        self._member.on_refusal(code, now_ms)

    def _break_down(self, error: Message | MillstreamError, now_ms: int) -> None:
        assert isinstance(error, MillstreamError)
        self._is_over = True
        self._member.on_breakdown(error, now_ms)


class Leadership:
    """One generation's leader."""

    def __init__(self, assignor: Assignor, answer: JoinGroupResponse, view: GroupView) -> None:
        self.assignor = assignor
        self._members = read_members(answer.members)
        self._view = view
        # The coordinator wants nothing assigned when a static member came back as the leader.
        self._skips = answer.skip_assignment
        self.topics = frozenset[str]().union(*(each.topics for each in self._members.values()))
        """What the whole group reads."""
        self._needed_update = 0
        self._sizes: dict[str, int] | None = None

    def ask(self) -> None:
        """Find out how large the topics are."""
        self._needed_update = self._view.need(self.topics)

    @property
    def is_informed(self) -> bool:
        """Whether all is known that can be known."""
        return self._view.updates >= self._needed_update

    def assign(self) -> list[SyncGroupRequestAssignment]:
        """Decide who gets what; raises what the assignor failed with."""
        topics = self._view.group_topics(self.topics)
        self._sizes = dict(topics.partition_counts)
        return [] if self._skips else computed_assignments(self.assignor, self._members, topics)

    def have_topics_changed(self) -> bool:
        """Whether the assignment is out of date; says so once."""
        sizes = self._view.sizes(self.topics)
        if self._sizes is None or sizes == self._sizes:
            return False
        self._sizes = sizes
        return True
