"""The settings of a topic's log: Kafka's names, defaults and limits, and two of our own.

Every `UnifiedLog` has a `LogConfig`. The broker's `log.*` keys that only give a topic its defaults
are the synonyms of its fields; the broker's other settings are in `broker_config`. Values are
frozen: a change while running is a new, validated object (`millstream.config.replace`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from millstream.config import (
    ConfigType,
    Rule,
    Synonym,
    any_value,
    at_least,
    between,
    each,
    key,
    one_of,
    subset_of,
    validate,
)
from millstream.types import INT64_MAX

LONG: Final = ConfigType.LONG
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_UNLIMITED: Final = -1
_SAME_AS_TOTAL: Final = -2

_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
_throttled_replicas = each(
    lambda item: item == "*" or _THROTTLED_REPLICA.fullmatch(item) is not None,
    "a list of partition:broker pairs such as 0:1,1:2, or * for all",
)


def _is_within(local: int, total: int) -> bool:
    """Whether a local retention does not outlast the total one; -2 stands for the total."""
    return local == _SAME_AS_TOTAL or total == _UNLIMITED or 0 <= local <= total


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Everything a topic may set about its log."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ("max_compaction_lag_ms", "min_compaction_lag_ms"),
            lambda maximum, minimum: maximum >= minimum,
            "at least min.compaction.lag.ms ({min_compaction_lag_ms})",
        ),
        Rule(
            ("local_retention_ms", "retention_ms"),
            _is_within,
            "at most retention.ms ({retention_ms}), or -2 for the same",
        ),
        Rule(
            ("local_retention_bytes", "retention_bytes"),
            _is_within,
            "at most retention.bytes ({retention_bytes}), or -2 for the same",
        ),
        Rule(
            ("remote_storage_enable", "cleanup_policy"),
            lambda is_remote, policy: not is_remote or "compact" not in policy,
            "false while cleanup.policy includes compact: compacted logs are not tiered",
        ),
    )

    cleanup_policy: tuple[str, ...] = key(
        "cleanup.policy",
        ("delete",),
        subset_of("compact", "delete"),
        "What becomes of old records: `delete` drops old segments by age and size, `compact` keeps "
        "the last value of each key, both do both. An empty list keeps everything for ever.",
        synonyms=("log.cleanup.policy",),
    )
    compression_type: str = key(
        "compression.type",
        "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "The codec batches have on disk. `producer` keeps what the producer chose and is the "
        "cheapest: the broker never touches the records.",
        synonyms=("compression.type",),
    )
    compression_gzip_level: int = key(
        "compression.gzip.level",
        -1,
        between(1, 9).or_exactly(-1),
        "The level when `compression.type` is gzip; -1 is the codec's own default.",
        synonyms=("compression.gzip.level",),
    )
    compression_lz4_level: int = key(
        "compression.lz4.level",
        9,
        between(1, 17),
        "The level when `compression.type` is lz4.",
        synonyms=("compression.lz4.level",),
    )
    compression_zstd_level: int = key(
        "compression.zstd.level",
        3,
        between(-131_072, 22),
        "The level when `compression.type` is zstd.",
        synonyms=("compression.zstd.level",),
    )
    delete_retention_ms: int = key(
        "delete.retention.ms",
        86_400_000,
        at_least(0),
        "How long a tombstone stays readable in a compacted topic. A consumer that starts from the "
        "beginning must reach the end within this time to see a consistent state.",
        kind=LONG,
        unit="ms",
        synonyms=("log.cleaner.delete.retention.ms",),
    )
    durability: str = key(
        "millstream.durability",
        "page-cache",
        one_of("page-cache", "disk"),
        "When a replica counts a record as written. `page-cache`: when the operating system has "
        "it; it survives a crash of the process, not of the machine. `disk`: when it is on disk; "
        "partitions that wait share one fsync.",
        synonyms=("millstream.durability",),
    )
    file_delete_delay_ms: int = key(
        "file.delete.delay.ms",
        60_000,
        at_least(0),
        "How long a deleted segment stays on disk under its `.deleted` name.",
        kind=LONG,
        unit="ms",
        synonyms=("log.segment.delete.delay.ms",),
    )
    flush_messages: int = key(
        "flush.messages",
        INT64_MAX,
        at_least(1),
        "Sync the log to disk after this many records, whether or not anybody waits for it.",
        kind=LONG,
        synonyms=("log.flush.interval.messages",),
    )
    flush_ms: int = key(
        "flush.ms",
        INT64_MAX,
        at_least(0),
        "Sync the log to disk when this much time has passed since it was last synced.",
        kind=LONG,
        unit="ms",
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    follower_throttled_replicas: tuple[str, ...] = key(
        "follower.replication.throttled.replicas",
        (),
        _throttled_replicas,
        "Replicas whose replication is throttled on the follower's side.",
    )
    index_interval_bytes: int = key(
        "index.interval.bytes",
        4096,
        at_least(0),
        "How many bytes of records lie between two index entries: less means less scanning.",
        unit="bytes",
        synonyms=("log.index.interval.bytes",),
    )
    internal_segment_bytes: int | None = key(
        "internal.segment.bytes",
        None,
        at_least(1),
        "A segment size below the limit of segment.bytes, for tests.",
        kind=ConfigType.INT,
        unit="bytes",
        is_internal=True,
    )
    leader_throttled_replicas: tuple[str, ...] = key(
        "leader.replication.throttled.replicas",
        (),
        _throttled_replicas,
        "Replicas whose replication is throttled on the leader's side.",
    )
    local_retention_bytes: int = key(
        "local.retention.bytes",
        _SAME_AS_TOTAL,
        at_least(-2),
        "With tiered storage: how large the part on local disk may grow. -2 takes retention.bytes.",
        kind=LONG,
        unit="bytes",
        synonyms=("log.local.retention.bytes",),
    )
    local_retention_ms: int = key(
        "local.retention.ms",
        _SAME_AS_TOTAL,
        at_least(-2),
        "With tiered storage: how long records stay on local disk. -2 takes retention.ms.",
        kind=LONG,
        unit="ms",
        synonyms=("log.local.retention.ms",),
    )
    max_compaction_lag_ms: int = key(
        "max.compaction.lag.ms",
        INT64_MAX,
        at_least(1),
        "How long a record may stay uncompacted, whatever the dirty ratio is.",
        kind=LONG,
        unit="ms",
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    )
    max_decompressed_bytes: int = key(
        "millstream.max.decompressed.bytes",
        64 * 1024 * 1024,
        at_least(1),
        "How many bytes the records of a compressed batch may unpack to. The broker unpacks every "
        "batch of a producer once, to refuse what no consumer could read.",
        unit="bytes",
        synonyms=("millstream.max.decompressed.bytes",),
    )
    max_message_bytes: int = key(
        "max.message.bytes",
        1_048_588,
        at_least(0),
        "The largest record batch (compressed, if it is) that is accepted.",
        unit="bytes",
        synonyms=("message.max.bytes",),
    )
    message_timestamp_after_max_ms: int = key(
        "message.timestamp.after.max.ms",
        _HOUR_MS,
        at_least(0),
        "How far in the future a producer's timestamp may be.",
        kind=LONG,
        unit="ms",
        synonyms=("log.message.timestamp.after.max.ms",),
    )
    message_timestamp_before_max_ms: int = key(
        "message.timestamp.before.max.ms",
        INT64_MAX,
        at_least(0),
        "How far in the past a producer's timestamp may be.",
        kind=LONG,
        unit="ms",
        synonyms=("log.message.timestamp.before.max.ms",),
    )
    message_timestamp_type: str = key(
        "message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "Whose time a record carries: the producer's, or the broker's at the append.",
        synonyms=("log.message.timestamp.type",),
    )
    min_cleanable_dirty_ratio: float = key(
        "min.cleanable.dirty.ratio",
        0.5,
        between(0, 1),
        "Which part of a log must be uncompacted before the cleaner takes it up.",
        synonyms=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = key(
        "min.compaction.lag.ms",
        0,
        at_least(0),
        "How long a record stays uncompacted at least.",
        kind=LONG,
        unit="ms",
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    )
    min_insync_replicas: int = key(
        "min.insync.replicas",
        1,
        at_least(1),
        "How many replicas must be in sync for a write with `acks=all` to be accepted.",
        synonyms=("min.insync.replicas",),
    )
    preallocate: bool = key(
        "preallocate",
        False,
        any_value(),
        "Whether a new segment's file gets its full size at once.",
        synonyms=("log.preallocate",),
    )
    remote_log_copy_disable: bool = key(
        "remote.log.copy.disable",
        False,
        any_value(),
        "With tiered storage: stop uploading; what is remote can still be read.",
    )
    remote_log_delete_on_disable: bool = key(
        "remote.log.delete.on.disable",
        False,
        any_value(),
        "Whether turning tiered storage off deletes what is remote.",
    )
    remote_storage_enable: bool = key(
        "remote.storage.enable",
        False,
        any_value(),
        "Whether old segments move to tiered storage.",
    )
    retention_bytes: int = key(
        "retention.bytes",
        _UNLIMITED,
        at_least(-1),
        "How large a partition may grow before its oldest segments are deleted; -1 is no limit.",
        kind=LONG,
        unit="bytes",
        synonyms=("log.retention.bytes",),
    )
    retention_ms: int = key(
        "retention.ms",
        604_800_000,
        at_least(-1),
        "How long records are kept when `cleanup.policy` includes delete; -1 is for ever.",
        kind=LONG,
        unit="ms",
        synonyms=(
            "log.retention.ms",
            Synonym("log.retention.minutes", _MINUTE_MS),
            Synonym("log.retention.hours", _HOUR_MS),
        ),
    )
    segment_bytes: int = key(
        "segment.bytes",
        1 << 30,
        at_least(1 << 20),
        "The size at which a new segment begins. Retention and compaction work on whole segments.",
        unit="bytes",
        synonyms=("log.segment.bytes",),
    )
    segment_index_bytes: int = key(
        "segment.index.bytes",
        10 << 20,
        at_least(4),
        "The size of an index file until its segment is closed. A full index begins a new one.",
        unit="bytes",
        synonyms=("log.index.size.max.bytes",),
    )
    segment_jitter_ms: int = key(
        "segment.jitter.ms",
        0,
        at_least(0),
        "The most that is randomly taken off segment.ms, so that partitions do not roll together.",
        kind=LONG,
        unit="ms",
        synonyms=("log.roll.jitter.ms", Synonym("log.roll.jitter.hours", _HOUR_MS)),
    )
    segment_ms: int = key(
        "segment.ms",
        604_800_000,
        at_least(1),
        "The age at which a new segment begins even if the old one is not full.",
        kind=LONG,
        unit="ms",
        synonyms=("log.roll.ms", Synonym("log.roll.hours", _HOUR_MS)),
    )
    unclean_leader_election_enable: bool = key(
        "unclean.leader.election.enable",
        False,
        any_value(),
        "Whether a replica that is not in sync may lead when no other is left, at a loss.",
        synonyms=("unclean.leader.election.enable",),
    )

    def __post_init__(self) -> None:
        validate(self)

    @property
    def segment_size_max(self) -> int:
        """The size at which a segment rolls; the internal key goes below the public limit."""
        return self.internal_segment_bytes or self.segment_bytes

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner works on this log."""
        return "compact" in self.cleanup_policy

    @property
    def deletes_old_segments(self) -> bool:
        """Whether retention by time and size applies."""
        return "delete" in self.cleanup_policy

    @property
    def waits_for_disk(self) -> bool:
        """Whether an acknowledgement means that the record is on disk."""
        return self.durability == "disk"

    @property
    def compression_level(self) -> int | None:
        """The level of the topic's own codec; None where the codec has none."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @property
    def local_retention_ms_effective(self) -> int:
        """How long records stay on local disk, with -2 resolved."""
        own = self.local_retention_ms
        return self.retention_ms if own == _SAME_AS_TOTAL else own

    @property
    def local_retention_bytes_effective(self) -> int:
        """How much stays on local disk, with -2 resolved."""
        own = self.local_retention_bytes
        return self.retention_bytes if own == _SAME_AS_TOTAL else own
