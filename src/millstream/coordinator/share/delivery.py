"""What members of share groups ask for, get and say: the values that `SharePartition` deals in."""

from __future__ import annotations

from bisect import bisect_left
from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.coordinator.share.state import DeliveryState
from millstream.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_THROTTLE_MIN: Final = 2


class AcknowledgeType(IntEnum):
    """What a member says about a record."""

    GAP = 0
    """There is no such record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class ShareLimits(NamedTuple):
    """What the settings of the group allow."""

    lock_duration_ms: int
    delivery_count_max: int
    record_locks_max: int

    @property
    def throttle_count(self) -> int:
        """After so many deliveries a record is delivered with fewer others: one of them is bad."""
        return max(_THROTTLE_MIN, -(-self.delivery_count_max // 2))


class AcquireRequest(NamedTuple):
    """What a member wants."""

    member_id: str
    records_max: int
    batch_size: int
    """How many records are well acknowledged together."""
    is_strict: bool = False
    """Whether it wants no more than `records_max`; else the last batch may be whole."""


class ReadBatches(NamedTuple):
    """What was read from the log."""

    offset: int
    """Where it was read from."""
    batches: Sequence[tuple[int, int]]
    """First and last offset of each batch, in order."""
    withheld: Sequence[tuple[int, int]] = ()
    """Batches that nobody is to see: markers, and what was aborted."""


class Acquired(NamedTuple):
    """Records that a member has now."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def size(self) -> int:
        """How many offsets."""
        return self.last_offset - self.first_offset + 1


class Acknowledgement(NamedTuple):
    """What a member says about records in a row: one word for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def check(self) -> None:
        """Raise if it makes no sense by itself."""
        size = self.last_offset - self.first_offset + 1
        if self.first_offset < 0 or size < 1 or len(self.types) not in (1, size):
            raise InvalidRequest(
                f"offsets {self.first_offset} to {self.last_offset} cannot be acknowledged with "
                f"{len(self.types)} types"
            )
        if not all(AcknowledgeType.GAP <= each <= AcknowledgeType.RENEW for each in self.types):
            raise InvalidRequest(f"there is no such type of acknowledgement in {self.types}")

    def pieces(self, start_offset: int) -> list[tuple[int, int, int]]:
        """Offsets in a row with one type each; those before the start offset are left out."""
        pieces = []
        at = self.first_offset
        if len(self.types) == 1:
            pieces.append((at, self.last_offset, self.types[0]))
        else:
            for kind, same in groupby(self.types):
                size = sum(1 for _ in same)
                pieces.append((at, at + size - 1, kind))
                at += size
        return [
            (max(first, start_offset), last, kind)
            for first, last, kind in pieces
            if last >= start_offset
        ]


OUTCOMES: Final[Mapping[int, DeliveryState]] = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: DeliveryState.AVAILABLE,
    AcknowledgeType.REJECT: DeliveryState.ARCHIVED,
}
"""What a record becomes by an acknowledgement."""


def delivery_end(
    first: int, last: int, room: int, batches: Sequence[tuple[int, int]], *, is_strict: bool
) -> int:
    """How far records are delivered if there is room for so many: to a batch's end, or exactly."""
    limit = first + room - 1
    if limit >= last:
        return last
    if is_strict:
        return limit
    place = bisect_left(batches, limit, key=lambda batch: batch[1])
    return min(last, batches[place][1]) if place < len(batches) else limit


def well_split(acquired: Acquired, ends: Sequence[int], batch_size: int) -> Iterable[Acquired]:
    """The records as they are well acknowledged together: whole batches, up to a size."""
    first = acquired.first_offset
    for end in ends:
        if end >= acquired.last_offset:
            break
        if end - first + 1 >= batch_size > 0:
            yield acquired._replace(first_offset=first, last_offset=end)
            first = end + 1
    yield acquired._replace(first_offset=first)
