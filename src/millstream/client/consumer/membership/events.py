"""What happens to a member's assignment, as the consumer's core and then the user hear of it.

Membership gives one event at a time and goes on when it is acknowledged, that is, when the user's
listener has run. Plain values; nothing here does anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from millstream.errors import MillstreamError
    from millstream.types import TopicPartition


class Revoked(NamedTuple):
    """The group wants these partitions back; until it is acknowledged they are still ours."""

    partitions: frozenset[TopicPartition]
    commits_first: bool
    """Commit what the application has consumed of them before the listener runs."""


class Assigned(NamedTuple):
    """These partitions are new; the set may be empty when a rebalance changed nothing for us."""

    partitions: frozenset[TopicPartition]


class Lost(NamedTuple):
    """These partitions are not ours any more, and may already be read by somebody else."""

    partitions: frozenset[TopicPartition]
    reason: MillstreamError | None
    """Why the group put us out."""


RebalanceEvent: TypeAlias = Revoked | Assigned | Lost
