"""What the isolation level of a request means for how far it may read.

Fetch and ListOffsets ask.
"""

from __future__ import annotations

from typing import Final

from millstream.storage.log.log_results import FetchIsolation

READ_COMMITTED: Final = 1
"""The isolation level on the wire; 0 is read_uncommitted."""


def consumer_isolation(isolation_level: int) -> FetchIsolation:
    """How far a consumer may read."""
    if isolation_level == READ_COMMITTED:
        return FetchIsolation.TXN_COMMITTED
    return FetchIsolation.HIGH_WATERMARK
