"""Transactions that nobody will end: open in a partition, unknown to their coordinator.

`transactions find-hanging` shows them, `transactions abort` looks here before it ends one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.cli.transaction_view import (
    TransactionFilter,
    describe_producers,
    find_transactions,
    list_transactions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.cli.session import Session
    from millstream.cli.transaction_view import ProducerView
    from millstream.client.admin.transactions import TransactionDescription
    from millstream.types import TopicPartition


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """An open transaction in a partition that its coordinator will not end."""

    producer: ProducerView
    transactional_id: str | None
    """Whose producer it was, if anybody knows it."""
    reason: str


def find_hanging(
    session: Session, places: Iterable[TopicPartition], max_timeout_ms: int
) -> list[HangingTransaction]:
    """Those among some partitions whose last record is older than any transaction may be."""
    latest_ms = session.clock.wall_ms() - max_timeout_ms
    candidates = [
        each
        for each in describe_producers(session, places)
        if each.start_offset is not None and (each.last_ms or 0) <= latest_ms
    ]
    owners = find_owners(session, candidates)
    found = []
    for each in candidates:
        owner = owners.get(each.producer_id)
        if (reason := reason_to_hang(each, owner)) is not None:
            name = None if owner is None else owner.transactional_id
            found.append(HangingTransaction(each, name, reason))
    return _still_open(session, found)


def _still_open(session: Session, found: list[HangingTransaction]) -> list[HangingTransaction]:
    """Without those that were ended between the two questions."""
    now = describe_producers(session, (each.producer.place for each in found))
    is_open = {(each.place, each.producer_id, each.start_offset) for each in now}
    return [
        each
        for each in found
        if (each.producer.place, each.producer.producer_id, each.producer.start_offset) in is_open
    ]


def find_owners(
    session: Session, producers: Sequence[ProducerView]
) -> dict[int, TransactionDescription]:
    """What the coordinators know about these producers, by producer id."""
    ids = sorted({each.producer_id for each in producers})
    if not ids:
        return {}
    listed = list_transactions(session, TransactionFilter(producer_ids=ids))
    described = find_transactions(session, (each.transactional_id for each in listed))
    return {each.producer_id: each for each in described.values()}


def reason_to_hang(producer: ProducerView, owner: TransactionDescription | None) -> str | None:
    """Why nobody will end a transaction; None if its coordinator will."""
    if owner is None:
        return "no coordinator knows the producer"
    if producer.place not in owner.partitions:
        return f"its coordinator has it as {owner.state}, without this partition"
    if owner.producer_epoch < producer.epoch:
        return f"its coordinator is at epoch {owner.producer_epoch}"
    return None
