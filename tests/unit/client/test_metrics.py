"""Meters of clients: sums, and what they were lately."""

from __future__ import annotations

from millstream.client.metrics import WINDOW_MS, ClientMeters, Meter
from millstream.protocol.api import ApiKey


def test_a_meter_without_anything_is_zero() -> None:
    meter = Meter()

    assert (meter.total, meter.rate(5), meter.average(5), meter.maximum(5)) == (0, 0.0, 0.0, 0)


def test_a_rate_is_per_second_since_counting_began() -> None:
    meter = Meter()
    for second in range(10):
        meter.add(50, second * 1000)

    assert meter.rate(10_000) == 50
    assert meter.count_rate(10_000) == 1
    assert (meter.total, meter.count) == (500, 10)


def test_the_first_instant_is_no_burst() -> None:
    meter = Meter()
    meter.add(50, 0)

    assert meter.rate(1) == 50


def test_what_is_long_ago_counts_in_the_sum_alone() -> None:
    meter = Meter()
    meter.add(900, 0)
    meter.add(10, WINDOW_MS)
    assert meter.maximum(WINDOW_MS) == 900

    meter.add(10, 2 * WINDOW_MS)

    assert (meter.maximum(2 * WINDOW_MS), meter.average(2 * WINDOW_MS)) == (10, 10)
    assert meter.total == 920
    assert meter.rate(5 * WINDOW_MS) == 0


def test_requests_are_counted_by_their_api() -> None:
    meters = ClientMeters()
    meters.on_done(ApiKey.METADATA, 0, 20, is_answered=True)
    meters.on_done(ApiKey.METADATA, 0, 40, is_answered=False)
    meters.on_throttled(1500, 40)
    meters.retries += 1

    figures = meters.figures(1000)

    found = figures["requests"]["Metadata"]
    assert (found.count, found.failures, found.rate) == (2, 1, 2.0)
    assert (found.latency_avg, found.latency_max) == (0.03, 0.04)
    assert (figures["retries"], figures["throttle_time"]) == (1, 1.5)
