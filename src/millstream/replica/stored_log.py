"""From a partition to its log as the log store knows it.

The rules need a `PartitionLog`; the store wants its own `UnifiedLog` back. Every partition that a
`ReplicaManager` has was made with a log of its store, so the two are the same object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from millstream.replica.partition import Partition
    from millstream.storage.unified_log import UnifiedLog


def stored_log(partition: Partition) -> UnifiedLog:
    """The log of a partition."""
    return cast("UnifiedLog", partition.log)
