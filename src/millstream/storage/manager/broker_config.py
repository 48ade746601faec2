"""The broker's settings for all its logs: directories, checkpoints, the cleaner.

`LogManager` takes `LogManagerConfig`, the cleaner takes `CleanerConfig`. What a single topic may
override is in `config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from millstream.config import (
    ConfigType,
    Rule,
    UpdateMode,
    any_value,
    at_least,
    between,
    key,
    non_empty,
    validate,
)
from millstream.types import INT64_MAX

LONG: Final = ConfigType.LONG


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """The broker's settings for all its logs together."""

    log_dirs: tuple[str, ...] = key(
        "log.dirs",
        ("/tmp/kafka-logs",),
        non_empty(),
        "The directories that hold the partitions, one per disk. A disk that fails is taken "
        "offline alone.",
        synonyms=("log.dir",),
    )
    num_recovery_threads_per_data_dir: int = key(
        "num.recovery.threads.per.data.dir",
        2,
        at_least(1),
        "How many logs of one directory are recovered at a time after an unclean stop.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    flush_scheduler_interval_ms: int = key(
        "log.flush.scheduler.interval.ms",
        INT64_MAX,
        at_least(0),
        "How often to look for logs whose flush.ms has passed.",
        kind=LONG,
        unit="ms",
    )
    flush_offset_checkpoint_interval_ms: int = key(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        "How often the recovery points are written.",
        unit="ms",
    )
    flush_start_offset_checkpoint_interval_ms: int = key(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        at_least(0),
        "How often the log start offsets are written.",
        unit="ms",
    )
    retention_check_interval_ms: int = key(
        "log.retention.check.interval.ms",
        300_000,
        at_least(1),
        "How often to look for segments that retention allows to delete.",
        kind=LONG,
        unit="ms",
    )
    initial_task_delay_ms: int = key(
        "log.initial.task.delay.ms",
        30_000,
        at_least(0),
        "How long after the start the periodic tasks begin.",
        kind=LONG,
        unit="ms",
    )
    high_watermark_checkpoint_interval_ms: int = key(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        at_least(1),
        "How often the high watermarks are written.",
        kind=LONG,
        unit="ms",
    )
    dir_failure_timeout_ms: int = key(
        "log.dir.failure.timeout.ms",
        30_000,
        at_least(1),
        "How long a broker may fail to tell the controller about a failed directory before it "
        "stops itself.",
        kind=LONG,
        unit="ms",
    )
    producer_id_expiration_ms: int = key(
        "producer.id.expiration.ms",
        86_400_000,
        at_least(1),
        "How long a partition remembers a producer that is idle.",
        unit="ms",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = key(
        "producer.id.expiration.check.interval.ms",
        600_000,
        at_least(1),
        "How often to look for producers to forget.",
        unit="ms",
        is_internal=True,
    )
    transaction_partition_verification_enable: bool = key(
        "transaction.partition.verification.enable",
        True,
        any_value(),
        "Whether the leader of a partition asks the coordinator before the first records of a "
        "transaction, so that none is left open for ever.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """The settings of compaction; all can change while it runs."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ("dedupe_buffer_size", "threads"),
            lambda buffer_size, threads: buffer_size >= threads << 20,
            "at least 1 MiB for each of the {threads} log.cleaner.threads",
        ),
    )

    enable: bool = key(
        "log.cleaner.enable",
        True,
        any_value(),
        "Whether compaction runs. Without it compacted topics, the offsets topic among them, "
        "grow for ever.",
    )
    threads: int = key(
        "log.cleaner.threads",
        1,
        at_least(1),
        "How many logs are compacted at a time.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    io_max_bytes_per_second: float = key(
        "log.cleaner.io.max.bytes.per.second",
        1.7976931348623157e308,
        at_least(1),
        "The most the cleaner reads and writes per second, over all its threads.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    dedupe_buffer_size: int = key(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        at_least(1 << 20),
        "The memory for the map of keys to offsets, over all threads. A larger one compacts more "
        "of a log in one pass.",
        kind=LONG,
        unit="bytes",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    io_buffer_size: int = key(
        "log.cleaner.io.buffer.size",
        512 << 10,
        at_least(1024),
        "The memory for reading and writing, over all threads; it grows for a larger batch.",
        unit="bytes",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    io_buffer_load_factor: float = key(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        between(0.01, 1),
        "How full the map of keys may be.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    backoff_ms: int = key(
        "log.cleaner.backoff.ms",
        15_000,
        at_least(0),
        "How long the cleaner rests when there is nothing to clean.",
        kind=LONG,
        unit="ms",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )

    def __post_init__(self) -> None:
        validate(self)
