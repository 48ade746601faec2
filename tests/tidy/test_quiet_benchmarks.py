"""Benchmarks repeat what the host of a virtual machine disturbed, and say how much it did."""

from __future__ import annotations

from benchmarks.quiet import ATTEMPTS_MAX, Times, in_quiet

STAT = "cpu  10 1 5 60 2 0 2 20 7 0\ncpu0 5 0 2 30 1 0 1 10 3 0\n"


def test_the_share_that_was_stolen_leaves_out_what_guests_use() -> None:
    assert Times.parse(STAT) == Times(20, 100)
    assert Times(20, 100).steal_since(Times(10, 60)) == 0.25
    assert Times(20, 100).steal_since(Times(20, 100)) == 0.0


def test_a_disturbed_round_is_repeated_and_the_least_disturbed_counts() -> None:
    moments = iter([Times(0, 0), Times(50, 100), Times(50, 100), Times(52, 200)])
    rounds = iter(["disturbed", "quiet"])

    measured = in_quiet(lambda: next(rounds), lambda: next(moments))

    assert (measured.found, measured.steal, measured.repeats) == ("quiet", 0.02, 1)


def test_repetition_ends() -> None:
    moments = iter([Times(i * 50, i * 100) for i in range(2 * ATTEMPTS_MAX)])
    rounds = iter(range(ATTEMPTS_MAX))

    measured = in_quiet(lambda: next(rounds), lambda: next(moments))

    assert (measured.found, measured.repeats) == (0, ATTEMPTS_MAX - 1)


def test_what_must_be_quieter_than_most_is_repeated_sooner() -> None:
    moments = iter([Times(0, 0), Times(5, 100), Times(5, 100), Times(6, 200)])
    rounds = iter(["disturbed", "quiet"])

    measured = in_quiet(lambda: next(rounds), lambda: next(moments), steal_max=0.03)

    assert (measured.found, measured.steal, measured.repeats) == ("quiet", 0.01, 1)
