"""A slice of the soak: `make soak-cluster` runs it for an hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.cluster.soak import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]


def test_decisions_survive_kills_pauses_and_cuts(tmp_path: Path) -> None:
    soak = run(tmp_path, 1, lambda rounds: rounds >= 2)

    assert soak.check_leaders() >= 1
    assert soak.topics.promises.there
