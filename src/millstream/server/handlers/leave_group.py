"""LeaveGroup 0-5: members go; from version 3 on several at once, each with its own error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ApiError, UnknownMemberId
from millstream.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from millstream.server.coordinator_calls import caller_of

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.server.exchange import Exchange

_BATCH_SINCE: Final = 3


def handle_leave_group(
    request: LeaveGroupRequest, exchange: Exchange, groups: GroupCoordinator
) -> None:
    """Let them go."""
    version = exchange.version
    if version < _BATCH_SINCE:
        request.members = [MemberIdentity(member_id=request.member_id)]

    def done(outcome: LeaveGroupResponse | ApiError) -> None:
        if isinstance(outcome, ApiError):
            outcome = fail_leave_group(request, outcome, version)
        elif version < _BATCH_SINCE:
            outcome = LeaveGroupResponse(error_code=outcome.members[0].error_code)
        exchange.answer(outcome)

    groups.leave_group(request, caller_of(exchange), done)


def fail_leave_group(
    request: LeaveGroupRequest, error: ApiError, version: int
) -> LeaveGroupResponse:
    """The error for all; where the group is not known, of each member, as Kafka has it."""
    if version >= _BATCH_SINCE and isinstance(error, UnknownMemberId):
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=error.code,
                )
                for each in request.members
            ]
        )
    return LeaveGroupResponse(error_code=error.code)
