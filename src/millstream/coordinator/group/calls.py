"""The calls of members of the classic protocol, as a kind of group answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from millstream.coordinator.decision import Caller, Decision, Moment
    from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from millstream.protocol.messages.join_group import JoinGroupRequest
    from millstream.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from millstream.protocol.messages.sync_group import SyncGroupRequest

JoinAnswer: TypeAlias = Callable[[JoinGroupResponse], None]
"""Takes the answer to a JoinGroup that had to wait."""
SyncAnswer: TypeAlias = Callable[[SyncGroupResponse], None]
"""Takes the answer to a SyncGroup that had to wait."""


class ClassicCalls(Protocol):
    """How a kind of group answers them; each raises ApiError to refuse."""

    def join(
        self, request: JoinGroupRequest, caller: Caller, respond: JoinAnswer, now: Moment
    ) -> Decision[JoinGroupResponse | None]:
        """A member enters; no response if it must wait, then `respond` gets it."""
        ...

    def sync(
        self, request: SyncGroupRequest, respond: SyncAnswer, now: Moment
    ) -> Decision[SyncGroupResponse | None]:
        """A member gives or wants the assignment; no response if it must wait."""
        ...

    def heartbeat(self, request: HeartbeatRequest, now: Moment) -> Decision[HeartbeatResponse]:
        """A member is alive."""
        ...

    def leave(self, request: LeaveGroupRequest, now: Moment) -> Decision[LeaveGroupResponse]:
        """Members go."""
        ...
