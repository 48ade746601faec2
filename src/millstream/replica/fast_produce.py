"""The fast path of an ordinary Produce request, from its frame to the log.

`AppendService` makes one; the node hands it to the listeners. Where the kernel was not built there
is none, and every request takes the full path, through `KafkaApis` and `AppendService`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import _accel

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream._accel.broker.fast_produce import FastProduce
    from millstream.clock import Clock
    from millstream.replica.append_service import AppendResult
    from millstream.replica.partition import Partition
    from millstream.replica.partition_table import PartitionTable
    from millstream.replica.pending_acks import PendingAck


def make_fast_produce(
    table: PartitionTable,
    failure: Callable[[Exception, Partition], AppendResult],
    wait: Callable[[Partition, PendingAck], None],
    clock: Clock,
) -> FastProduce | None:
    """One for the partitions of a table.

    `failure` says what an exception of an append means; `wait` takes an answer that has to wait.
    """
    if (found := _accel.find("broker.fast_produce")) is None:
        return None
    made: FastProduce = found.FastProduce(table.by_name, table.by_id, failure, wait, clock)
    return made
