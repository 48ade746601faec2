"""One way into the next generation of a classic group: JoinGroup, assigning if we lead, SyncGroup.

`ClassicMember` begins a round and hears how it ended. A round that was cancelled says nothing more,
so an answer that comes late cannot touch the rounds after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from millstream.client.consumer.membership.classic_leader import Leadership
from millstream.client.consumer.membership.classic_messages import (
    join_request,
    offered_protocols,
    read_assignment,
    sync_request,
)
from millstream.errors import NO_ERROR, MemberIdRequired, MillstreamError
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from millstream.client.consumer.membership.assignors import PreviousAssignment
    from millstream.client.consumer.membership.group_view import GroupView
    from millstream.client.consumer.membership.machine import Link
    from millstream.client.consumer.membership.settings import MembershipSettings
    from millstream.client.consumer.membership.subscription import Subscription
    from millstream.protocol.message import Message
    from millstream.protocol.messages.sync_group import SyncGroupRequestAssignment
    from millstream.types import TopicPartition

JOIN_SLACK_MS: Final = 5_000
"""How much longer than the group may take a member waits for the answer to its JoinGroup."""


class Entrant(NamedTuple):
    """Who joins, and what it says about itself."""

    member_id: str
    subscription: Subscription
    topics: frozenset[str]
    owned: frozenset[TopicPartition]
    previous: PreviousAssignment
    reason: str | None


class RoundOutcome(Protocol):
    """Whoever began the round."""

    def on_member_id(self, member_id: str) -> None:
        """The coordinator has given us an id."""

    def on_generation(self, generation: int, leads: Leadership | None) -> None:
        """We are in a generation; if we lead it, this says so."""

    def on_assignment(self, assigned: frozenset[TopicPartition], now_ms: int) -> None:
        """The round is over: this is ours."""

    def on_refusal(self, code: int, now_ms: int) -> None:
        """The round is over: the coordinator refused with a code."""

    def on_breakdown(self, error: MillstreamError, now_ms: int) -> None:
        """The round is over: no answer, or one that cannot be used."""


class JoinRound:
    """One round; used once."""

    def __init__(
        self,
        settings: MembershipSettings,
        link: Link,
        view: GroupView,
        entrant: Entrant,
        outcome: RoundOutcome,
    ) -> None:
        self._settings = settings
        self._link = link
        self._view = view
        self._entrant = entrant
        self._outcome = outcome
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
            self._settings.assignors,
            entrant.topics,
            entrant.owned,
            entrant.previous,
            self._settings.client_rack,
        )
        self._link.send(
            join_request(self._settings, self._member_id, protocols, entrant.reason),
            now_ms,
            self._on_joined,
            timeout_ms=self._patience_ms,
        )

    def poll(self, now_ms: int) -> None:
        """Go on when the leader knows the topics."""
        if self._waits_for_topics and not self._is_over:
            self._assign_when_informed(now_ms)

    @property
    def _patience_ms(self) -> int:
        # Both answers wait for the slowest member of the group.
        slowest_ms = self._settings.max_poll_interval_ms + JOIN_SLACK_MS
        return max(slowest_ms, self._settings.request_timeout_ms)

    def _on_joined(self, answer: Message | MillstreamError, now_ms: int) -> None:
        if self._is_over:
            return
        if not isinstance(answer, JoinGroupResponse):
            self._break_down(answer, now_ms)
        elif answer.error_code == MemberIdRequired.code:
            self._member_id = answer.member_id
            self._outcome.on_member_id(answer.member_id)
            self.join(now_ms)
        elif answer.error_code != NO_ERROR:
            self._refuse(answer.error_code, now_ms)
        else:
            self._enter(answer, now_ms)

    def _enter(self, answer: JoinGroupResponse, now_ms: int) -> None:
        self._member_id = answer.member_id
        self._generation = answer.generation_id
        name = answer.protocol_name or ""
        assignor = next((each for each in self._settings.assignors if each.name == name), None)
        if answer.leader == answer.member_id and assignor is not None:
            self._leads = Leadership(assignor, answer, self._view)
        self._outcome.on_member_id(answer.member_id)
        self._outcome.on_generation(answer.generation_id, self._leads)
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
            self._settings, self._member_id, self._generation, protocol, assignments
        )
        self._link.send(request, now_ms, self._on_synced, timeout_ms=self._patience_ms)

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
            self._outcome.on_assignment(assigned, now_ms)

    def _refuse(self, code: int, now_ms: int) -> None:
        self._is_over = True
        self._outcome.on_refusal(code, now_ms)

    def _break_down(self, error: Message | MillstreamError, now_ms: int) -> None:
        assert isinstance(error, MillstreamError)
        self._is_over = True
        self._outcome.on_breakdown(error, now_ms)
