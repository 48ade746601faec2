"""A slice of `make soak-replication`: brokers of a cluster are killed, nothing promised is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("confluent_kafka", reason="a client used only in tests")

from tests.integration.cluster.replication_kill import Rounds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]


def test_nothing_that_a_cluster_promised_is_lost_by_kill_9(tmp_path: Path) -> None:
    report = Rounds(tmp_path, seed=5).run(2)

    assert report.rounds == 2
    assert report.verified >= report.promised > 0
