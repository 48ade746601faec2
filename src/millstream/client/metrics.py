"""What a client has done so far and how fast: `producer.metrics()`, `consumer.metrics()`.

The parts of a client count where things happen: once per request, batch or poll, never per record.
Meters belong to the thread that counts with them; a snapshot may be taken by any thread, and its
figures may be a request apart from each other. Rates, averages and maxima are those of the last 30
to 60 seconds, all other figures are since the client was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.network.client.network_client import NetworkClient, VersionedRequest
from millstream.protocol.api import API_BY_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random
    from typing import Any

    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.network.client.config import NetworkClientConfig
    from millstream.network.client.network_client import OnDone, RequestSource
    from millstream.network.client.selector import ClientSelector
    from millstream.protocol.api import ApiKey

WINDOW_MS: Final = 30_000
_RATE_MS_MIN: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMetrics:
    """The requests of one API."""

    count: int
    """How many were answered, or given up."""
    failures: int
    """How many of these had no answer."""
    rate: float
    """How many there are per second."""
    latency_avg: float
    """Seconds from when a request was handed over until its answer."""
    latency_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetrics:
    """Figures of every client; those of an admin."""

    requests: Mapping[str, RequestMetrics]
    """By the name of the API: `requests["Metadata"]`."""
    retries: int
    """How many requests, or batches of a producer, were sent once more."""
    throttle_time: float
    """Seconds for which brokers asked to be left alone, in all."""
    throttle_time_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerMetrics(ClientMetrics):
    """Figures of a producer."""

    records_sent: int
    """Records that were acknowledged."""
    records_failed: int
    """Records that were given up."""
    bytes_sent: int
    batches_sent: int
    record_rate: float
    byte_rate: float
    delivery_latency_avg: float
    """Seconds from when a batch began until it was acknowledged, lingering and retries included."""
    delivery_latency_max: float
    batches_incomplete: int
    """The queue: batches that are filling, waiting or on their way."""
    buffer_bytes: int
    """Memory in use, of `buffer_memory`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerMetrics(ClientMetrics):
    """Figures of a share consumer."""

    records_read: int
    """Records, or rows of Arrow, that polls gave."""
    record_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMetrics(ShareConsumerMetrics):
    """Figures of a consumer."""

    bytes_fetched: int
    byte_rate: float
    buffered_bytes: int
    """The queue: what was fetched and no poll has given yet."""
    assigned_partitions: int


class _Window(NamedTuple):
    begun_ms: int
    total: int
    times: int
    most: int


class Meter:
    """A sum of amounts, and how it grew lately. One thread adds; others may look."""

    __slots__ = ("_before", "_count", "_since_ms", "_sum", "_top", "count", "total")

    def __init__(self) -> None:
        self.total = 0
        self.count = 0
        self._since_ms: int | None = None
        self._sum = self._count = self._top = 0
        self._before: _Window | None = None

    def add(self, amount: int, now_ms: int) -> None:
        """Count an amount once."""
        if self._since_ms is None or now_ms - self._since_ms >= WINDOW_MS:
            self._turn(now_ms)
        self.total += amount
        self.count += 1
        self._sum += amount
        self._count += 1
        self._top = max(self._top, amount)

    def _turn(self, now_ms: int) -> None:
        if self._since_ms is not None:
            self._before = _Window(self._since_ms, self._sum, self._count, self._top)
        self._since_ms = now_ms
        self._sum = self._count = self._top = 0

    def _lately(self, now_ms: int) -> list[_Window]:
        if self._since_ms is None:
            return []
        windows = [_Window(self._since_ms, self._sum, self._count, self._top)]
        if self._before is not None:
            windows.append(self._before)
        return [each for each in windows if now_ms - each.begun_ms < 2 * WINDOW_MS]

    def rate(self, now_ms: int) -> float:
        """How much was added per second."""
        return self._per_second(now_ms, 1)

    def count_rate(self, now_ms: int) -> float:
        """How often something was added per second."""
        return self._per_second(now_ms, 2)

    def _per_second(self, now_ms: int, field: int) -> float:
        windows = self._lately(now_ms)
        if not windows:
            return 0.0
        elapsed_ms = now_ms - min(each.begun_ms for each in windows)
        return sum(each[field] for each in windows) * 1000 / max(elapsed_ms, _RATE_MS_MIN)

    def average(self, now_ms: int) -> float:
        """The average amount."""
        windows = self._lately(now_ms)
        count = sum(each.times for each in windows)
        return sum(each.total for each in windows) / count if count else 0.0

    def maximum(self, now_ms: int) -> int:
        """The largest amount."""
        return max((each.most for each in self._lately(now_ms)), default=0)


class _RequestMeter:
    """The requests of one API."""

    __slots__ = ("failures", "latency")

    def __init__(self) -> None:
        self.latency = Meter()
        self.failures = 0

    def add(self, sent_ms: int, done_ms: int, *, is_answered: bool) -> None:
        self.latency.add(done_ms - sent_ms, done_ms)
        self.failures += not is_answered

    def metrics(self, now_ms: int) -> RequestMetrics:
        return RequestMetrics(
            count=self.latency.count,
            failures=self.failures,
            rate=self.latency.count_rate(now_ms),
            latency_avg=self.latency.average(now_ms) / 1000,
            latency_max=self.latency.maximum(now_ms) / 1000,
        )


class ClientMeters:
    """What every client counts, on its I/O thread."""

    def __init__(self) -> None:
        self._requests: dict[ApiKey, _RequestMeter] = {}
        self._throttled = Meter()
        self.retries = 0

    def on_done(self, api: ApiKey, sent_ms: int, done_ms: int, *, is_answered: bool) -> None:
        """A request was answered, or is given up."""
        meter = self._requests.get(api)
        if meter is None:
            # A snapshot on another thread may be going through the old one.
            meter = _RequestMeter()
            self._requests = {**self._requests, api: meter}
        meter.add(sent_ms, done_ms, is_answered=is_answered)

    def on_throttled(self, throttle_ms: int, now_ms: int) -> None:
        """A broker asked to be left alone."""
        self._throttled.add(throttle_ms, now_ms)

    def figures(self, now_ms: int) -> dict[str, Any]:
        """The fields of `ClientMetrics`."""
        requests = self._requests
        return {
            "requests": {
                api.api_name: meter.metrics(now_ms) for api, meter in sorted(requests.items())
            },
            "retries": self.retries,
            "throttle_time": self._throttled.total / 1000,
            "throttle_time_max": self._throttled.maximum(now_ms) / 1000,
        }


class SendMeters:
    """What a producer counts of its batches."""

    def __init__(self) -> None:
        self.records = Meter()
        self.bytes = Meter()
        self.latency = Meter()
        self.records_failed = 0
        self.retries = 0

    def on_acknowledged(self, batches: Sequence[ProducerBatch], size: int, now_ms: int) -> None:
        """Brokers have batches of so many bytes in all."""
        self.records.add(sum(each.record_count for each in batches), now_ms)
        self.bytes.add(size, now_ms)
        for each in batches:
            self.latency.add(now_ms - each.created_ms, now_ms)

    def figures(self, now_ms: int) -> dict[str, Any]:
        """Fields of `ProducerMetrics`."""
        return {
            "records_sent": self.records.total,
            "records_failed": self.records_failed,
            "bytes_sent": self.bytes.total,
            "batches_sent": self.latency.count,
            "record_rate": self.records.rate(now_ms),
            "byte_rate": self.bytes.rate(now_ms),
            "delivery_latency_avg": self.latency.average(now_ms) / 1000,
            "delivery_latency_max": self.latency.maximum(now_ms) / 1000,
        }


class MeasuredNetwork(NetworkClient):
    """The network of a client, which counts its requests and how long they take."""

    def __init__(
        self,
        selector: ClientSelector,
        config: NetworkClientConfig,
        random: Random,
        meters: ClientMeters,
    ) -> None:
        super().__init__(selector, config, random)
        self._meters = meters

    def send(
        self,
        node_id: int,
        request: RequestSource,
        now_ms: int,
        on_done: OnDone,
        **how: Any,
    ) -> None:
        """As any network does, and measure how long it takes."""
        api = request.api if isinstance(request, VersionedRequest) else API_BY_KEY[request.KEY]

        def measured(answer: Any, done_ms: int) -> None:
            is_answered = not isinstance(answer, Exception)
            self._meters.on_done(api, now_ms, done_ms, is_answered=is_answered)
            on_done(answer, done_ms)

        super().send(node_id, request, now_ms, measured, **how)

    def throttle(self, node_id: int, throttle_time_ms: int, now_ms: int) -> None:
        """Leave a broker alone for as long as it asked for, and count that."""
        if throttle_time_ms > 0:
            self._meters.on_throttled(throttle_time_ms, now_ms)
        super().throttle(node_id, throttle_time_ms, now_ms)
