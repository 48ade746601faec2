"""Counts, windows and percentiles of `millstream perf`."""

from __future__ import annotations

import pytest

from millstream.cli.perf_meter import Latencies, Meter


def test_percentiles_are_near_the_exact_ones() -> None:
    latencies = Latencies()
    for latency_ns in range(1, 10_001):
        latencies.add(latency_ns)

    for share in (0.01, 0.5, 0.95, 0.999):
        assert latencies.percentile_ns(share) == pytest.approx(share * 10_000, rel=1 / 64)
    assert latencies.percentile_ns(1.0) == pytest.approx(10_000, rel=1 / 64)
    assert latencies.max_ns == 10_000
    assert latencies.mean_ns == 5000.5


def test_small_latencies_are_exact() -> None:
    for latency_ns in range(128):
        latencies = Latencies()
        latencies.add(latency_ns)

        assert latencies.percentile_ns(0.5) == latency_ns


def test_no_percentile_exceeds_the_largest() -> None:
    latencies = Latencies()
    latencies.add(1 << 40)

    assert latencies.percentile_ns(0.5) <= latencies.max_ns


def test_a_weight_counts_as_that_many() -> None:
    latencies = Latencies()
    latencies.add(10, weight=99)
    latencies.add(100)

    assert latencies.count == 100
    assert latencies.percentile_ns(0.99) == 10
    assert latencies.percentile_ns(0.999) == 100
    assert latencies.mean_ns == 10.9


def test_nothing_has_no_latency() -> None:
    assert Latencies().percentile_ns(0.5) == 0
    assert Latencies().mean_ns == 0


def test_a_window_has_what_came_since_the_last() -> None:
    meter = Meter()
    meter.add(10, 1000)
    meter.time(5)
    meter.take_window()
    meter.add(3, 300)

    window = meter.take_window()

    assert (window.records, window.byte_count, window.latencies.count) == (3, 300, 0)
    assert (meter.records, meter.byte_count) == (13, 1300)
    assert meter.latencies.count == 1
