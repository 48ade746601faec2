"""The fast path into a log leaves behind what the full path does, and refuses nothing by itself."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from millstream import _accel
from millstream.errors import ApiError
from millstream.records.compression import Compression
from millstream.storage.log.config import LogConfig
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.batches import NOW_MS, batch_bytes, marker_batch
from tests.unit.storage.logs import open_log

if TYPE_CHECKING:
    from millstream.storage.log.unified_log import UnifiedLog

DIRECTORY = "/logs/t-0"


@dataclass(frozen=True)
class Batch:
    """What a client sends; a producer's sequence is the next one, or that much beside it."""

    producer: int = -1
    epoch: int = 0
    sequence_shift: int = 0
    records: int = 1
    value_bytes: int = 10
    base_offset: int = 0
    is_transactional: bool = False
    compression: Compression = Compression.NONE


@dataclass(frozen=True)
class Step:
    """One append, and how much time passes before it."""

    batch: Batch
    delay_ms: int = 0
    leader_epoch: int = 0
    damage: int = 0
    """Above 0: which byte is wrong. Below: how many bytes are missing."""
    is_marker: bool = False


def rarely(odd: Any, usual: Any) -> st.SearchStrategy[Any]:
    """The usual value four times out of five."""
    return st.integers(0, 4).flatmap(lambda n: st.just(usual) if n < 4 else st.just(odd))


INT64_MAX = 2**63 - 1
plain_configs = st.builds(
    LogConfig,
    internal_segment_bytes=st.sampled_from([2000, 100_000]),
    index_interval_bytes=st.sampled_from([1, 200, 4096]),
    segment_ms=st.sampled_from([50, 10**9]),
    message_timestamp_after_max_ms=st.sampled_from([100, INT64_MAX]),
)
odd_configs = st.builds(
    LogConfig,
    internal_segment_bytes=st.sampled_from([400, 2000]),
    max_message_bytes=rarely(120, 1000),
    message_timestamp_type=rarely("LogAppendTime", "CreateTime"),
    message_timestamp_before_max_ms=rarely(1000, INT64_MAX),
    compression_type=rarely("gzip", "producer"),
    cleanup_policy=rarely(("compact",), ("delete",)),
    flush_messages=rarely(3, INT64_MAX),
)
plain_batches = st.builds(
    Batch,
    producer=st.sampled_from([-1, 1, 2]),
    records=st.integers(1, 4),
    value_bytes=st.integers(0, 60),
    compression=st.sampled_from([Compression.NONE, Compression.GZIP]),
)
odd_batches = st.builds(
    Batch,
    producer=st.sampled_from([1, 2]),
    epoch=rarely(1, 0),
    sequence_shift=st.integers(-3, 2),
    base_offset=rarely(5, 0),
    is_transactional=st.booleans(),
)
steps = st.one_of(
    st.builds(Step, plain_batches, st.integers(0, 40)),
    st.builds(Step, plain_batches, st.integers(0, 40)),
    st.builds(Step, odd_batches, st.integers(0, 40), leader_epoch=rarely(1, 0)),
    st.builds(Step, plain_batches, damage=st.integers(-90, 90)),
    st.builds(Step, odd_batches, is_marker=st.just(True)),
)


def encode(step: Step, log: UnifiedLog) -> bytes:
    """The bytes that a client would send to this log now."""
    batch = step.batch
    if step.is_marker:
        return bytes(marker_batch(0, pid=batch.producer, epoch=batch.epoch).view)
    entry = log.producers.producers.get(batch.producer)
    following = 0 if entry is None or entry.epoch != batch.epoch else entry.last_sequence + 1
    data = bytearray(
        batch_bytes(
            batch.base_offset,
            records=batch.records,
            value_bytes=batch.value_bytes,
            pid=batch.producer,
            epoch=batch.epoch,
            sequence=max(following + batch.sequence_shift, 0),
            is_transactional=batch.is_transactional,
            compression=batch.compression,
        )
    )
    if step.damage > 0:
        data[step.damage % len(data)] ^= 1 + step.damage
    return bytes(data[: step.damage or None] if step.damage < 0 else data)


def by_the_full_path(log: UnifiedLog, step: Step, data: bytes, now_ms: int) -> int:
    origin = AppendOrigin.COORDINATOR if step.is_marker else AppendOrigin.CLIENT
    info = log.append_as_leader(bytearray(data), step.leader_epoch, now_ms, origin=origin)
    log.raise_high_watermark(log.log_end_offset)
    return info.first_offset


def by_the_fast_path(log: UnifiedLog, step: Step, data: bytes, now_ms: int) -> int:
    received = bytearray(data)
    if not step.is_marker:
        tail: Any = log.tail
        offset = tail.append_fast(received, step.leader_epoch, now_ms)
        if offset is not None:
            event(f"fast with {'a' if step.batch.producer >= 0 else 'no'} producer")
            log.raise_high_watermark(log.log_end_offset)
            assert isinstance(offset, int)
            return offset
    assert received == data, "a batch that takes the full path is untouched"
    return by_the_full_path(log, step, data, now_ms)


def outcome(append: Any, *arguments: Any) -> Any:
    try:
        return append(*arguments)
    except ApiError as error:
        return type(error), str(error)


def state(log: UnifiedLog) -> Any:
    return (
        log.log_end_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.end_metadata,
        log.epochs.entries,
        log.producers.end_offset,
        {
            entry.producer_id: (
                entry.epoch,
                tuple(entry.batches),
                entry.last_timestamp,
                entry.transaction_first_offset,
            )
            for entry in log.producers.producers.values()
        },
        log.wants_flush(NOW_MS + 10**6),
    )


@pytest.mark.skipif(not _accel.COMPILED, reason="the compiled kernel is not built (make build)")
@settings(max_examples=300)
@given(st.one_of(plain_configs, odd_configs), st.lists(steps, max_size=12))
def test_both_paths_leave_the_same_log(config: LogConfig, life: list[Step]) -> None:
    disks = SimFileSystem(Random(1)), SimFileSystem(Random(1))
    full, fast = (open_log(disk, DIRECTORY, config) for disk in disks)
    now_ms = NOW_MS
    for step in life:
        now_ms += step.delay_ms
        data = encode(step, full)
        expected = outcome(by_the_full_path, full, step, data, now_ms)
        assert outcome(by_the_fast_path, fast, step, data, now_ms) == expected
        assert state(fast) == state(full)
    for log in (full, fast):
        log.close()
    names = sorted(each.name for each in disks[0].scan(DIRECTORY))
    assert names == sorted(each.name for each in disks[1].scan(DIRECTORY))
    for name in names:
        path = f"{DIRECTORY}/{name}"
        assert disks[0].read_bytes(path) == disks[1].read_bytes(path), name
