"""Authentication, authorization, credentials and quotas.

One class per wire code, in the order of the codes. No behaviour lives here.
"""

from __future__ import annotations

from millstream.errors.base import ApiError, RetriableError

__all__ = [
    "ClusterAuthorizationFailed",
    "DelegationTokenAuthDisabled",
    "DelegationTokenAuthorizationFailed",
    "DelegationTokenExpired",
    "DelegationTokenNotFound",
    "DelegationTokenOwnerMismatch",
    "DelegationTokenRequestNotAllowed",
    "DuplicateResource",
    "GroupAuthorizationFailed",
    "IllegalSaslState",
    "InvalidPrincipalType",
    "PrincipalDeserializationFailure",
    "ResourceNotFound",
    "SaslAuthenticationFailed",
    "SecurityDisabled",
    "ThrottlingQuotaExceeded",
    "TopicAuthorizationFailed",
    "UnacceptableCredential",
    "UnsupportedSaslMechanism",
]


class TopicAuthorizationFailed(ApiError):
    """The principal may not do this to the topic."""

    code, wire_name = 29, "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailed(ApiError):
    """The principal may not do this to the group."""

    code, wire_name = 30, "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailed(ApiError):
    """The principal may not do this to the cluster."""

    code, wire_name = 31, "CLUSTER_AUTHORIZATION_FAILED"


class UnsupportedSaslMechanism(ApiError):
    """The broker does not offer that SASL mechanism."""

    code, wire_name = 33, "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslState(ApiError):
    """The request does not belong at this point of the SASL handshake."""

    code, wire_name = 34, "ILLEGAL_SASL_STATE"


class SecurityDisabled(ApiError):
    """The broker has no authorizer."""

    code, wire_name = 54, "SECURITY_DISABLED"


class SaslAuthenticationFailed(ApiError):
    """The credentials were refused."""

    code, wire_name = 58, "SASL_AUTHENTICATION_FAILED"


class DelegationTokenAuthDisabled(ApiError):
    """Delegation tokens are not enabled here."""

    code, wire_name = 61, "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFound(ApiError):
    """There is no such delegation token."""

    code, wire_name = 62, "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatch(ApiError):
    """The principal neither owns nor may renew the delegation token."""

    code, wire_name = 63, "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowed(ApiError):
    """Delegation tokens cannot be handled over this connection."""

    code, wire_name = 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailed(ApiError):
    """The principal may not use that delegation token."""

    code, wire_name = 65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpired(ApiError):
    """The delegation token has expired."""

    code, wire_name = 66, "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalType(ApiError):
    """That type of principal is not supported."""

    code, wire_name = 67, "INVALID_PRINCIPAL_TYPE"


class ThrottlingQuotaExceeded(RetriableError):
    """The quota is used up; wait as long as the response says."""

    code, wire_name = 89, "THROTTLING_QUOTA_EXCEEDED"


class ResourceNotFound(ApiError):
    """There is no such resource."""

    code, wire_name = 91, "RESOURCE_NOT_FOUND"


class DuplicateResource(ApiError):
    """The request names the same resource twice."""

    code, wire_name = 92, "DUPLICATE_RESOURCE"


class UnacceptableCredential(ApiError):
    """The credential does not meet the broker's demands."""

    code, wire_name = 93, "UNACCEPTABLE_CREDENTIAL"


class PrincipalDeserializationFailure(ApiError):
    """The principal in a forwarded request could not be read."""

    code, wire_name = 97, "PRINCIPAL_DESERIALIZATION_FAILURE"
