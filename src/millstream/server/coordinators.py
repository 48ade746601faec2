"""What the request handlers have of the coordinators; `node` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.coordinator.transaction.coordinator import TransactionCoordinator
    from millstream.server.internal_topics import InternalTopics
    from millstream.server.producer_ids import ProducerIdManager
    from millstream.server.share_apis import ShareServices
    from millstream.server.txn_markers import MarkerWriter


class Coordinators(NamedTuple):
    """The coordinators of a broker."""

    topics: InternalTopics
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: MarkerWriter
    producer_ids: ProducerIdManager
    shares: ShareServices
