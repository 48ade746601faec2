"""The fast path of an ordinary Produce request, from its frame to the log.

`AppendService` makes one; the node hands it to the listeners. Where the kernel was not built there
is none, and every request takes the full path, through `KafkaApis` and `AppendService`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import _accel

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream._accel.broker.express import ExpressHandler
    from millstream.clock import Clock
    from millstream.replica.append_service import AppendResult
    from millstream.replica.partition import Partition
    from millstream.replica.partition_table import PartitionTable


def make_fast_produce(
    table: PartitionTable, failure: Callable[[Exception, Partition], AppendResult], clock: Clock
) -> ExpressHandler | None:
    """One for the partitions of a table; `failure` says what an exception of an append means."""
    if not _accel.COMPILED:
        return None
    from millstream._accel.broker.fast_produce import FastProduce

    return FastProduce(table.by_name, table.by_id, failure, clock)
