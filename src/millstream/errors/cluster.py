"""The cluster: brokers, controllers, the raft quorum, requests and their versions.

One class per wire code, in the order of the codes. No behaviour lives here.
"""

from __future__ import annotations

from millstream.errors.base import ApiError, RetriableError, StaleMetadataError

__all__ = [
    "BrokerIdNotRegistered",
    "BrokerNotAvailable",
    "ControllerIdNotRegistered",
    "DuplicateBrokerRegistration",
    "DuplicateVoter",
    "FeatureUpdateFailed",
    "InconsistentClusterId",
    "InconsistentVoterSet",
    "IneligibleReplica",
    "InvalidConfig",
    "InvalidRegistration",
    "InvalidRequest",
    "InvalidUpdateVersion",
    "InvalidVoterKey",
    "MismatchedEndpointType",
    "NetworkException",
    "NewLeaderElected",
    "NotController",
    "OperationNotAttempted",
    "PolicyViolation",
    "RebootstrapRequired",
    "SnapshotNotFound",
    "StaleBrokerEpoch",
    "StaleControllerEpoch",
    "TelemetryTooLarge",
    "UnknownControllerId",
    "UnknownServerError",
    "UnknownSubscriptionId",
    "UnsupportedEndpointType",
    "UnsupportedVersion",
    "VoterNotFound",
]


class UnknownServerError(ApiError):
    """The server met an error it did not foresee."""

    code, wire_name = -1, "UNKNOWN_SERVER_ERROR"


class BrokerNotAvailable(ApiError):
    """The broker is not available."""

    code, wire_name = 8, "BROKER_NOT_AVAILABLE"


class StaleControllerEpoch(ApiError):
    """The controller speaks from an epoch that is over."""

    code, wire_name = 11, "STALE_CONTROLLER_EPOCH"


class NetworkException(StaleMetadataError):
    """The connection was lost before the answer came."""

    code, wire_name = 13, "NETWORK_EXCEPTION"


class UnsupportedVersion(ApiError):
    """The other side does not support this version of the request."""

    code, wire_name = 35, "UNSUPPORTED_VERSION"


class InvalidConfig(ApiError):
    """A setting is not valid."""

    code, wire_name = 40, "INVALID_CONFIG"


class NotController(RetriableError):
    """This node is not the active controller."""

    code, wire_name = 41, "NOT_CONTROLLER"


class InvalidRequest(ApiError):
    """The request contradicts itself or breaks a rule of the protocol."""

    code, wire_name = 42, "INVALID_REQUEST"


class PolicyViolation(ApiError):
    """The request breaks a policy of this cluster."""

    code, wire_name = 44, "POLICY_VIOLATION"


class OperationNotAttempted(ApiError):
    """Nothing was tried, because another part of the same request failed."""

    code, wire_name = 55, "OPERATION_NOT_ATTEMPTED"


class StaleBrokerEpoch(ApiError):
    """The broker has registered again since; its old epoch is over."""

    code, wire_name = 77, "STALE_BROKER_EPOCH"


class InconsistentVoterSet(ApiError):
    """The voters of the two sides differ."""

    code, wire_name = 94, "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersion(ApiError):
    """The update was made against an older version of the state."""

    code, wire_name = 95, "INVALID_UPDATE_VERSION"


class FeatureUpdateFailed(ApiError):
    """The feature level could not be changed."""

    code, wire_name = 96, "FEATURE_UPDATE_FAILED"


class SnapshotNotFound(ApiError):
    """There is no such snapshot."""

    code, wire_name = 98, "SNAPSHOT_NOT_FOUND"


class DuplicateBrokerRegistration(ApiError):
    """A broker of that id is registered and alive."""

    code, wire_name = 101, "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegistered(ApiError):
    """No broker of that id is registered."""

    code, wire_name = 102, "BROKER_ID_NOT_REGISTERED"


class InconsistentClusterId(ApiError):
    """The request is meant for another cluster."""

    code, wire_name = 104, "INCONSISTENT_CLUSTER_ID"


class IneligibleReplica(ApiError):
    """A replica of the new in-sync set may not be in it."""

    code, wire_name = 107, "INELIGIBLE_REPLICA"


class NewLeaderElected(ApiError):
    """The change was applied and moved the leadership."""

    code, wire_name = 108, "NEW_LEADER_ELECTED"


class MismatchedEndpointType(ApiError):
    """The request was sent to a controller instead of a broker, or the reverse."""

    code, wire_name = 114, "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointType(ApiError):
    """The node does not know that type of endpoint."""

    code, wire_name = 115, "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerId(ApiError):
    """There is no such controller."""

    code, wire_name = 116, "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionId(ApiError):
    """The telemetry subscription has changed; fetch it again."""

    code, wire_name = 117, "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLarge(ApiError):
    """The telemetry is larger than the broker accepts."""

    code, wire_name = 118, "TELEMETRY_TOO_LARGE"


class InvalidRegistration(ApiError):
    """The controller refused the broker's registration."""

    code, wire_name = 119, "INVALID_REGISTRATION"


class InvalidVoterKey(ApiError):
    """The voter's id and directory do not belong together."""

    code, wire_name = 125, "INVALID_VOTER_KEY"


class DuplicateVoter(ApiError):
    """The voter is in the quorum already."""

    code, wire_name = 126, "DUPLICATE_VOTER"


class VoterNotFound(ApiError):
    """The voter is not in the quorum."""

    code, wire_name = 127, "VOTER_NOT_FOUND"


class RebootstrapRequired(ApiError):
    """The client must forget its metadata and begin from its bootstrap addresses."""

    code, wire_name = 129, "REBOOTSTRAP_REQUIRED"


class ControllerIdNotRegistered(ApiError):
    """No controller of that id is registered."""

    code, wire_name = 136, "CONTROLLER_ID_NOT_REGISTERED"
