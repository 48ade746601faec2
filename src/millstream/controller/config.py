"""The controller's settings, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.config import ConfigType, any_value, at_least, key, validate

LONG: Final = ConfigType.LONG
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """How the controller watches brokers, places replicas and keeps house."""

    broker_session_timeout_ms: int = key(
        "broker.session.timeout.ms",
        9000,
        at_least(1),
        "How long a broker may be silent before it is fenced and its leaderships move.",
        unit="ms",
    )
    metadata_max_idle_interval_ms: int = key(
        "metadata.max.idle.interval.ms",
        500,
        at_least(0),
        "How often the active controller writes a record that says nothing, so that everybody's "
        "offset moves; 0 is never.",
        unit="ms",
    )
    default_replication_factor: int = key(
        "default.replication.factor",
        1,
        at_least(1),
        "The replication factor of a topic created without one.",
    )
    num_partitions: int = key(
        "num.partitions",
        1,
        at_least(1),
        "The number of partitions of a topic created without one.",
    )
    delete_topic_enable: bool = key(
        "delete.topic.enable", True, any_value(), "Whether topics can be deleted."
    )
    auto_leader_rebalance_enable: bool = key(
        "auto.leader.rebalance.enable",
        True,
        any_value(),
        "Whether leaderships move back to the preferred replica by themselves.",
    )
    leader_imbalance_check_interval_seconds: int = key(
        "leader.imbalance.check.interval.seconds",
        300,
        at_least(1),
        "How often that is checked.",
        kind=LONG,
    )
    unclean_leader_election_interval_ms: int = key(
        "unclean.leader.election.interval.ms",
        300_000,
        at_least(1),
        "How often partitions without leader are looked at whose topic allows an unclean one.",
        kind=LONG,
        unit="ms",
        is_internal=True,
    )
    delegation_token_secret_key: str | None = key(
        "delegation.token.secret.key",
        None,
        any_value(),
        "The key that delegation tokens are signed with, the same on every node. Without it there "
        "are no tokens.",
        kind=ConfigType.PASSWORD,
    )
    delegation_token_max_lifetime_ms: int = key(
        "delegation.token.max.lifetime.ms",
        7 * _DAY_MS,
        at_least(1),
        "How old a token can become, however often it is renewed.",
        kind=LONG,
        unit="ms",
    )
    delegation_token_expiry_time_ms: int = key(
        "delegation.token.expiry.time.ms",
        _DAY_MS,
        at_least(1),
        "How long a token is good before it must be renewed.",
        kind=LONG,
        unit="ms",
    )
    delegation_token_expiry_check_interval_ms: int = key(
        "delegation.token.expiry.check.interval.ms",
        3_600_000,
        at_least(1),
        "How often expired tokens are removed.",
        kind=LONG,
        unit="ms",
    )

    def __post_init__(self) -> None:
        validate(self)
