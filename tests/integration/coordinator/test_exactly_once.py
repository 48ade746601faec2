"""Nothing is lost or done twice when workers and the broker are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("confluent_kafka", reason="a client used only in tests")

from tests.integration.coordinator.exactly_once import play

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_every_number_is_transformed_exactly_once(tmp_path: Path, protocol: str) -> None:
    report = play(tmp_path / "data", kills=3, seed=11, protocol=protocol)

    assert (report.numbers, report.worker_kills, report.broker_kills) == (1000, 2, 1)
