"""`groups`, `share-groups` and `transactions` against a broker process and real clients."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.cli.hanging import UNVERIFIED
from tests.integration.cli.stories import (
    tell_of_a_group,
    tell_of_a_hanging_transaction,
    tell_of_a_share_group,
    tell_of_a_transaction,
    tell_of_moved_offsets,
)
from tests.integration.node.harness import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.cli.stories import Run

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]

SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=500",
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "share.coordinator.state.topic.num.partitions=4",
    UNVERIFIED,
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a broker listens. It must stop in order, and have nothing to complain about."""
    arguments = [part for each in SETTINGS for part in ("--set", each)]
    with running(tmp_path_factory.mktemp("broker"), *arguments) as node:
        yield node.until_ready()
        code, log = node.finish(signal.SIGTERM)
    assert code == 0
    assert "ERROR" not in log
    assert "Traceback" not in log


@pytest.fixture
def run(address: str, run_at: Callable[[str], Run]) -> Run:
    return run_at(address)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("classic", {"group.protocol": "classic"}),
        (
            "static",
            {"group.protocol": "classic", "group.instance.id": "till", "session.timeout.ms": 6000},
        ),
        ("consumer", {"group.protocol": "consumer"}),
    ],
)
def test_a_group_is_seen_and_moved(
    run: Run, address: str, name: str, settings: dict[str, Any]
) -> None:
    tell_of_a_group(run, address, name, settings)


def test_offsets_are_given_kept_and_restored(run: Run, tmp_path: Path) -> None:
    tell_of_moved_offsets(run, "moved", tmp_path)


def test_a_transaction_is_seen(run: Run, address: str) -> None:
    tell_of_a_transaction(run, address, "billing")


def test_a_hanging_transaction_is_found_and_aborted(run: Run, address: str) -> None:
    tell_of_a_hanging_transaction(run, address, "hanging")


def test_a_share_group_is_seen_and_moved(run: Run, address: str) -> None:
    tell_of_a_share_group(run, address, "shared")
