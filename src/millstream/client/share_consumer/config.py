"""The settings of a share consumer, once in Kafka's names and once as keyword arguments.

`ShareConsumer` and `AsyncShareConsumer` take `ShareConsumerSettings`; the parts below get a
`ShareConsumerConfig`. A test holds the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from millstream.client.config import ClientConfig, ClientSettings, object_setting
from millstream.config import REQUIRED, ConfigType, any_value, at_least, key, one_of

EXPLICIT: Final = "explicit"
RECORD_LIMIT: Final = "record_limit"


class ShareConsumerSettings(ClientSettings, total=False):
    """Keyword arguments of a share consumer, but deserializers; durations are in seconds."""

    group_id: str
    share_acknowledgement_mode: Literal["implicit", "explicit"]
    share_acquire_mode: Literal["batch_optimized", "record_limit"]
    max_poll_interval: float
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait: float
    check_crcs: bool
    client_rack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerConfig(ClientConfig):
    """Settings of a share consumer, in Kafka's names and units."""

    group_id: str = key(
        "group.id",
        REQUIRED,
        any_value(),
        "The share group: its members share the records of its topics.",
        kind=ConfigType.STRING,
    )
    share_acknowledgement_mode: str = key(
        "share.acknowledgement.mode",
        "implicit",
        one_of("implicit", EXPLICIT),
        "implicit: what a poll gave is accepted with the next one, if nothing else was said of it; "
        "explicit: each record must be acknowledged before the next poll.",
    )
    share_acquire_mode: str = key(
        "share.acquire.mode",
        "batch_optimized",
        one_of("batch_optimized", RECORD_LIMIT),
        "batch_optimized: the broker hands out whole batches; record_limit: never more records "
        "than one poll gives.",
    )
    max_poll_interval_ms: int = key(
        "max.poll.interval.ms",
        300_000,
        at_least(1),
        "A member that does not poll for this long leaves its group.",
        unit="ms",
    )
    max_poll_records: int = key(
        "max.poll.records", 500, at_least(1), "How many records one poll gives at most."
    )
    fetch_min_bytes: int = key(
        "fetch.min.bytes", 1, at_least(0), "The broker waits for so much before it answers."
    )
    fetch_max_bytes: int = key(
        "fetch.max.bytes", 50 << 20, at_least(0), "How much one answer of a broker has, about."
    )
    fetch_max_wait_ms: int = key(
        "fetch.max.wait.ms",
        500,
        at_least(0),
        "How long a broker waits for records before it answers without.",
        unit="ms",
    )
    check_crcs: bool = key(
        "check.crcs", True, any_value(), "Check that batches arrived as they were written."
    )
    client_rack: str = key(
        "client.rack", "", any_value(), "Where this client is; brokers with a rack may use it."
    )
    key_deserializer: Any = object_setting(  # noqa: RUF009  # A field.
        "key.deserializer", None, "Makes keys of bytes: a name, a function or an object."
    )
    value_deserializer: Any = object_setting(  # noqa: RUF009  # A field.
        "value.deserializer", None, "Makes values of bytes: a name, a function or an object."
    )
