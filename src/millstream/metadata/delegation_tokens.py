"""Delegation tokens by id. Part of `MetadataImage`.

The log holds no secret: a token's HMAC is computed from its id and the cluster's key by those who
have the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.metadata.records import UnreplayableRecord
from millstream.metadata.shared_map import SharedMap
from millstream.protocol.messages.security_records import DelegationTokenRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.protocol.messages.security_records import RemoveDelegationTokenRecord


@dataclass(frozen=True, slots=True)
class TokenInformation:
    """A token: principals as `User:name`, times in milliseconds since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    def is_expired(self, wall_ms: int) -> bool:
        """Whether it is no longer good."""
        return self.max_timestamp_ms < wall_ms or self.expiry_timestamp_ms < wall_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether a principal may prolong it or end it."""
        return principal == self.owner or principal in self.renewers

    def to_record(self) -> DelegationTokenRecord:
        """Write the token."""
        return DelegationTokenRecord(
            owner=self.owner,
            requester=self.requester,
            renewers=list(self.renewers),
            issue_timestamp=self.issue_timestamp_ms,
            max_timestamp=self.max_timestamp_ms,
            expiration_timestamp=self.expiry_timestamp_ms,
            token_id=self.token_id,
        )


@dataclass(frozen=True, slots=True)
class DelegationTokensImage:
    """All tokens."""

    by_id: SharedMap[str, TokenInformation] = field(default_factory=SharedMap)

    def to_records(self) -> Iterator[DelegationTokenRecord]:
        """By id."""
        for token_id in sorted(self.by_id):
            yield self.by_id[token_id].to_record()


class DelegationTokensDelta:
    """Changes of tokens; None is removed."""

    def __init__(self, image: DelegationTokensImage) -> None:
        self.image = image
        self.changes: dict[str, TokenInformation | None] = {}

    def replay_token(self, record: DelegationTokenRecord) -> None:
        """A token is issued or prolonged."""
        self.changes[record.token_id] = TokenInformation(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    def replay_remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        """A token ends."""
        token_id = record.token_id
        if self.changes.get(token_id, self.image.by_id.get(token_id)) is None:
            raise UnreplayableRecord(f"a record removes token {token_id}, which does not exist")
        self.changes[token_id] = None

    def finish_snapshot(self) -> None:
        """What a snapshot does not mention is gone."""
        self.changes.update(dict.fromkeys(self.image.by_id.keys() - self.changes.keys()))

    def apply(self) -> DelegationTokensImage:
        """The tokens after the changes."""
        return DelegationTokensImage(
            self.image.by_id.evolve(
                {token_id: each for token_id, each in self.changes.items() if each is not None},
                [token_id for token_id, each in self.changes.items() if each is None],
            )
        )
