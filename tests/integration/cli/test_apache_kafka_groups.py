"""`groups`, `share-groups` and `transactions` against Apache Kafka: the same stories."""

from __future__ import annotations

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
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.cli.stories import Run

pytestmark = [pytest.mark.interop, pytest.mark.integration, pytest.mark.timeout(300)]

SETTINGS = (
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
    "share.coordinator.state.topic.num.partitions=1",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.heartbeat.interval.ms=500",
    UNVERIFIED,
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    jars = require_broker_jars(tmp_path_factory.mktemp("maven"))
    scratch = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(jars, scratch / "data", scratch)
    with broker.settings_path.open("a") as settings:
        settings.write("".join(f"{each}\n" for each in SETTINGS))
    broker.format()
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def run(kafka: KafkaBroker, run_at: Callable[[str], Run]) -> Run:
    return run_at(kafka.address)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_seen_and_moved(run: Run, kafka: KafkaBroker, protocol: str) -> None:
    settings: dict[str, Any] = {"group.protocol": protocol}
    tell_of_a_group(run, kafka.address, protocol, settings)


def test_offsets_are_given_kept_and_restored(run: Run, tmp_path: Path) -> None:
    tell_of_moved_offsets(run, "moved", tmp_path)


def test_a_transaction_is_seen(run: Run, kafka: KafkaBroker) -> None:
    tell_of_a_transaction(run, kafka.address, "billing")


def test_a_hanging_transaction_is_found_and_aborted(run: Run, kafka: KafkaBroker) -> None:
    tell_of_a_hanging_transaction(run, kafka.address, "hanging")


def test_a_share_group_is_seen_and_moved(run: Run, kafka: KafkaBroker) -> None:
    tell_of_a_share_group(run, kafka.address, "shared")
