"""Where the metrics go that clients push (KIP-714): to the log, one line for each push.

`BrokerServer` gives a receiver to the handlers if `millstream.client.telemetry` is `log`. Without
one, as by default, clients are not told that they could push: some write a line at once when they
are. Nothing is asked of clients before somebody makes a `client-metrics` subscription. In a JSON
log the values are fields of their own.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from millstream.node.otlp_metrics import read_data_points

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.node.otlp_metrics import DataPoint
    from millstream.server.ports import ClientMetricsContext, ClientTelemetrySink

LOG: Final = "log"
NONE: Final = "none"

POINTS_MAX: Final = 2000
"""How many values of one push are written; a client has a few hundred."""
LINES_PER_SECOND_MAX: Final = 100

_logger = logging.getLogger("millstream.client_metrics")


class TelemetryLog:
    """Writes what clients push to the log."""

    __slots__ = ("_clock", "_dropped", "_lines", "_second")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._lines = 0
        self._dropped = 0

    def export(self, payload: bytes, context: ClientMetricsContext) -> None:
        """Write a line; raises InvalidRecord for what is no OTLP."""
        points = list(islice(read_data_points(payload), POINTS_MAX))
        if not self._may_write():
            return
        _logger.info(
            "%s of %s %s at %s: %s",
            context.client_id or context.client_instance_id,
            context.client_software_name or "a client",
            context.client_software_version,
            context.peer_host,
            ", ".join(_text_of(point) for point in points) or "no values",
            extra={"fields": _fields_of(context, points)},
        )

    def _may_write(self) -> bool:
        """Whoever can connect can invent clients, and must not fill the log with them."""
        second = self._clock.monotonic_ms() // 1000
        if second != self._second:
            if self._dropped:
                _logger.warning("metrics of clients came too often: %d not shown", self._dropped)
            self._second, self._lines, self._dropped = second, 0, 0
        if self._lines >= LINES_PER_SECOND_MAX:
            self._dropped += 1
            return False
        self._lines += 1
        return True


def telemetry_receiver(kind: str, clock: Clock) -> ClientTelemetrySink | None:
    """The receiver that a setting names; None if there shall be none."""
    return TelemetryLog(clock) if kind == LOG else None


def _text_of(point: DataPoint) -> str:
    labels = ",".join(f"{key}={value}" for key, value in point.attributes.items())
    times = "" if point.times is None else f" ({point.times} times)"
    return f"{point.name}{{{labels}}}={point.value:g}{times}"


def _fields_of(context: ClientMetricsContext, points: list[DataPoint]) -> dict[str, Any]:
    return {
        "client_instance_id": str(context.client_instance_id),
        "client_id": context.client_id,
        "client_software": f"{context.client_software_name} {context.client_software_version}",
        "client_address": f"{context.peer_host}:{context.peer_port}",
        "is_terminating": context.is_terminating,
        "metrics": [
            {"name": point.name, "attributes": point.attributes, "value": point.value}
            | ({} if point.times is None else {"times": point.times})
            for point in points
        ],
    }
