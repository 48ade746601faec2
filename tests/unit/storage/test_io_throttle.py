"""How fast compaction may go."""

from __future__ import annotations

from math import inf

from millstream.storage.cleaner.io_throttle import IoThrottle


def test_work_is_paid_for_afterwards() -> None:
    throttle = IoThrottle(1000.0)
    assert throttle.slice_bytes == 100.0
    assert throttle.charge(100, now_ms=5000) == 5100
    assert throttle.charge(250, now_ms=5100) == 5350


def test_two_workers_share_the_rate() -> None:
    throttle = IoThrottle(1000.0)
    assert throttle.charge(100, now_ms=0) == 100
    assert throttle.charge(100, now_ms=0) == 200


def test_what_was_not_used_is_not_saved_up() -> None:
    throttle = IoThrottle(1000.0)
    throttle.charge(10, now_ms=0)
    assert throttle.charge(100, now_ms=60_000) == 60_100


def test_without_a_limit_nothing_waits() -> None:
    throttle = IoThrottle(1.7976931348623157e308)
    assert throttle.slice_bytes == inf
    assert throttle.charge(1 << 40, now_ms=7) == 7
