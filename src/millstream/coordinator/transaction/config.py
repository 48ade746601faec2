"""The broker's settings for transactions: Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.config import ConfigType, at_least, between, key, validate

_SHORT_MAX: Final = (1 << 15) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """How long transactions may take, and where their state is kept."""

    timeout_max_ms: int = key(
        "transaction.max.timeout.ms",
        900_000,
        at_least(1),
        "The longest timeout that a producer may ask for; a transaction that is open longer than "
        "its timeout is aborted.",
        unit="ms",
    )
    id_expiration_ms: int = key(
        "transactional.id.expiration.ms",
        604_800_000,
        at_least(1),
        "How long a transactional id is remembered that is not used.",
        unit="ms",
    )
    id_cleanup_interval_ms: int = key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        at_least(1),
        "How often transactional ids that nobody used for long are looked for.",
        unit="ms",
    )
    partition_count: int = key(
        "transaction.state.log.num.partitions",
        50,
        at_least(1),
        "How many partitions the topic of the transactions' state is made with.",
    )
    replication_factor: int = key(
        "transaction.state.log.replication.factor",
        3,
        between(1, _SHORT_MAX),
        "How many replicas that topic is made with; if this is not set, at most as many as there "
        "are brokers.",
        kind=ConfigType.SHORT,
    )
    min_isr: int = key(
        "transaction.state.log.min.isr",
        2,
        at_least(1),
        "How many replicas of that topic must be in sync for a transaction to go on.",
    )
    segment_bytes: int = key(
        "transaction.state.log.segment.bytes",
        100 << 20,
        at_least(1),
        "The size of that topic's segments.",
        unit="bytes",
    )

    def __post_init__(self) -> None:
        validate(self)
