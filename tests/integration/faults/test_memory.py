"""A broker under everything that clients and strangers do: a slice of `make soak-memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.faults.memory import soak

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

SECONDS = 3
"""Too short to see memory grow; long enough for every kind of work to be done."""


def test_all_kinds_of_work_go_on_beside_damaged_requests(tmp_path: Path) -> None:
    report = soak(SECONDS, tmp_path)

    assert report.work.keys() == {"send", "consume", "transact", "read", "disturb"}
