"""What a leader has promised to answer later: fetches, appends, changes of the voter set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.protocol.messages import FetchRequest
    from millstream.raft.effects import Token
    from millstream.raft.voters import Endpoint, ReplicaKey


@dataclass(frozen=True, slots=True)
class PendingFetch:
    """A fetch that waits for records or for the high watermark."""

    token: Token
    request: FetchRequest
    version: int
    listener: str
    replica: ReplicaKey
    offset: int
    known_high_watermark: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """Records that have their offsets and wait for the next append."""

    base_offset: int
    end_offset: int
    encoded: bytes


@dataclass(slots=True)
class VoterChange:
    """The one change of the voter set that is under way."""

    token: Token | None
    """Whom to answer; None once it was answered."""
    key: ReplicaKey
    deadline_ms: int
    is_addition: bool
    endpoints: Mapping[str, Endpoint]
    is_answered_when_committed: bool = True
    offset: int | None = None
    """Where the VotersRecord is; None while the new voter is being asked what it supports."""
