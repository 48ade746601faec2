"""Clients at work while every node of Apache Kafka dies, stops or hangs once, and comes back.

All of them work at the same time, so that the cluster is disturbed only once: each node leads
partitions, coordinates groups and transactions, and has its turn. Then each client has its test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream import Admin
from millstream.client.admin import ConfigResource
from tests.interop.cluster.workloads import (
    PARTITIONS,
    Copying,
    Reading,
    Sending,
    SendingAhead,
    SendingAsync,
    SendingTables,
    Sharing,
    Transacting,
    Workload,
)
from tests.waiting import let_time_pass

if TYPE_CHECKING:
    from tests.interop.cluster.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(400)]

SENDERS = {
    "plain": Sending,
    "ahead": SendingAhead,
    "ahead, lz4": SendingAhead,
    "tables": SendingTables,
    "tables, zstd": SendingTables,
    "async": SendingAsync,
}
OTHERS = (
    "transactions",
    "copy in transactions",
    "classic group",
    "consumer group",
    "share group",
)
HANG_SECONDS = 5.0
"""Longer than the cluster waits for a broker's heartbeat."""


def make_workloads(cluster: KafkaCluster) -> dict[str, Workload]:
    """Every kind of client; the readers read what the first sender sends."""
    made: dict[str, Workload] = {}
    for name, kind in SENDERS.items():
        compression = name.partition(", ")[2]
        settings = {"compression_type": compression} if compression else {}
        made[name] = kind(cluster, cluster.topic("sent", PARTITIONS), **settings)
    source = made["plain"]
    assert isinstance(source, Sending)
    copy, share = cluster.topic("copied", PARTITIONS), "shared"
    with Admin(cluster.bootstrap) as admin:
        admin.incremental_alter_configs(
            {ConfigResource("group", share): {"share.auto.offset.reset": "earliest"}}
        ).raise_first()
    readers = {
        "copy in transactions": Copying(cluster, source.topic, copy),
        "classic group": Reading(cluster, source.topic, "classic", group_protocol="classic"),
        "consumer group": Reading(cluster, source.topic, "new", group_protocol="consumer"),
        "share group": Sharing(cluster, source.topic, share),
    }
    for each in readers.values():
        each.source = lambda: source.sent
    made["transactions"] = Transacting(cluster, cluster.topic("transacted", PARTITIONS))
    return {**made, **readers}


def until_all_go_on(cluster: KafkaCluster, workloads: dict[str, Workload]) -> None:
    """Wait until everybody has got further than now, or has failed."""
    before = {name: each.done for name, each in workloads.items()}
    behind = dict(workloads)

    def is_so() -> bool:
        for name, each in list(behind.items()):
            if each.done > before[name] or each.has_failed:
                del behind[name]
        return not behind

    cluster.until(is_so, lambda: f"these go on: {', '.join(behind)}")


def disturb(cluster: KafkaCluster, workloads: dict[str, Workload]) -> None:
    """Each node in its turn; then all lead again what they led at first."""
    first, second, third = cluster.nodes.values()
    first.kill()
    until_all_go_on(cluster, workloads)
    cluster.heal()
    for each in workloads.values():
        cluster.prefer(each.topic, PARTITIONS)
    second.stop()
    until_all_go_on(cluster, workloads)
    cluster.heal()
    third.pause()
    let_time_pass(HANG_SECONDS)
    third.resume()
    until_all_go_on(cluster, workloads)
    cluster.heal()
    for each in workloads.values():
        cluster.prefer(each.topic, PARTITIONS)
    until_all_go_on(cluster, workloads)


@pytest.fixture(scope="module")
def disturbed(kafka_cluster: KafkaCluster) -> dict[str, Workload]:
    """The workloads, at their end."""
    kafka_cluster.heal()
    workloads = make_workloads(kafka_cluster)
    for each in workloads.values():
        each.start()
    until_all_go_on(kafka_cluster, workloads)
    disturb(kafka_cluster, workloads)
    for name in sorted(workloads, key=list(SENDERS).__contains__, reverse=True):
        workloads[name].finish()
        if name in SENDERS:
            workloads[name].join()
    for each in workloads.values():
        each.join()
    return workloads


@pytest.mark.parametrize("name", [*SENDERS, *OTHERS])
def test_nothing_is_lost_doubled_or_out_of_order(
    name: str, disturbed: dict[str, Workload], cluster: KafkaCluster
) -> None:
    disturbed[name].check()
