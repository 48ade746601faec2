"""Clients of a broker whose answers are damaged: a slice of `make fuzz`."""

from __future__ import annotations

import pytest

from tests.fuzz.answers import run_for

CLIENTS = 20

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_damaged_answers_end_in_errors_that_are_documented(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("CRITICAL", "millstream")

    damaged, fates = run_for(0, seed=1, clients_min=CLIENTS)

    assert damaged > 0
    assert fates["done"] > 0
