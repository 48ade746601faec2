"""Consumer, share and streams groups, and their offsets.

One class per wire code, in the order of the codes. No behaviour lives here.
"""

from __future__ import annotations

from millstream.errors.base import ApiError, RetriableError

__all__ = [
    "CoordinatorLoadInProgress",
    "CoordinatorNotAvailable",
    "FencedInstanceId",
    "FencedMemberEpoch",
    "FencedStateEpoch",
    "GroupDeletionFailed",
    "GroupIdNotFound",
    "GroupMaxSizeReached",
    "GroupSubscribedToTopic",
    "IllegalGeneration",
    "InconsistentGroupProtocol",
    "InvalidCommitOffsetSize",
    "InvalidGroupId",
    "InvalidRecordState",
    "InvalidRegularExpression",
    "InvalidSessionTimeout",
    "InvalidShareSessionEpoch",
    "MemberIdRequired",
    "NonEmptyGroup",
    "NotCoordinator",
    "RebalanceInProgress",
    "ShareSessionLimitReached",
    "ShareSessionNotFound",
    "StaleMemberEpoch",
    "StreamsInvalidTopology",
    "StreamsInvalidTopologyEpoch",
    "StreamsTopologyDescriptionUpdateFailed",
    "StreamsTopologyFenced",
    "UnknownMemberId",
    "UnreleasedInstanceId",
    "UnstableOffsetCommit",
    "UnsupportedAssignor",
]


class CoordinatorLoadInProgress(RetriableError):
    """The coordinator is still reading its state; ask again shortly."""

    code, wire_name = 14, "COORDINATOR_LOAD_IN_PROGRESS"


class CoordinatorNotAvailable(RetriableError):
    """There is no coordinator at the moment; find it again."""

    code, wire_name = 15, "COORDINATOR_NOT_AVAILABLE"


class NotCoordinator(RetriableError):
    """This broker does not coordinate that group or transaction; find the one that does."""

    code, wire_name = 16, "NOT_COORDINATOR"


class IllegalGeneration(ApiError):
    """The member speaks of a generation that is not the group's; it must join again."""

    code, wire_name = 22, "ILLEGAL_GENERATION"


class InconsistentGroupProtocol(ApiError):
    """The member supports none of the protocols that the group's members share."""

    code, wire_name = 23, "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupId(ApiError):
    """The group id is empty or not legal."""

    code, wire_name = 24, "INVALID_GROUP_ID"


class UnknownMemberId(ApiError):
    """The group has no such member; it must join again."""

    code, wire_name = 25, "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeout(ApiError):
    """The session timeout lies outside the broker's limits."""

    code, wire_name = 26, "INVALID_SESSION_TIMEOUT"


class RebalanceInProgress(ApiError):
    """The group is rebalancing; the member must join again."""

    code, wire_name = 27, "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSize(ApiError):
    """The commit would need more room than one batch may have."""

    code, wire_name = 28, "INVALID_COMMIT_OFFSET_SIZE"


class NonEmptyGroup(ApiError):
    """The group still has members."""

    code, wire_name = 68, "NON_EMPTY_GROUP"


class GroupIdNotFound(ApiError):
    """There is no such group."""

    code, wire_name = 69, "GROUP_ID_NOT_FOUND"


class MemberIdRequired(ApiError):
    """The member must join again with the member id it was just given."""

    code, wire_name = 79, "MEMBER_ID_REQUIRED"


class GroupMaxSizeReached(ApiError):
    """The group has as many members as it may have."""

    code, wire_name = 81, "GROUP_MAX_SIZE_REACHED"


class FencedInstanceId(ApiError):
    """Another member has taken over this static instance id."""

    code, wire_name = 82, "FENCED_INSTANCE_ID"


class GroupSubscribedToTopic(ApiError):
    """The group is subscribed to the topic, so its offsets cannot be deleted."""

    code, wire_name = 86, "GROUP_SUBSCRIBED_TO_TOPIC"


class UnstableOffsetCommit(RetriableError):
    """An undecided transaction holds offsets of this partition; ask again."""

    code, wire_name = 88, "UNSTABLE_OFFSET_COMMIT"


class FencedMemberEpoch(ApiError):
    """The member's epoch is not the one the coordinator gave; it must join again."""

    code, wire_name = 110, "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceId(ApiError):
    """The static instance id still belongs to another member."""

    code, wire_name = 111, "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignor(ApiError):
    """The coordinator does not have the assignor that the member asks for."""

    code, wire_name = 112, "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpoch(ApiError):
    """The member's epoch is old; retry after the next heartbeat."""

    code, wire_name = 113, "STALE_MEMBER_EPOCH"


class InvalidRecordState(ApiError):
    """The record is not acquired by this member, so it cannot be acknowledged."""

    code, wire_name = 121, "INVALID_RECORD_STATE"


class ShareSessionNotFound(RetriableError):
    """The broker no longer knows that share session; start a new one."""

    code, wire_name = 122, "SHARE_SESSION_NOT_FOUND"


class InvalidShareSessionEpoch(RetriableError):
    """The share session is at another epoch; start a new one."""

    code, wire_name = 123, "INVALID_SHARE_SESSION_EPOCH"


class FencedStateEpoch(ApiError):
    """The share state has been taken over at a later epoch."""

    code, wire_name = 124, "FENCED_STATE_EPOCH"


class InvalidRegularExpression(ApiError):
    """The subscription's regular expression is not valid RE2."""

    code, wire_name = 128, "INVALID_REGULAR_EXPRESSION"


class StreamsInvalidTopology(ApiError):
    """The streams topology is not valid."""

    code, wire_name = 130, "STREAMS_INVALID_TOPOLOGY"


class StreamsInvalidTopologyEpoch(ApiError):
    """The streams topology epoch is not valid."""

    code, wire_name = 131, "STREAMS_INVALID_TOPOLOGY_EPOCH"


class StreamsTopologyFenced(ApiError):
    """The streams topology epoch is older than the group's."""

    code, wire_name = 132, "STREAMS_TOPOLOGY_FENCED"


class ShareSessionLimitReached(RetriableError):
    """The broker has as many share sessions as it may have."""

    code, wire_name = 133, "SHARE_SESSION_LIMIT_REACHED"


class GroupDeletionFailed(ApiError):
    """The group could not be deleted."""

    code, wire_name = 134, "GROUP_DELETION_FAILED"


class StreamsTopologyDescriptionUpdateFailed(ApiError):
    """The description of the streams topology could not be stored."""

    code, wire_name = 135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED"
