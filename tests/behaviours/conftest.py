"""The fixture `cluster`: every test here runs on each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.behaviours.clusters import Clusters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.behaviours.clusters import Cluster


@pytest.fixture(scope="session")
def behaviour_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """One of each for the whole run, whatever the order of tests."""
    clusters = Clusters(tmp_path_factory.mktemp)
    yield clusters
    clusters.close()


@pytest.fixture(
    params=[
        pytest.param("millstream", marks=pytest.mark.integration),
        pytest.param("kafka", marks=[pytest.mark.interop, pytest.mark.slow]),
        pytest.param("kafka-2.1", marks=[pytest.mark.interop, pytest.mark.slow]),
    ]
)
def cluster(behaviour_clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    """A cluster of one broker: ours, Apache Kafka, Apache Kafka 2.1."""
    return behaviour_clusters.get(request.param)
