"""A slice of the seeds with every test run; `run.py` has the rest."""

from __future__ import annotations

import pytest

from tests.simulation.storage.run import main
from tests.simulation.storage.simulation import run_seed

SLICES = 8
SEEDS_PER_SLICE = 20


@pytest.mark.slow
@pytest.mark.parametrize("number", range(SLICES))
def test_a_log_keeps_its_promises_through_faults(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    for seed in range(number * SEEDS_PER_SLICE, (number + 1) * SEEDS_PER_SLICE):
        run_seed(seed)


@pytest.mark.parametrize("seed", [406, 548, 731, 1209, 1603, 2916, 3146, 5862, 7345])
def test_seeds_that_once_failed_hold(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")

    run_seed(seed)


def test_a_failing_seed_tells_its_story(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(seed: int, steps: int) -> None:
        raise AssertionError(f"seed {seed} after {steps}")

    monkeypatch.setattr("tests.simulation.storage.run.run_seed", failing)
    monkeypatch.setattr("logging.disable", lambda level: None)

    assert main(["--seeds", "2", "--start", "7", "--steps", "3"]) == 1
    assert "seed 8 after 3" in capsys.readouterr().out
