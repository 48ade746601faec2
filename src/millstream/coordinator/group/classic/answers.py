"""Answers to members that had to wait, on their way out.

An answer may bring the member's next request at once, so none leaves before the decision that it
belongs to is whole: its state changed, its records in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from millstream.coordinator.decision import Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.coordinator.decision import CoordinatorRecord
    from millstream.coordinator.group.classic.group import ClassicGroup
    from millstream.coordinator.group.classic.member import ClassicMember
    from millstream.errors import ApiError
    from millstream.protocol.messages.join_group import JoinGroupResponse
    from millstream.protocol.messages.sync_group import SyncGroupResponse

T = TypeVar("T")


class Answers:
    """What is to be said when the decision is through."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def join(self, group: ClassicGroup, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Answer a member if it waits to join."""
        respond = member.awaiting_join
        if respond is not None:
            group.park(member, None)
            self._due.append(lambda: respond(response))

    def sync(self, member: ClassicMember, response: SyncGroupResponse) -> bool:
        """Answer a member if it waits for its assignment; whether it did."""
        respond, member.awaiting_sync = member.awaiting_sync, None
        if respond is None:
            return False
        self._due.append(lambda: respond(response))
        return True

    def decision(self, response: T, records: Sequence[CoordinatorRecord] = ()) -> Decision[T]:
        """A decision whose state is changed already, and with which the answers leave."""
        if not self._due:
            return Decision(response, records, is_replayed=False)
        due, self._due = self._due, []

        def committed(error: ApiError | None) -> None:
            for answer in due:
                answer()

        return Decision(response, records, committed, is_replayed=False)

    def send(self) -> None:
        """Let the answers leave now: a decision has come through."""
        due, self._due = self._due, []
        for answer in due:
            answer()
