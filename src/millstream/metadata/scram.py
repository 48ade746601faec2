"""SCRAM credentials by mechanism and user. Part of `MetadataImage`.

What is stored cannot be turned into a password; it is still secret, so nothing here is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from millstream.errors import DuplicateResource, ResourceNotFound
from millstream.metadata.records import UnreplayableRecord
from millstream.metadata.shared_map import SharedMap
from millstream.protocol.messages import describe_user_scram_credentials as describe
from millstream.protocol.messages.security_records import UserScramCredentialRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.protocol.messages.security_records import RemoveUserScramCredentialRecord


class ScramMechanism(IntEnum):
    """The mechanisms; the numbers are those of the wire."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramKey(NamedTuple):
    """Whose credential for which mechanism."""

    mechanism: int
    user: str


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server needs to check a SCRAM exchange."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramImage:
    """All credentials."""

    by_key: SharedMap[ScramKey, ScramCredential] = field(default_factory=SharedMap)

    def credential(self, mechanism: int, user: str) -> ScramCredential | None:
        """A user's credential for a mechanism."""
        return self.by_key.get(ScramKey(mechanism, user))

    def to_records(self) -> Iterator[UserScramCredentialRecord]:
        """By mechanism, then by user."""
        for key in sorted(self.by_key):
            credential = self.by_key[key]
            yield UserScramCredentialRecord(
                name=key.user,
                mechanism=key.mechanism,
                salt=credential.salt,
                stored_key=credential.stored_key,
                server_key=credential.server_key,
                iterations=credential.iterations,
            )


class ScramDelta:
    """Changes of credentials; None is removed."""

    def __init__(self, image: ScramImage) -> None:
        self.image = image
        self.changes: dict[ScramKey, ScramCredential | None] = {}

    def replay_credential(self, record: UserScramCredentialRecord) -> None:
        """Set a credential."""
        self.changes[ScramKey(record.mechanism, record.name)] = ScramCredential(
            bytes(record.salt),
            bytes(record.stored_key),
            bytes(record.server_key),
            record.iterations,
        )

    def replay_remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        """Remove a credential."""
        key = ScramKey(record.mechanism, record.name)
        if self.changes.get(key, self.image.by_key.get(key)) is None:
            raise UnreplayableRecord(
                f"a record removes mechanism {record.mechanism} of user {record.name}, who has none"
            )
        self.changes[key] = None

    def finish_snapshot(self) -> None:
        """What a snapshot does not mention is gone."""
        self.changes.update(dict.fromkeys(self.image.by_key.keys() - self.changes.keys()))

    def apply(self) -> ScramImage:
        """The credentials after the changes."""
        return ScramImage(
            self.image.by_key.evolve(
                {key: each for key, each in self.changes.items() if each is not None},
                [key for key, each in self.changes.items() if each is None],
            )
        )


def describe_scram_credentials(
    image: ScramImage, request: describe.DescribeUserScramCredentialsRequest
) -> describe.DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of the named users, or of all; never the credentials."""
    found: dict[str, list[describe.CredentialInfo]] = {}
    for key in sorted(image.by_key):
        found.setdefault(key.user, []).append(
            describe.CredentialInfo(
                mechanism=key.mechanism, iterations=image.by_key[key].iterations
            )
        )
    asked = [each.name for each in request.users or ()] or sorted(found)
    results = []
    for user in dict.fromkeys(asked):
        result = describe.DescribeUserScramCredentialsResult(user=user, error_message=None)
        if asked.count(user) > 1:
            result.error_code = DuplicateResource.code
            result.error_message = f"user {user} is asked for more than once"
        elif user not in found:
            result.error_code = ResourceNotFound.code
            result.error_message = f"user {user} has no SCRAM credential"
        else:
            result.credential_infos = found[user]
        results.append(result)
    return describe.DescribeUserScramCredentialsResponse(error_message=None, results=results)
