"""Apache Kafka's tools of quorums and nodes against a cluster of Millstream nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.cluster.mixed_cluster import MixedCluster, MixedNode, Spec
from tests.interop.kafka_broker import CLUSTER_ID, dump_segments
from tests.interop.tools import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.tools import JavaTools

pytestmark = pytest.mark.interop


class _FormattedByKafka(MixedNode):
    """A node of ours on a directory that Apache Kafka's tool has formatted."""

    def _storage_tool(self) -> list[str]:
        return super(MixedNode, self)._storage_tool()


@pytest.fixture(scope="module")
def nodes(
    java_classes: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    """One voter, a controller that may become the second, and a broker that may be unregistered."""
    scratch = tmp_path_factory.mktemp("quorum")
    specs = {
        1: Spec("millstream"),
        2: Spec("millstream", "controller"),
        3: Spec("millstream", "broker"),
    }
    cluster = MixedCluster(
        java_classes[0], scratch, specs, is_dynamic=True, make_node=_FormattedByKafka
    )
    try:
        cluster.start(1, 3, options={1: ["--standalone"]})
        cluster.start(2, options={2: ["--no-initial-controllers"]})
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def tools(java: JavaTools, nodes: MixedCluster) -> Cluster:
    """The tools, told where a broker is that runs all the time."""
    return Cluster(java, nodes.nodes[1].address)


def test_metadata_quorum_adds_and_removes_a_controller(tools: Cluster, nodes: MixedCluster) -> None:
    def voters() -> set[int]:
        return {each.node_id for each in nodes.quorum.voters}

    nodes.until(lambda: 2 in {each.node_id for each in nodes.quorum.observers})
    joining = nodes.nodes[2]
    status = tools.run("kafka-metadata-quorum", "describe", "--status")
    assert f"ClusterId:              {CLUSTER_ID}" in status
    assert "LeaderId:               1" in status

    tools.run(
        *("kafka-metadata-quorum", "--command-config", joining.settings_path, "add-controller")
    )
    assert voters() == {1, 2}
    replication = tools.run("kafka-metadata-quorum", "describe", "--replication").splitlines()
    assert [line.split()[0] for line in replication[1:]] == ["1", "2", "3"]
    roles = [line.split()[-1] for line in replication[1:]]
    assert roles == ["Leader", "Follower", "Observer"]

    directory = next(each.directory_id for each in nodes.quorum.voters if each.node_id == 2)
    tools.run(
        *("kafka-metadata-quorum", "remove-controller"),
        *("--controller-id", 2, "--controller-directory-id", directory),
    )
    assert voters() == {1}
    refused = tools.refusal(
        *("kafka-metadata-quorum", "remove-controller"),
        *("--controller-id", 2, "--controller-directory-id", directory),
    )
    assert "VoterNotFoundException" in refused
    only = nodes.quorum.voters[0].directory_id
    refused = tools.refusal(
        *("kafka-metadata-quorum", "remove-controller"),
        *("--controller-id", 1, "--controller-directory-id", only),
    )
    assert "VoterNotFoundException" in refused


def test_features_and_cluster(tools: Cluster, nodes: MixedCluster) -> None:
    described = tools.run("kafka-features", "describe")
    levels = {
        line.split()[1]: line.split("FinalizedVersionLevel: ")[1].split()[0]
        for line in described.splitlines()
    }
    assert levels["kraft.version"] == "1"
    assert levels["metadata.version"] == "4.3-IV0"
    assert CLUSTER_ID in tools.run("kafka-cluster", "cluster-id")
    assert len(tools.run("kafka-cluster", "list-endpoints").splitlines()) == 3


def test_a_broker_that_is_gone_is_unregistered(tools: Cluster, nodes: MixedCluster) -> None:
    nodes.nodes[3].stop()
    nodes.until(lambda: nodes.members == {1})

    tools.run("kafka-cluster", "unregister", "--id", 3)

    listed = tools.run("kafka-cluster", "list-endpoints", "--include-fenced-brokers")
    assert len(listed.splitlines()) == 2
    nodes.nodes[3].launch()
    nodes.until(lambda: nodes.members == {1, 3})


def test_the_metadata_log_is_readable(java_classes: tuple[Path, Path], nodes: MixedCluster) -> None:
    nodes.create("listed")

    files = sorted((nodes.nodes[1].data / "__cluster_metadata-0").glob("*.log"))
    said = dump_segments(java_classes[0], files, "--cluster-metadata-decoder")

    assert '"type":"TOPIC_RECORD"' in said
    assert '"name":"listed"' in said
    assert "KRaftVersion" in said
    assert "error" not in said.lower()
