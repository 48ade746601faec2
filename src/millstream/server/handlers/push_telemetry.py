"""PushTelemetry 0: the metrics of a client, for whoever receives them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequest,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from millstream.protocol.messages.push_telemetry import PushTelemetryResponse
from millstream.records import Compression, decompress
from millstream.server.ports import ClientMetricsContext
from millstream.server.telemetry import ClientInstance
from millstream.types import Uuid

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.errors import ApiError
    from millstream.protocol.messages.push_telemetry import PushTelemetryRequest
    from millstream.server.exchange import Exchange
    from millstream.server.ports import ClientTelemetrySink
    from millstream.server.telemetry import ClientMetricsManager

_logger = logging.getLogger(__name__)

_GROWTH_MAX = 20
"""How many times larger metrics may become when they are decompressed."""


def handle_push_telemetry(
    request: PushTelemetryRequest,
    exchange: Exchange,
    clients: ClientMetricsManager,
    sink: ClientTelemetrySink,
    telemetry_max_bytes: int,
    clock: Clock,
) -> PushTelemetryResponse:
    """Check that they were asked for and are in time, and hand them on."""
    if request.client_instance_id == Uuid.ZERO:
        raise InvalidRequest("a client that pushes metrics has an id")
    now_ms = clock.monotonic_ms()
    instance = clients.find(request.client_instance_id)
    if instance is None:
        subscription = clients.subscription_for(request.client_instance_id, exchange)
        instance = ClientInstance(subscription, now_ms)
        clients.remember(request.client_instance_id, instance)
    _check(request, instance, telemetry_max_bytes, now_ms)
    current = clients.subscription_for(request.client_instance_id, exchange)
    if request.subscription_id != current.id:
        raise UnknownSubscriptionId(f"the client's subscription is {current.id} by now")
    instance.asked_ms = None
    instance.pushed_ms = now_ms
    instance.is_terminating = request.terminating
    _export(_payload(request, telemetry_max_bytes), request, exchange, sink)
    return PushTelemetryResponse()


def fail_push_telemetry(
    request: PushTelemetryRequest, error: ApiError, version: int
) -> PushTelemetryResponse:
    """The answer that the metrics were not taken."""
    return PushTelemetryResponse(error_code=error.code)


def _check(
    request: PushTelemetryRequest, instance: ClientInstance, bytes_max: int, now_ms: int
) -> None:
    if instance.is_terminating:
        raise InvalidRequest("the client has pushed its last metrics")
    pushed_ms, interval_ms = instance.pushed_ms, instance.subscription.push_interval_ms
    is_early = pushed_ms is not None and now_ms - pushed_ms < interval_ms
    if is_early and instance.asked_ms is None and not request.terminating:
        raise ThrottlingQuotaExceeded(f"metrics are pushed every {interval_ms} ms, not more often")
    if len(request.metrics) > bytes_max:
        raise TelemetryTooLarge(f"{len(request.metrics)} bytes of metrics, limit {bytes_max}")


def _payload(request: PushTelemetryRequest, bytes_max: int) -> bytes:
    try:
        codec = Compression(request.compression_type)
    except ValueError:
        raise UnsupportedCompressionType(
            f"there is no compression type {request.compression_type}"
        ) from None
    if codec is Compression.NONE:
        return bytes(request.metrics)
    try:
        return bytes(decompress(codec, request.metrics, bytes_max * _GROWTH_MAX))
    except CorruptMessage as error:
        raise InvalidRecord(f"the metrics cannot be decompressed: {error}") from error


def _export(
    payload: bytes, request: PushTelemetryRequest, exchange: Exchange, sink: ClientTelemetrySink
) -> None:
    connection = exchange.connection
    context = ClientMetricsContext(
        request.client_instance_id,
        exchange.request.client_id or "",
        connection.client_software_name,
        connection.client_software_version,
        connection.principal,
        connection.peer_host,
        connection.peer_port,
        request.terminating,
    )
    try:
        sink.export(payload, context)
    except Exception as error:
        _logger.warning("the receiver of client metrics failed", exc_info=True)
        raise InvalidRecord("the receiver of client metrics failed") from error
