"""Delegation tokens: issue, renew, expire, sweep. Rule 6 of section 6.11 of the facts.

Whether the asker's connection is fit for tokens at all is checked where connections are known.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.controller.decision import Decision
from millstream.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    InvalidPrincipalType,
    UnsupportedVersion,
)
from millstream.metadata.delegation_tokens import TokenInformation
from millstream.metadata.features import DELEGATION_TOKENS_SINCE, METADATA_VERSION
from millstream.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from millstream.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from millstream.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from millstream.protocol.messages.security_records import RemoveDelegationTokenRecord
from millstream.types import INT64_MAX, Uuid

if TYPE_CHECKING:
    from millstream.controller.config import ControllerConfig
    from millstream.controller.decision import RequestContext
    from millstream.controller.replication_control import ControllerState
    from millstream.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
    from millstream.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
    from millstream.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

_USER: Final = "User"


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """What a client proves that it holds a token with."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


class DelegationTokenControl:
    """Decides about tokens."""

    def __init__(self, state: ControllerState, config: ControllerConfig) -> None:
        self._state = state
        self._config = config

    def create(
        self, request: CreateDelegationTokenRequest, context: RequestContext
    ) -> Decision[CreateDelegationTokenResponse]:
        """Issue a token for the asker, or for whom the asker may act."""
        secret_key = self._secret_key()
        owner = context.principal
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        for renewer in request.renewers:
            if renewer.principal_type != _USER:
                raise InvalidPrincipalType(
                    f"a renewer must be a {_USER}, not a {renewer.principal_type}"
                )
        lifetime_ms = self._config.delegation_token_max_lifetime_ms
        if request.max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
        max_timestamp_ms = _sum(context.wall_ms, lifetime_ms)
        token = TokenInformation(
            str(Uuid.random(self._state.random)),
            owner,
            context.principal,
            tuple(f"{_USER}:{each.principal_name}" for each in request.renewers),
            context.wall_ms,
            max_timestamp_ms,
            self._expiry_ms(context.wall_ms, max_timestamp_ms, 0),
        )
        owner_type, _, owner_name = owner.partition(":")
        requester_type, _, requester_name = context.principal.partition(":")
        response = CreateDelegationTokenResponse(
            principal_type=owner_type,
            principal_name=owner_name,
            token_requester_principal_type=requester_type,
            token_requester_principal_name=requester_name,
            issue_timestamp_ms=token.issue_timestamp_ms,
            expiry_timestamp_ms=token.expiry_timestamp_ms,
            max_timestamp_ms=token.max_timestamp_ms,
            token_id=token.token_id,
            hmac=token_hmac(secret_key, token.token_id),
        )
        return Decision(response, [token.to_record()])

    def renew(
        self, request: RenewDelegationTokenRequest, context: RequestContext
    ) -> Decision[RenewDelegationTokenResponse]:
        """Prolong a token, never past its greatest age."""
        token = self._token(request.hmac)
        if token.is_expired(context.wall_ms):
            raise DelegationTokenExpired
        _check_renewer(token, context)
        expiry_ms = self._expiry_ms(
            context.wall_ms, token.max_timestamp_ms, request.renew_period_ms
        )
        return Decision(
            RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms),
            [replace(token, expiry_timestamp_ms=expiry_ms).to_record()],
        )

    def expire(
        self, request: ExpireDelegationTokenRequest, context: RequestContext
    ) -> Decision[ExpireDelegationTokenResponse]:
        """Let a token end sooner; at once with a negative period."""
        token = self._token(request.hmac)
        _check_renewer(token, context)
        if request.expiry_time_period_ms < 0:
            return Decision(
                ExpireDelegationTokenResponse(expiry_timestamp_ms=context.wall_ms),
                [RemoveDelegationTokenRecord(token_id=token.token_id)],
            )
        if token.is_expired(context.wall_ms):
            raise DelegationTokenExpired
        wanted_ms = _sum(context.wall_ms, request.expiry_time_period_ms)
        expiry_ms = min(token.max_timestamp_ms, wanted_ms)
        return Decision(
            ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms),
            [replace(token, expiry_timestamp_ms=expiry_ms).to_record()],
        )

    def sweep(self, wall_ms: int) -> Decision[None]:
        """Remove the tokens that are no longer good."""
        tokens = self._state.image.delegation_tokens.by_id
        expired = sorted(each for each in tokens if tokens[each].is_expired(wall_ms))
        return Decision(None, [RemoveDelegationTokenRecord(token_id=each) for each in expired])

    def _secret_key(self) -> str:
        secret_key = self._config.delegation_token_secret_key
        if secret_key is None:
            raise DelegationTokenAuthDisabled("delegation.token.secret.key is not set")
        if self._state.image.metadata_version < DELEGATION_TOKENS_SINCE:
            raise UnsupportedVersion(
                f"delegation tokens need {METADATA_VERSION} {DELEGATION_TOKENS_SINCE} or higher"
            )
        return secret_key

    def _token(self, proof: bytes) -> TokenInformation:
        secret_key = self._secret_key()
        for token in self._state.image.delegation_tokens.by_id.values():
            if hmac.compare_digest(token_hmac(secret_key, token.token_id), bytes(proof)):
                return token
        raise DelegationTokenNotFound

    def _expiry_ms(self, wall_ms: int, max_timestamp_ms: int, period_ms: int) -> int:
        lifetime_ms = self._config.delegation_token_expiry_time_ms
        if period_ms > 0:
            lifetime_ms = min(lifetime_ms, period_ms)
        return min(max_timestamp_ms, _sum(wall_ms, lifetime_ms))


def _check_renewer(token: TokenInformation, context: RequestContext) -> None:
    if not token.may_be_renewed_by(context.principal):
        raise DelegationTokenOwnerMismatch(
            f"{context.principal} is neither owner nor renewer of the token"
        )


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, INT64_MAX)
