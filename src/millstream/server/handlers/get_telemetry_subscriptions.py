"""GetTelemetrySubscriptions 0: which metrics a client is to push, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidRequest
from millstream.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsResponse,
)
from millstream.records import Compression
from millstream.server.telemetry import ClientInstance
from millstream.types import Uuid

if TYPE_CHECKING:
    from random import Random

    from millstream.clock import Clock
    from millstream.errors import ApiError
    from millstream.protocol.messages.get_telemetry_subscriptions import (
        GetTelemetrySubscriptionsRequest,
    )
    from millstream.server.exchange import Exchange
    from millstream.server.telemetry import ClientMetricsManager

_ACCEPTED: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)


def handle_get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest,
    exchange: Exchange,
    clients: ClientMetricsManager,
    telemetry_max_bytes: int,
    clock: Clock,
    random: Random,
) -> GetTelemetrySubscriptionsResponse:
    """Tell a client its subscription; one that has no id yet gets one."""
    instance_id = request.client_instance_id
    if instance_id == Uuid.ZERO:
        instance_id = Uuid.random(random)
    known = clients.find(instance_id)
    if known is not None and known.is_terminating:
        raise InvalidRequest("the client has pushed its last metrics")
    subscription = clients.subscription_for(instance_id, exchange)
    clients.remember(instance_id, ClientInstance(subscription, clock.monotonic_ms()))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.id,
        accepted_compression_types=[*_ACCEPTED],
        push_interval_ms=subscription.push_interval_ms,
        telemetry_max_bytes=telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=[*subscription.metrics],
    )


def fail_get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, error: ApiError, version: int
) -> GetTelemetrySubscriptionsResponse:
    """The answer without a subscription."""
    return GetTelemetrySubscriptionsResponse(error_code=error.code)
