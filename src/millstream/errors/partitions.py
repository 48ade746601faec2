"""Reading and writing partitions, and the metadata that finds them.

One class per wire code, in the order of the codes. No behaviour lives here.
"""

from __future__ import annotations

from millstream.errors.base import ApiError, RetriableError, StaleMetadataError

__all__ = [
    "CorruptMessage",
    "DecompressedTooLarge",
    "ElectionNotNeeded",
    "EligibleLeadersNotAvailable",
    "FencedLeaderEpoch",
    "FetchSessionIdNotFound",
    "FetchSessionTopicIdError",
    "InconsistentTopicId",
    "InvalidFetchSessionEpoch",
    "InvalidFetchSize",
    "InvalidPartitions",
    "InvalidRecord",
    "InvalidReplicaAssignment",
    "InvalidReplicationFactor",
    "InvalidRequiredAcks",
    "InvalidTimestamp",
    "InvalidTopic",
    "KafkaStorageError",
    "LeaderNotAvailable",
    "ListenerNotFound",
    "LogDirNotFound",
    "MessageTooLarge",
    "NoReassignmentInProgress",
    "NotEnoughReplicas",
    "NotEnoughReplicasAfterAppend",
    "NotLeaderOrFollower",
    "OffsetMetadataTooLarge",
    "OffsetMovedToTieredStorage",
    "OffsetNotAvailable",
    "OffsetOutOfRange",
    "PositionOutOfRange",
    "PreferredLeaderNotAvailable",
    "ReassignmentInProgress",
    "RecordListTooLarge",
    "ReplicaNotAvailable",
    "RequestTimedOut",
    "TopicAlreadyExists",
    "TopicDeletionDisabled",
    "UnknownLeaderEpoch",
    "UnknownTopicId",
    "UnknownTopicOrPartition",
    "UnsupportedCompressionType",
    "UnsupportedForMessageFormat",
]


class OffsetOutOfRange(ApiError):
    """The offset lies outside what the partition keeps; seek to its start or end."""

    code, wire_name = 1, "OFFSET_OUT_OF_RANGE"


class CorruptMessage(RetriableError):
    """The bytes of a record batch are damaged: wrong checksum, size or structure."""

    code, wire_name = 2, "CORRUPT_MESSAGE"


class DecompressedTooLarge(CorruptMessage):
    """A compressed batch grows past the limit its reader has set."""


class UnknownTopicOrPartition(StaleMetadataError):
    """This broker does not have that topic or partition."""

    code, wire_name = 3, "UNKNOWN_TOPIC_OR_PARTITION"


class InvalidFetchSize(ApiError):
    """The size asked for in a fetch is not acceptable."""

    code, wire_name = 4, "INVALID_FETCH_SIZE"


class LeaderNotAvailable(StaleMetadataError):
    """The partition has no leader at the moment; an election is going on."""

    code, wire_name = 5, "LEADER_NOT_AVAILABLE"


class NotLeaderOrFollower(StaleMetadataError):
    """This broker has not the role the request needs; the asker's metadata is stale."""

    code, wire_name = 6, "NOT_LEADER_OR_FOLLOWER"


class RequestTimedOut(RetriableError):
    """The request was not finished within its time; what was appended stays appended."""

    code, wire_name = 7, "REQUEST_TIMED_OUT"


class ReplicaNotAvailable(StaleMetadataError):
    """The broker does not hold a replica of that partition."""

    code, wire_name = 9, "REPLICA_NOT_AVAILABLE"


class MessageTooLarge(ApiError):
    """The batch is larger than the topic's `max.message.bytes`."""

    code, wire_name = 10, "MESSAGE_TOO_LARGE"


class OffsetMetadataTooLarge(ApiError):
    """The text stored with a committed offset is larger than the broker allows."""

    code, wire_name = 12, "OFFSET_METADATA_TOO_LARGE"


class InvalidTopic(ApiError):
    """The topic's name is not legal, or the topic is not open to this operation."""

    code, wire_name = 17, "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(ApiError):
    """The records of one append do not fit in one segment."""

    code, wire_name = 18, "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicas(RetriableError):
    """Fewer replicas are in sync than the topic demands; nothing was appended."""

    code, wire_name = 19, "NOT_ENOUGH_REPLICAS"


class NotEnoughReplicasAfterAppend(RetriableError):
    """The records were appended, but too few replicas were in sync to call them safe."""

    code, wire_name = 20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class InvalidRequiredAcks(ApiError):
    """`acks` must be 0, 1 or -1 (all)."""

    code, wire_name = 21, "INVALID_REQUIRED_ACKS"


class InvalidTimestamp(ApiError):
    """A record's timestamp is further from the broker's clock than the topic allows."""

    code, wire_name = 32, "INVALID_TIMESTAMP"
    record_errors: tuple[tuple[int, str], ...] = ()
    """The records that are to blame, by index in the batch; empty if the batch as such is."""


class TopicAlreadyExists(ApiError):
    """A topic of that name exists already."""

    code, wire_name = 36, "TOPIC_ALREADY_EXISTS"


class InvalidPartitions(ApiError):
    """That number of partitions is not acceptable."""

    code, wire_name = 37, "INVALID_PARTITIONS"


class InvalidReplicationFactor(ApiError):
    """The replication factor is below 1 or above the number of usable brokers."""

    code, wire_name = 38, "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignment(ApiError):
    """The replica assignment names wrong brokers, repeats one, or has holes."""

    code, wire_name = 39, "INVALID_REPLICA_ASSIGNMENT"


class UnsupportedForMessageFormat(ApiError):
    """The records on disk are in a format that cannot serve this request."""

    code, wire_name = 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class KafkaStorageError(StaleMetadataError):
    """The broker's disk refused to read or write; the log directory may be offline."""

    code, wire_name = 56, "KAFKA_STORAGE_ERROR"


class LogDirNotFound(ApiError):
    """The broker has no such log directory."""

    code, wire_name = 57, "LOG_DIR_NOT_FOUND"


class ReassignmentInProgress(ApiError):
    """The partition is being moved already."""

    code, wire_name = 60, "REASSIGNMENT_IN_PROGRESS"


class FetchSessionIdNotFound(RetriableError):
    """The broker no longer knows that fetch session; start a new one."""

    code, wire_name = 70, "FETCH_SESSION_ID_NOT_FOUND"


class InvalidFetchSessionEpoch(RetriableError):
    """The fetch session is at another epoch; start a new one."""

    code, wire_name = 71, "INVALID_FETCH_SESSION_EPOCH"


class ListenerNotFound(StaleMetadataError):
    """The partition's leader has no listener of the kind this request came through."""

    code, wire_name = 72, "LISTENER_NOT_FOUND"


class TopicDeletionDisabled(ApiError):
    """Topics cannot be deleted here: `delete.topic.enable` is false."""

    code, wire_name = 73, "TOPIC_DELETION_DISABLED"


class FencedLeaderEpoch(StaleMetadataError):
    """The asker's leader epoch is older than the broker's."""

    code, wire_name = 74, "FENCED_LEADER_EPOCH"


class UnknownLeaderEpoch(RetriableError):
    """The asker's leader epoch is newer than the broker knows yet."""

    code, wire_name = 75, "UNKNOWN_LEADER_EPOCH"


class UnsupportedCompressionType(ApiError):
    """The batch's compression is not allowed in this version of the request."""

    code, wire_name = 76, "UNSUPPORTED_COMPRESSION_TYPE"


class OffsetNotAvailable(RetriableError):
    """The new leader does not know yet up to where records are committed."""

    code, wire_name = 78, "OFFSET_NOT_AVAILABLE"


class PreferredLeaderNotAvailable(StaleMetadataError):
    """The first replica of the assignment cannot lead at the moment."""

    code, wire_name = 80, "PREFERRED_LEADER_NOT_AVAILABLE"


class EligibleLeadersNotAvailable(StaleMetadataError):
    """No replica that may lead the partition is available."""

    code, wire_name = 83, "ELIGIBLE_LEADERS_NOT_AVAILABLE"


class ElectionNotNeeded(StaleMetadataError):
    """The partition has the right leader already."""

    code, wire_name = 84, "ELECTION_NOT_NEEDED"


class NoReassignmentInProgress(ApiError):
    """The partition is not being moved."""

    code, wire_name = 85, "NO_REASSIGNMENT_IN_PROGRESS"


class InvalidRecord(ApiError):
    """A record was refused: see the message for which one and why."""

    code, wire_name = 87, "INVALID_RECORD"
    record_errors: tuple[tuple[int, str], ...] = ()
    """The records that are to blame, by index in the batch; empty if the batch as such is."""


class PositionOutOfRange(ApiError):
    """The position lies outside the snapshot."""

    code, wire_name = 99, "POSITION_OUT_OF_RANGE"


class UnknownTopicId(StaleMetadataError):
    """This broker does not know that topic id."""

    code, wire_name = 100, "UNKNOWN_TOPIC_ID"


class InconsistentTopicId(StaleMetadataError):
    """The log on disk belongs to another topic id."""

    code, wire_name = 103, "INCONSISTENT_TOPIC_ID"


class FetchSessionTopicIdError(RetriableError):
    """The fetch session mixes requests with and without topic ids; start a new one."""

    code, wire_name = 106, "FETCH_SESSION_TOPIC_ID_ERROR"


class OffsetMovedToTieredStorage(ApiError):
    """The offset is no longer on the broker's disk but in tiered storage."""

    code, wire_name = 109, "OFFSET_MOVED_TO_TIERED_STORAGE"
