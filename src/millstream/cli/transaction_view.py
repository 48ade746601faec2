"""Transactions as values: what coordinators know, what partitions know, and ending one by force.

`transactions` and `hanging` ask here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import TransactionalIdNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.cli.session import Session
    from millstream.client.admin.transactions import (
        ProducerState,
        TransactionDescription,
        TransactionListing,
    )
    from millstream.types import TopicPartition

TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@dataclass(frozen=True, slots=True)
class ProducerView:
    """A producer as a partition's leader remembers it."""

    place: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int | None
    last_sequence: int | None
    last_ms: int | None
    start_offset: int | None
    """Of the transaction that is open here."""


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactions to list; what is empty or None admits all."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    older_than_ms: int | None = None
    pattern: str | None = None


def list_transactions(session: Session, wanted: TransactionFilter) -> list[TransactionListing]:
    """The transactional ids of the cluster, by name."""
    older_than_ms = wanted.older_than_ms
    return session.admin.list_transactions(
        states=wanted.states,
        producer_ids=wanted.producer_ids,
        min_duration=None if older_than_ms is None else older_than_ms / 1000,
        pattern=wanted.pattern,
    )


def find_transactions(
    session: Session, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription]:
    """Those that are there."""
    found = session.admin.describe_transactions(transactional_ids)
    for error in found.errors.values():
        if not isinstance(error, TransactionalIdNotFound):
            raise error
    return dict(found.results)


def describe_producers(session: Session, places: Iterable[TopicPartition]) -> list[ProducerView]:
    """The producers that the leaders of some partitions remember, by partition."""
    found = session.admin.describe_producers(sorted(set(places))).raise_first()
    views = [_producer_view(place, each) for place, states in found.items() for each in states]
    return sorted(views, key=lambda each: (each.place, each.producer_id))


def write_abort_marker(session: Session, producer: ProducerView) -> None:
    """End the transaction of a producer in one partition, whatever its coordinator thinks."""
    session.admin.abort_transaction(
        producer.place,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        # A partition that has never seen a marker of this producer takes any.
        coordinator_epoch=producer.coordinator_epoch or 0,
    )


def _producer_view(place: TopicPartition, state: ProducerState) -> ProducerView:
    return ProducerView(
        place,
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.last_sequence if state.last_sequence >= 0 else None,
        state.last_timestamp,
        state.transaction_start_offset,
    )
