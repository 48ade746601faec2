"""The broker's settings for replicas and fetches: Kafka's names and defaults.

`node` gathers them; `ReplicaManager` takes a `ReplicaConfig`. Settings of a topic, such as
`min.insync.replicas`, are in `storage.log.config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.config import ConfigType, at_least, key, validate

_LONG: Final = ConfigType.LONG


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """How replicas are judged, and how much one fetch may take."""

    replica_lag_time_max_ms: int = key(
        "replica.lag.time.max.ms",
        30_000,
        at_least(1),
        "How long a follower may go without having been at the leader's end before it counts as "
        "out of sync.",
        kind=_LONG,
        unit="ms",
    )
    fetch_max_bytes: int = key(
        "fetch.max.bytes",
        55 << 20,
        at_least(1024),
        "The most that one fetch answers with, whatever the asker allows; a single larger batch "
        "still comes whole.",
        unit="bytes",
    )
    fetch_session_slots: int = key(
        "max.incremental.fetch.session.cache.slots",
        1000,
        at_least(0),
        "How many fetch sessions the broker keeps; without a slot an asker names all its "
        "partitions each time.",
    )

    def __post_init__(self) -> None:
        validate(self)
