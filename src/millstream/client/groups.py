"""Values of consumer groups that consumers, transactions and administration share.

`OffsetAndMetadata` is what a group commits for a partition; `ConsumerGroupMetadata` names the
member on whose behalf a transaction commits. Nothing here asks a broker.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """How far a group has read a partition: the offset of the next record it wants."""

    offset: int
    metadata: str = ""
    """Whatever the one who committed wanted to keep beside it."""
    leader_epoch: int | None = None
    """The leader epoch of the last record read, by which a truncated log is noticed."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The member that commits: a transaction of a member that was replaced is refused."""

    group_id: str
    generation_id: int = -1
    """The generation of a classic group, or the member's epoch; -1 outside of a group."""
    member_id: str = ""
    group_instance_id: str | None = None
