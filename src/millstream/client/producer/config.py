"""The settings of a producer: as Kafka names them, and as Python's keyword arguments.

`Producer` and `AsyncProducer` read one `ProducerConfig`; every other part gets what it needs of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from millstream.client.config import ClientConfig, ClientSettings, object_setting
from millstream.config import ConfigType, any_value, at_least, key, one_of
from millstream.errors import InvalidArgument
from millstream.records.compression import Compression, checked_level

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONG: Final = ConfigType.LONG
IN_FLIGHT_MAX: Final = 5
"""A broker remembers the numbers of this many batches of a producer."""


class ProducerSettings(ClientSettings, total=False):
    """Keyword arguments of a producer, but serializers: durations in seconds, sizes in bytes."""

    acks: Literal["all", "1", "0", "-1", 1, 0, -1]
    enable_idempotence: bool
    linger: float
    batch_size: int
    buffer_memory: int
    max_block: float
    max_request_size: int
    delivery_timeout: float
    retries: int
    max_in_flight_requests_per_connection: int
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    transactional_id: str | None
    transaction_timeout: float
    metadata_max_idle: float
    partitioner: Any
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout: float
    interceptors: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Settings of a producer, in Kafka's names and units."""

    acks: str = key(
        "acks",
        "all",
        one_of("all", "-1", "0", "1"),
        "Who must have a record before it counts as sent: all in-sync replicas, the leader (1), "
        "nobody (0).",
    )
    enable_idempotence: bool | None = key(
        "enable.idempotence",
        None,
        any_value(),
        "Never write a record twice or out of order, however often it is sent. On unless other "
        "settings forbid it.",
        kind=ConfigType.BOOLEAN,
    )
    linger_ms: int = key(
        "linger.ms",
        5,
        at_least(0),
        "Wait this long for more records before a batch is sent.",
        kind=_LONG,
        unit="ms",
    )
    batch_size: int = key(
        "batch.size",
        256 * 1024,
        at_least(0),
        "Send a batch once it has this many bytes, or four times as many with rows of a table. It "
        "takes memory as it fills, not before.",
        unit="bytes",
    )
    buffer_memory: int = key(
        "buffer.memory",
        32 * 1024 * 1024,
        at_least(1024),
        "The most memory for records that are not acknowledged.",
        kind=_LONG,
        unit="bytes",
    )
    max_block_ms: int = key(
        "max.block.ms",
        60_000,
        at_least(0),
        "Wait this long for memory or metadata when a record is sent, and for transactions.",
        kind=_LONG,
        unit="ms",
    )
    max_request_size: int = key(
        "max.request.size",
        1024 * 1024,
        at_least(1024),
        "The largest request, and so the largest record.",
        unit="bytes",
    )
    delivery_timeout_ms: int = key(
        "delivery.timeout.ms",
        120_000,
        at_least(0),
        "Give a record up after this long, retries included.",
        unit="ms",
    )
    retries: int = key(
        "retries",
        (1 << 31) - 1,
        at_least(0),
        "Send a batch again at most this often; the delivery timeout is the better limit.",
    )
    max_in_flight_requests_per_connection: int = key(
        "max.in.flight.requests.per.connection",
        IN_FLIGHT_MAX,
        at_least(1),
        "Requests that a broker is sent before it answers the first.",
    )
    compression_type: str = key(
        "compression.type",
        "none",
        one_of(*(each.config_name for each in Compression)),
        "How batches are compressed.",
    )
    compression_gzip_level: int | None = key(
        "compression.gzip.level",
        None,
        any_value(),
        "1 (fast) to 9 (small).",
        kind=ConfigType.INT,
    )
    compression_lz4_level: int | None = key(
        "compression.lz4.level",
        None,
        any_value(),
        "1 (fast) to 17 (small).",
        kind=ConfigType.INT,
    )
    compression_zstd_level: int | None = key(
        "compression.zstd.level",
        None,
        any_value(),
        "-131072 (fast) to 22 (small).",
        kind=ConfigType.INT,
    )
    transactional_id: str | None = key(
        "transactional.id",
        None,
        any_value(),
        "The name under which transactions survive restarts; a newer producer of the same name "
        "shuts an older one out.",
        kind=ConfigType.STRING,
    )
    transaction_timeout_ms: int = key(
        "transaction.timeout.ms",
        60_000,
        at_least(1),
        "The coordinator aborts a transaction that is open for longer.",
        unit="ms",
    )
    metadata_max_idle_ms: int = key(
        "metadata.max.idle.ms",
        300_000,
        at_least(5_000),
        "Forget a topic that nothing was sent to for this long.",
        kind=_LONG,
        unit="ms",
    )
    partitioner: Any = object_setting(  # noqa: RUF009  # A field.
        "partitioner.class",
        None,
        "Chooses partitions: 'sticky' (default: by key, else adaptive), 'round_robin', a function "
        "or an object.",
    )
    partitioner_ignore_keys: bool = key(
        "partitioner.ignore.keys",
        False,
        any_value(),
        "Whether the built-in partitioner treats records with keys like those without.",
    )
    partitioner_adaptive_partitioning_enable: bool = key(
        "partitioner.adaptive.partitioning.enable",
        True,
        any_value(),
        "Whether partitions of slow brokers get fewer records.",
    )
    partitioner_availability_timeout_ms: int = key(
        "partitioner.availability.timeout.ms",
        0,
        at_least(0),
        "Choose no partition of a broker that took nothing for this long; 0: never mind.",
        kind=_LONG,
        unit="ms",
    )
    key_serializer: Any = object_setting(  # noqa: RUF009  # A field.
        "key.serializer", None, "Makes bytes of keys; without one they must be bytes or str."
    )
    value_serializer: Any = object_setting(  # noqa: RUF009  # A field.
        "value.serializer", None, "Makes bytes of values; without one they must be bytes or str."
    )
    interceptors: Any = object_setting(  # noqa: RUF009  # A field.
        "interceptor.classes", (), "Objects, classes or their dotted names; called in order."
    )

    def __post_init__(self) -> None:
        # dataclass(slots=True) makes a second class, which super() without arguments misses.
        ClientConfig.__post_init__(self)
        faults = [*self._idempotence_faults(), *self._other_faults()]
        if faults:
            raise InvalidArgument("settings that do not go together: " + "; ".join(faults))

    @property
    def required_acks(self) -> int:
        """The number of acks on the wire."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def is_idempotent(self) -> bool:
        """Whether batches are numbered: as was said, else if nothing forbids it."""
        if self.enable_idempotence is not None:
            return self.enable_idempotence or self.transactional_id is not None
        return self.transactional_id is not None or not self._forbids_idempotence()

    @property
    def compression(self) -> Compression:
        """The codec."""
        return Compression.parse(self.compression_type)

    @property
    def compression_level(self) -> int | None:
        """The level for the codec; None for its default."""
        level: int | None = getattr(self, f"compression_{self.compression_type}_level", None)
        return level

    @property
    def wire_transactional_id(self) -> str | None:
        """The transactional id as the brokers know it."""
        given = self.transactional_id
        return None if given is None else self.names.to_wire(given)

    def _forbids_idempotence(self) -> list[str]:
        faults = []
        if self.required_acks != -1:
            faults.append(f"acks={self.acks} (must be all)")
        if self.retries == 0:
            faults.append("retries=0 (must be above 0)")
        if self.max_in_flight_requests_per_connection > IN_FLIGHT_MAX:
            faults.append(
                "max_in_flight_requests_per_connection="
                f"{self.max_in_flight_requests_per_connection} (must be at most {IN_FLIGHT_MAX})"
            )
        return faults

    def _idempotence_faults(self) -> list[str]:
        if self.transactional_id is not None and self.enable_idempotence is False:
            return ["a transactional_id needs enable_idempotence"]
        if self.transactional_id is not None or self.enable_idempotence:
            return [f"idempotence and {each}" for each in self._forbids_idempotence()]
        return []

    def _other_faults(self) -> list[str]:
        faults = []
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            faults.append(
                f"delivery_timeout of {self.delivery_timeout_ms} ms is less than linger and "
                f"request_timeout, {self.linger_ms + self.request_timeout_ms} ms"
            )
        try:
            checked_level(self.compression, self.compression_level)
        except InvalidArgument as error:
            faults.append(str(error))
        if self.transactional_id == "":
            faults.append("transactional_id must not be empty")
        return faults
