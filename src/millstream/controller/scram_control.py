"""SCRAM credentials: AlterUserScramCredentials. Rule 4 of section 6.11 of the facts.

The client sends a salted password, never the password; from it the two keys that are stored are
derived here (RFC 5802).
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from typing import TYPE_CHECKING, Final

from millstream.controller.decision import Decision
from millstream.errors import (
    ApiError,
    DuplicateResource,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from millstream.metadata.features import METADATA_VERSION, SCRAM_SINCE
from millstream.metadata.scram import ScramKey, ScramMechanism
from millstream.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from millstream.protocol.messages.security_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from millstream.controller.replication_control import ControllerState
    from millstream.protocol.message import Message
    from millstream.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )

    _Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
_HASHES: Final[Mapping[int, str]] = {
    ScramMechanism.SCRAM_SHA_256: "sha256",
    ScramMechanism.SCRAM_SHA_512: "sha512",
}


def alter_scram_credentials(
    state: ControllerState, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    """Set and remove credentials; all changes of a user are made, or none."""
    if state.image.metadata_version < SCRAM_SINCE:
        raise UnsupportedVersion(f"SCRAM needs {METADATA_VERSION} {SCRAM_SINCE} or higher")
    changes: list[_Change] = [*request.deletions, *request.upsertions]
    counts = Counter((each.name, each.mechanism) for each in changes)
    by_user: dict[str, list[_Change]] = {}
    for each in changes:
        by_user.setdefault(each.name, []).append(each)
    response = AlterUserScramCredentialsResponse()
    records: list[Message] = []
    for user, changes_of_user in by_user.items():
        result = AlterUserScramCredentialsResult(user=user, error_message=None)
        response.results.append(result)
        try:
            if any(counts[user, each.mechanism] > 1 for each in changes_of_user):
                raise DuplicateResource(f"a mechanism of user {user} occurs more than once")
            records += [_record(state, each) for each in changes_of_user]
        except ApiError as error:
            result.error_code, result.error_message = error.code, str(error)
    return Decision(response, records)


def scram_credential_record(
    user: str, mechanism: int, salt: bytes, iterations: int, salted_password: bytes
) -> UserScramCredentialRecord:
    """The record of a credential; formatting a cluster with users calls this too."""
    _check_mechanism(user, mechanism)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise UnacceptableCredential(
            f"{iterations} iterations; give {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    if not salt or not salted_password:
        raise UnacceptableCredential("the salt or the salted password is empty")
    digest = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=bytes(salt),
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", digest),
        iterations=iterations,
    )


def _check_mechanism(user: str, mechanism: int) -> None:
    if not user:
        raise UnacceptableCredential("the user's name is empty")
    if mechanism not in _HASHES:
        raise UnsupportedSaslMechanism(f"there is no SCRAM mechanism {mechanism}")


def _record(state: ControllerState, change: _Change) -> Message:
    if isinstance(change, ScramCredentialUpsertion):
        return scram_credential_record(
            change.name, change.mechanism, change.salt, change.iterations, change.salted_password
        )
    _check_mechanism(change.name, change.mechanism)
    if ScramKey(change.mechanism, change.name) not in state.image.scram.by_key:
        raise ResourceNotFound(f"user {change.name} has no credential for that mechanism")
    return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
