"""When `millstream perf produce` sends which batch."""

from __future__ import annotations

from millstream.cli.perf_produce import Departure, Timetable

SECOND = 1_000_000_000
START = 7 * SECOND


def test_without_a_rate_a_full_batch_is_always_due() -> None:
    timetable = Timetable(100)

    assert timetable.next(0, START, START) == Departure(START, 100)
    assert timetable.next(12_345, START, START + 5) == Departure(START + 5, 100)


def test_the_last_batch_has_what_is_left() -> None:
    timetable = Timetable(100, records_max=250)

    assert timetable.next(200, START, START) == Departure(START, 50)
    assert timetable.next(250, START, START) is None


def test_nothing_is_due_after_the_duration() -> None:
    timetable = Timetable(100, duration_ns=SECOND)

    assert timetable.next(0, START, START + SECOND) is not None
    assert timetable.next(0, START, START + SECOND + 1) is None


def test_at_a_rate_a_batch_is_due_when_its_last_record_is() -> None:
    timetable = Timetable(100, records_per_second=1000, linger_ns=SECOND)

    assert timetable.next(0, START, START) == Departure(START + SECOND // 10, 100)
    assert timetable.next(100, START, START) == Departure(START + SECOND // 5, 100)


def test_at_a_low_rate_a_batch_waits_no_longer_than_the_linger() -> None:
    timetable = Timetable(100, records_per_second=1000, linger_ns=SECOND // 100)

    assert timetable.next(0, START, START) == Departure(START + SECOND // 100, 10)


def test_at_a_rate_below_the_linger_each_record_is_a_batch() -> None:
    timetable = Timetable(100, records_per_second=10, linger_ns=0)

    assert timetable.next(3, START, START) == Departure(START + 4 * SECOND // 10, 1)


def test_a_batch_that_would_be_due_too_late_is_not_sent() -> None:
    timetable = Timetable(1, records_per_second=10, duration_ns=SECOND)

    assert timetable.next(9, START, START) == Departure(START + SECOND, 1)
    assert timetable.next(10, START, START) is None


def test_progress_is_that_of_the_limit_which_is_nearer() -> None:
    timetable = Timetable(1, records_max=100, duration_ns=SECOND)

    assert timetable.progress(50, 0) == 0.5
    assert timetable.progress(50, SECOND * 3 // 4) == 0.75
    assert timetable.progress(500, 0) == 1.0
    assert Timetable(1).progress(50, SECOND) == 0.0
