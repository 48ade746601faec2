"""In-sync replicas: those agreed on, and the change that is on its way to the controller.

`Partition` keeps an `IsrState`. The maximal ISR is what the high watermark must respect: replicas
that are being added count already, replicas that are being removed count still. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    OperationNotAttempted,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from millstream.types import TopicPartition, Uuid

REVERTING_ERRORS: Final = (IneligibleReplica, OperationNotAttempted)
"""The controller refuses this change: go on with the ISR that was agreed on."""

SETTLED_BY_METADATA_ERRORS: Final = (
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
"""This broker's view is old: what is true will come with the metadata."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A change of the ISR that a leader asks the controller for, with AlterPartition.

    The leader has all committed records by the time it proposes anything, so a partition that
    was recovering from an unclean election is recovered with it.
    """

    partition: TopicPartition
    topic_id: Uuid
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """Broker ids with the broker epochs that the leader knows, -1 where it knows none."""

    @property
    def members(self) -> frozenset[int]:
        """The broker ids."""
        return frozenset(broker_id for broker_id, _ in self.isr)


class IsrState:
    """The agreed ISR and at most one proposal."""

    __slots__ = ("committed", "maximal", "proposal")

    def __init__(self, committed: frozenset[int]) -> None:
        self.committed = committed
        self.proposal: IsrProposal | None = None
        self.maximal = committed

    def commit(self, members: frozenset[int]) -> None:
        """The controller has decided."""
        self.committed = self.maximal = members
        self.proposal = None

    def propose(self, proposal: IsrProposal) -> None:
        """A change is on its way."""
        assert self.proposal is None
        self.proposal = proposal
        self.maximal = self.committed | proposal.members

    def revert(self) -> None:
        """The change will not come."""
        self.commit(self.committed)
