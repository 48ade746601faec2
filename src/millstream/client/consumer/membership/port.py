"""What membership needs from the consumer it belongs to; called on the I/O thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.errors import MillstreamError


class AssignmentOwner(Protocol):
    """The consumer's core, which fetches what is assigned and runs listeners on polling threads."""

    def on_rebalance(self, event: RebalanceEvent) -> None:
        """The assignment changes; answer with `Membership.acknowledge` when the listener ran.

        Partitions that are revoked or lost must not be delivered from now on.
        """

    def on_group_error(self, error: MillstreamError) -> None:
        """The membership has ended with an error that trying again does not mend."""
