"""The broker's settings for answering requests: Kafka's names and defaults.

`node` gathers them; `KafkaApis` takes a `ServerConfig`. How topics are created by default is the
controller's business, how much a fetch may take that of `replica`.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.config import any_value, at_least, key, validate


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """What requests may do, and how much one of them may ask for."""

    auto_create_topics_enable: bool = key(
        "auto.create.topics.enable",
        True,
        any_value(),
        "Whether a topic comes into being when a client asks for its metadata.",
    )
    request_timeout_ms: int = key(
        "request.timeout.ms",
        30_000,
        at_least(1),
        "How long a request to the controller may take before its asker is told that it timed out.",
        unit="ms",
    )
    request_partition_size_limit: int = key(
        "max.request.partition.size.limit",
        2000,
        at_least(1),
        "How many partitions one answer to DescribeTopicPartitions has at most.",
    )
    telemetry_max_bytes: int = key(
        "telemetry.max.bytes",
        1 << 20,
        at_least(1),
        "The most that a client may push as its metrics at once, compressed.",
        unit="bytes",
    )

    def __post_init__(self) -> None:
        validate(self)
