"""A log for storage tests, and what it holds, in one line each."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from millstream.records import RecordBatch, split_batches
from millstream.storage.log.config import LogConfig
from millstream.storage.log.loader import LoadRequest
from millstream.storage.log.unified_log import UnifiedLog
from tests.unit.storage.batches import NOW_MS, batch_bytes

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem
    from millstream.storage.log.log_results import AppendInfo

SMALL = LogConfig(internal_segment_bytes=1000, index_interval_bytes=100)


def open_log(
    filesystem: FileSystem,
    directory: str,
    config: LogConfig = SMALL,
    *,
    high_watermark: int = 0,
    **request: Any,
) -> UnifiedLog:
    """Open it as after a crash, unless told otherwise."""
    settings: dict[str, Any] = {"now_ms": NOW_MS, "verifies_transactions": False} | request
    return UnifiedLog.open(
        LoadRequest(filesystem=filesystem, directory=directory, config=config, **settings),
        high_watermark=high_watermark,
        random=Random(1),
    )


def append(log: UnifiedLog, *, term: int = 0, now_ms: int = NOW_MS, **batch: Any) -> AppendInfo:
    """Append one batch as the leader of an epoch."""
    return log.append_as_leader(bytearray(batch_bytes(**batch)), term, now_ms)


def fill(log: UnifiedLog, count: int, **batch: Any) -> None:
    """Append so many batches of two records; some eight fit in a small segment."""
    for _ in range(count):
        append(log, **({"records": 2, "value_bytes": 20} | batch))


def offsets(log: UnifiedLog, from_offset: int | None = None) -> list[int]:
    """The offsets of all records, read to the end."""
    found: list[int] = []
    offset = log.log_start_offset if from_offset is None else from_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, 300)
        if fetched.records is None:
            break
        for batch in split_batches(fetched.records.read()):
            assert isinstance(batch, RecordBatch)
            batch.check_crc()
            found += [record.offset for record in batch.records(offset)]
            offset = batch.next_offset
    return found
