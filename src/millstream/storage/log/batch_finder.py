"""Where the batch of an offset is in a segment, found by compiled code where the kernel was built.

`LogReader` asks for the place at which a read begins. `_accel.broker.batch_finder` searches the
index and reads the heads that prove it in one call; whatever is unusual it leaves to
`LogSegment.find_batch`, which has all the rules and rebuilds an index that lies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import _accel

if TYPE_CHECKING:
    from millstream.storage.log.segment import LogSegment

_finder = _accel.find("broker.batch_finder")


def find_place(segment: LogSegment, offset: int) -> tuple[int, int] | None:
    """Position and size of the first batch that ends at or after an offset."""
    if _finder is not None:
        file = segment.open_file()
        descriptor = file.fileno()
        if descriptor >= 0:
            written, count, pending = segment.ready_indexes().offsets.raw_entries()
            found: tuple[int, int] | None = _finder.find_batch(
                descriptor, written, count, pending, segment.base_offset, segment.size, offset
            )
            if found is not None:
                return found
    head = segment.find_batch(offset)
    return None if head is None else (head.position, head.size)
