"""The state of one share partition, as it is written, read and handed from leader to leader.

Values only. `StateBatch`es are runs of offsets with one delivery state and count; the records and
the requests have them in the same shape.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from millstream.types import Uuid

    class _BatchMessage(Protocol):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int


UNINITIALIZED_OFFSET: Final = -1
"""The start offset of a share partition that no leader has looked at yet."""
UNKNOWN_EPOCH: Final = -1
UNKNOWN_COUNT: Final = -1


class DeliveryState(IntEnum):
    """What became of a record, by the number in the records of the coordinator."""

    AVAILABLE = 0
    ACQUIRED = 1
    """A member has it; never written."""
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        """Whether the record will not be delivered again."""
        return self >= DeliveryState.ACKNOWLEDGED


class ShareKey(NamedTuple):
    """A share partition: a partition as one share group sees it."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def text(self) -> str:
        """The key by which its coordinator is found."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class StateBatch(NamedTuple):
    """Some records in a row with the same fate."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class ShareState(NamedTuple):
    """All that is kept of a share partition."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    """Raised by the group coordinator whenever the share partition begins anew."""
    leader_epoch: int = UNKNOWN_EPOCH
    start_offset: int = UNINITIALIZED_OFFSET
    complete_count: int = UNKNOWN_COUNT
    """How many records after the start offset are final: for the lag."""
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    written_ms: int = 0


class StateChange(NamedTuple):
    """What the leader of a partition has to write about a share partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """-1 if it stays what it is."""
    complete_count: int
    batches: tuple[StateBatch, ...]


class StateSummary(NamedTuple):
    """How far a share partition has come."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int


def read_batches(batches: Iterable[_BatchMessage]) -> tuple[StateBatch, ...]:
    """The batches of any message that has some."""
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in batches
    )


def merged(
    known: tuple[StateBatch, ...], added: tuple[StateBatch, ...], start_offset: int
) -> tuple[StateBatch, ...]:
    """The batches after a change: the later word counts, and nothing before the start offset.

    Neighbours with the same fate become one.
    """
    later = _flattened(added)
    pieces = list(later)
    ends = [(each.first_offset, each.last_offset) for each in later]
    for batch in known:
        first = batch.first_offset
        for low, high in ends:
            if high < first:
                continue
            if low > batch.last_offset:
                break
            if low > first:
                pieces.append(batch._replace(first_offset=first, last_offset=low - 1))
            first = high + 1
        if first <= batch.last_offset:
            pieces.append(batch._replace(first_offset=first))
    pieces.sort()
    return _joined(pieces, start_offset)


def _flattened(batches: tuple[StateBatch, ...]) -> list[StateBatch]:
    """Batches in order and without overlaps; of two that say something, the later one counts."""
    if all(a.last_offset < b.first_offset for a, b in pairwise(batches)):
        return list(batches)
    result: tuple[StateBatch, ...] = ()
    for each in batches:
        result = merged(result, (each,), UNINITIALIZED_OFFSET)
    return list(result)


def _joined(pieces: list[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    result: list[StateBatch] = []
    for piece in pieces:
        if piece.last_offset < start_offset:
            continue
        if piece.first_offset < start_offset:
            piece = piece._replace(first_offset=start_offset)
        last = result[-1] if result else None
        if (
            last is not None
            and last.last_offset + 1 == piece.first_offset
            and last[2:] == piece[2:]
        ):
            result[-1] = last._replace(last_offset=piece.last_offset)
        else:
            result.append(piece)
    return tuple(result)
