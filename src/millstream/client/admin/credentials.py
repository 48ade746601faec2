"""SCRAM credentials of users, and delegation tokens.

Passwords never leave the process: what is sent is salted and hashed here.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from millstream.client.admin.operations import Operations, error_or
from millstream.client.admin.outcomes import Outcomes
from millstream.client.router import ANY, CONTROLLER
from millstream.errors import InvalidArgument, MillstreamError
from millstream.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from millstream.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from millstream.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from millstream.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from millstream.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from millstream.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


ScramMechanism: TypeAlias = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
_MECHANISMS: Final[Mapping[str, int]] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SALT_BYTES: Final = 32
ITERATIONS_MIN: Final = 4096


@dataclass(frozen=True, slots=True)
class ScramPassword:
    """A password to set for a user."""

    password: str
    mechanism: ScramMechanism = "SCRAM-SHA-512"
    iterations: int = 8192

    def __repr__(self) -> str:
        return f"ScramPassword(mechanism={self.mechanism!r}, iterations={self.iterations})"


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A mechanism by which a user shall not log in any more."""

    mechanism: ScramMechanism


ScramChange: TypeAlias = ScramPassword | ScramDeletion


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """That a user can log in by a mechanism."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody, such as User:alice."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token by which somebody else may act for its owner for a while."""

    token_id: str
    hmac: bytes
    owner: Principal
    requester: Principal
    issued_ms: int
    expires_ms: int
    max_ms: int
    renewers: tuple[Principal, ...] = ()

    def __repr__(self) -> str:
        return f"DelegationToken(token_id={self.token_id!r}, owner={self.owner!r})"


class CredentialOperations(Operations):
    """Operations on credentials."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> Outcomes[str, tuple[ScramCredential, ...]]:
        """By which mechanisms users can log in; of all users if none are named."""
        listed = None if users is None else [UserName(name=each) for each in users]
        answer = await self._call(
            DescribeUserScramCredentialsRequest(users=listed),
            ANY,
            DescribeUserScramCredentialsResponse,
            timeout,
        )
        results: dict[str, tuple[ScramCredential, ...]] = {}
        errors: dict[str, MillstreamError] = {}
        for each in answer.results:
            found = tuple(
                ScramCredential(_mechanism_name(info.mechanism), info.iterations)
                for info in each.credential_infos
            )
            outcome = error_or(found, each.error_code, each.error_message)
            if isinstance(outcome, MillstreamError):
                errors[each.user] = outcome
            else:
                results[each.user] = outcome
        return Outcomes(results, errors)

    async def alter_user_scram_credentials(
        self,
        changes: Mapping[str, ScramChange | Sequence[ScramChange]],
        *,
        timeout: float | None = None,
    ) -> Outcomes[str, None]:
        """Set users' passwords, or take mechanisms away from them."""
        by_user = {
            user: [given] if isinstance(given, ScramPassword | ScramDeletion) else list(given)
            for user, given in changes.items()
        }
        upsertions = {
            user: [_upsertion(user, each) for each in given if isinstance(each, ScramPassword)]
            for user, given in by_user.items()
        }

        def request(users: Sequence[str]) -> AlterUserScramCredentialsRequest:
            return AlterUserScramCredentialsRequest(
                deletions=[
                    ScramCredentialDeletion(name=user, mechanism=_mechanism(each.mechanism))
                    for user in users
                    for each in by_user[user]
                    if isinstance(each, ScramDeletion)
                ],
                upsertions=[each for user in users for each in upsertions[user]],
            )

        def read(
            answer: AlterUserScramCredentialsResponse, _users: Sequence[str]
        ) -> dict[str, MillstreamError | None]:
            return {
                each.user: error_or(None, each.error_code, each.error_message)
                for each in answer.results
            }

        return await self._each(changes, lambda _: CONTROLLER, request, read, timeout)

    async def create_delegation_token(
        self,
        *,
        owner: Principal | None = None,
        renewers: Iterable[Principal] = (),
        max_lifetime: float | None = None,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Issue a token for the caller, or for `owner`; lives for so many seconds at most."""
        answer = await self._call(
            CreateDelegationTokenRequest(
                owner_principal_type=None if owner is None else owner.type,
                owner_principal_name=None if owner is None else owner.name,
                renewers=[
                    CreatableRenewers(principal_type=each.type, principal_name=each.name)
                    for each in renewers
                ],
                max_lifetime_ms=-1 if max_lifetime is None else round(max_lifetime * 1000),
            ),
            CONTROLLER,
            CreateDelegationTokenResponse,
            timeout,
        )
        return DelegationToken(
            answer.token_id,
            bytes(answer.hmac),
            Principal(answer.principal_type, answer.principal_name),
            Principal(answer.token_requester_principal_type, answer.token_requester_principal_name),
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
        )

    async def renew_delegation_token(
        self, hmac: bytes, *, period: float | None = None, timeout: float | None = None
    ) -> int:
        """Let a token live for so many seconds more; gives when it ends, in ms since 1970."""
        period_ms = -1 if period is None else round(period * 1000)
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        answer = await self._call(request, CONTROLLER, RenewDelegationTokenResponse, timeout)
        return answer.expiry_timestamp_ms

    async def expire_delegation_token(
        self, hmac: bytes, *, period: float | None = None, timeout: float | None = None
    ) -> int:
        """Let a token end in so many seconds, or at once; gives when, in ms since 1970."""
        period_ms = -1 if period is None else round(period * 1000)
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        answer = await self._call(request, CONTROLLER, ExpireDelegationTokenResponse, timeout)
        return answer.expiry_timestamp_ms

    async def describe_delegation_tokens(
        self, owners: Iterable[Principal] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """The tokens of these owners, or all that the caller may see."""
        listed = None
        if owners is not None:
            listed = [
                DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name)
                for each in owners
            ]
        answer = await self._call(
            DescribeDelegationTokenRequest(owners=listed),
            ANY,
            DescribeDelegationTokenResponse,
            timeout,
        )
        return [
            DelegationToken(
                each.token_id,
                bytes(each.hmac),
                Principal(each.principal_type, each.principal_name),
                Principal(each.token_requester_principal_type, each.token_requester_principal_name),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
                tuple(Principal(one.principal_type, one.principal_name) for one in each.renewers),
            )
            for each in answer.tokens
        ]


def _upsertion(user: str, wanted: ScramPassword) -> ScramCredentialUpsertion:
    if wanted.iterations < ITERATIONS_MIN:
        raise InvalidArgument(
            f"user {user!r}: iterations={wanted.iterations}: must be at least {ITERATIONS_MIN}"
        )
    mechanism = _mechanism(wanted.mechanism)
    salt = secrets.token_bytes(_SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(
        _HASHES[wanted.mechanism], wanted.password.encode(), salt, wanted.iterations
    )
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=wanted.iterations,
        salt=salt,
        salted_password=salted,
    )


def _mechanism(name: str) -> int:
    if name not in _MECHANISMS:
        raise InvalidArgument(f"mechanism {name!r}: use one of {', '.join(_MECHANISMS)}")
    return _MECHANISMS[name]


def _mechanism_name(code: int) -> str:
    return next((name for name, each in _MECHANISMS.items() if each == code), f"unknown ({code})")
