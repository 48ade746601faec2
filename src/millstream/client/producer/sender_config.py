"""What the Sender needs of a producer's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.network.client.backoff import Backoff

if TYPE_CHECKING:
    from millstream.client.producer.config import ProducerConfig
    from millstream.records.compression import Compression


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderConfig:
    """How batches are sent, and for how long it is tried."""

    acks: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retries: int
    request_size_max: int
    compression: Compression
    compression_level: int | None
    backoff: Backoff
    keeps_order: bool
    """Whether a partition has one batch under way at a time, for want of numbers."""
    transactional_id: str | None
    """As the brokers know it."""
    availability_timeout_ms: int
    linger_ms: int

    @classmethod
    def of(cls, config: ProducerConfig) -> SenderConfig:
        """The part of a producer's settings."""
        given_id = config.transactional_id
        return cls(
            acks=config.required_acks,
            request_timeout_ms=config.request_timeout_ms,
            delivery_timeout_ms=config.delivery_timeout_ms,
            retries=config.retries,
            request_size_max=config.max_request_size,
            compression=config.compression,
            compression_level=config.compression_level,
            backoff=Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms),
            keeps_order=config.max_in_flight_requests_per_connection == 1,
            transactional_id=None if given_id is None else config.names.to_wire(given_id),
            availability_timeout_ms=config.partitioner_availability_timeout_ms,
            linger_ms=config.linger_ms,
        )
