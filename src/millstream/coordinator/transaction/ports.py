"""What the transaction coordinator needs from the rest of the house; `node` brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.decision import ProducerStamp
    from millstream.errors import ApiError
    from millstream.types import TopicPartition


class EndedTransaction(NamedTuple):
    """A transaction whose end is decided: what its partitions must be told."""

    transactional_id: str
    producer: ProducerStamp
    coordinator_partition: int
    coordinator_epoch: int
    partitions: frozenset[TopicPartition]
    is_commit: bool
    transaction_version: int


class MarkerSender(Protocol):
    """Brings the end of a transaction to its partitions, however long that takes."""

    def send(self, ended: EndedTransaction) -> None:
        """Write the markers; `TransactionCoordinator.markers_written` is called when all are."""
        ...

    def forget(self, coordinator_partition: int) -> None:
        """Another broker coordinates a partition's transactions now: it will send them."""
        ...


class ProducerIds(Protocol):
    """Producer ids that nobody has."""

    def generate(self, done: Callable[[int | ApiError], None]) -> None:
        """Give one to `done`, at once or later; or an error."""
        ...
