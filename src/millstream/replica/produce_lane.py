"""The way of an ordinary Produce request from its frame to the log, compiled.

`AppendService` makes one; the node hands it to the listeners. Where the kernel was not built there
is none, and requests take the same way in Python, through `KafkaApis` and `AppendService`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream import _accel
from millstream.replica.partition import Partition
from millstream.replica.partition_table import PartitionTable
from millstream.replica.purgatory import DelayedOperationPurgatory
from millstream.storage.local_log import LocalLog
from millstream.storage.producer_state import ProducerStateManager
from millstream.storage.unified_log import UnifiedLog
from millstream.storage.watermark_news import WatermarkNews

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream._accel.broker.fast_path import FastHandler
    from millstream.clock import Clock
    from millstream.replica.append_service import AppendResult
    from millstream.replica.change_notifier import ChangeNotifier


def make_produce_lane(
    table: PartitionTable,
    purgatory: DelayedOperationPurgatory,
    notifier: ChangeNotifier,
    failure: Callable[[Exception, Partition], AppendResult],
    clock: Clock,
) -> FastHandler | None:
    """One for the partitions of a table; `failure` says what an exception of an append means."""
    if not _accel.COMPILED:
        return None
    from millstream._accel.broker import produce_lane

    produce_lane.bind(
        PartitionTable,
        DelayedOperationPurgatory,
        Partition,
        UnifiedLog,
        LocalLog,
        ProducerStateManager,
        WatermarkNews,
    )
    return produce_lane.ProduceLane(table, purgatory, notifier.changed, failure, clock.wall_ms)
