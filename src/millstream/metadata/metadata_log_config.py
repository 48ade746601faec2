"""The settings of the metadata log: where it is, and how much of it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.config import ConfigType, at_least, key, non_empty, one_of, validate
from millstream.metadata.log_damage import RECOVERY_KEY, STRICT, TRUNCATE

BATCH_BYTES_MAX: Final = 8 << 20
"""The largest batch of records, and so the smallest segment."""

_LONG: Final = ConfigType.LONG


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogConfig:
    """Where the metadata log is, and how much of it is kept."""

    directory: str | None = key(
        "metadata.log.dir",
        None,
        non_empty(),
        "Where the metadata log is; without it, in the first of `log.dirs`.",
        kind=ConfigType.STRING,
    )
    segment_bytes: int = key(
        "metadata.log.segment.bytes",
        1 << 30,
        at_least(BATCH_BYTES_MAX),
        "The largest segment file of the metadata log.",
        unit="bytes",
    )
    retention_bytes: int = key(
        "metadata.max.retention.bytes",
        100 << 20,
        at_least(-1),
        "How large the metadata log may be with its snapshots before what the newest snapshot "
        "makes superfluous is deleted; -1 is no limit.",
        kind=_LONG,
        unit="bytes",
    )
    retention_ms: int = key(
        "metadata.max.retention.ms",
        7 * 86_400_000,
        at_least(-1),
        "How old a snapshot may be that is not the newest; -1 is no limit.",
        kind=_LONG,
        unit="ms",
    )
    recovery: str = key(
        RECOVERY_KEY,
        STRICT,
        one_of(STRICT, TRUNCATE),
        "What a controller does that finds damage in the metadata log where it had been synced: "
        "refuse to start, or cut the log there and lose what follows.",
    )

    def __post_init__(self) -> None:
        validate(self)
