"""Millstream and Apache Kafka 4.3 nodes in one cluster: quorums of both, brokers of either."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest

from tests.interop.cluster.mixed_cluster import MixedCluster, Spec
from tests.interop.java_client import require_broker_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.interop.cluster.mixed_cluster import Maker

pytestmark = pytest.mark.interop

ELECTIONS_MAX = 12
SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000"}

Make: TypeAlias = "Callable[..., MixedCluster]"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., MixedCluster]]:
    """Clusters that end with the test."""
    made = []
    jars = require_broker_jars(tmp_path)

    def make(specs: Mapping[int, Spec], *, is_dynamic: bool = False) -> MixedCluster:
        made.append(MixedCluster(jars, tmp_path, specs, is_dynamic=is_dynamic))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
def test_a_quorum_of_both_elects_either(make: Make, is_dynamic: bool) -> None:
    cluster = make(
        {1: Spec("millstream"), 2: Spec("millstream"), 3: Spec("kafka")}, is_dynamic=is_dynamic
    )
    cluster.start(options=cluster.initial_controllers() if is_dynamic else None)
    for each in cluster.nodes:
        cluster.create(f"through-{each}", at=each)
    topics = [f"through-{each}" for each in cluster.nodes]

    led: list[str] = []
    for number in range(ELECTIONS_MAX):
        leader = cluster.leader()
        led.append(leader.spec.maker)
        leader.kill()
        topics.append(f"after-{number}")
        cluster.create(topics[-1])
        leader.launch()
        cluster.until_members({1, 2, 3})
        if {"millstream", "kafka"} <= set(led):
            break

    assert {"millstream", "kafka"} <= set(led), led
    cluster.until_all_know(*topics)
    cluster.until_level()
    cluster.close()
    logs = sorted((each.metadata_log for each in cluster.nodes.values()), key=len)
    assert all(each.startswith(logs[0]) for each in logs)


@pytest.mark.parametrize("controllers", ["millstream", "kafka"])
def test_brokers_of_either_are_members_at_controllers_of_the_other(
    make: Make, controllers: Maker
) -> None:
    cluster = make(
        {
            1: Spec(controllers, "controller"),
            2: Spec("millstream", "broker", {"broker.rack": "a"}),
            3: Spec("kafka", "broker", {"broker.rack": "b"}),
        }
    )
    cluster.start()
    cluster.create("at-2", at=2)
    cluster.create("at-3", at=3)
    cluster.until_all_know("at-2", "at-3")

    assert cluster.racks == {2: "a", 3: "b"}
    for gone, rest in ((2, {3}), (3, {2})):
        cluster.nodes[gone].stop()
        cluster.until_members(rest)
        cluster.nodes[gone].launch()
        cluster.until_members({2, 3})


@pytest.mark.parametrize("controllers", ["millstream", "kafka"])
def test_a_node_that_comes_late_gets_a_snapshot_of_the_other_software(
    make: Make, controllers: Maker
) -> None:
    other: Maker = "kafka" if controllers == "millstream" else "millstream"
    cluster = make(
        {
            1: Spec(controllers, settings=SMALL_SNAPSHOTS),
            2: Spec(other, "broker"),
        }
    )
    cluster.start(1)
    for number in range(30):
        cluster.create(f"topic-{number}")
    cluster.until(lambda: len(cluster.nodes[1].snapshots) > 0)

    cluster.start(2)

    cluster.until_all_know(*[f"topic-{number}" for number in range(30)])
    fetched = {each.name for each in cluster.nodes[2].snapshots}
    assert fetched
    assert fetched <= {each.name for each in cluster.nodes[1].snapshots}


@pytest.mark.parametrize("first", ["millstream", "kafka"])
def test_a_voter_of_the_other_software_joins_by_itself(make: Make, first: Maker) -> None:
    joining = {"controller.quorum.auto.join.enable": "true"}
    other: Maker = "kafka" if first == "millstream" else "millstream"
    cluster = make({1: Spec(first), 2: Spec(other, settings=joining)}, is_dynamic=True)
    cluster.start(1, options={1: ["--standalone"]})

    cluster.start(2, options={2: ["--no-initial-controllers"]})

    cluster.until(lambda: {each.node_id for each in cluster.quorum.voters} == {1, 2})
    cluster.create("by-both")
    cluster.until_all_know("by-both")
