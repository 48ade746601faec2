"""`millstream quorum`: the controllers that keep the metadata log, and how far each has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import typer

from millstream.cli.message_session import open_session
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    new_family,
)
from millstream.cli.output import show_facts, show_json, show_rows
from millstream.cli.times import show_time
from millstream.errors import error_for_code
from millstream.metadata.topic_names import CLUSTER_METADATA_TOPIC
from millstream.network.endpoint import host_and_port
from millstream.protocol.messages import DescribeQuorumRequest, DescribeQuorumResponse
from millstream.protocol.messages.describe_quorum import (
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from millstream.types import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.protocol.messages.describe_quorum import (
        DescribeQuorumResponsePartitionData,
        ReplicaState,
    )

family = new_family("The quorum of controllers.")

_HEADINGS: Final = {
    "node": "NODE",
    "role": "ROLE",
    "log_end_offset": "LOG END",
    "lag": "LAG",
    "last_caught_up": "LAST CAUGHT UP",
    "directory_id": "DIRECTORY",
    "endpoints": "ENDPOINTS",
}


@family.callback()
def quorum() -> None:
    """The quorum of controllers."""


@family.command("describe")
def describe(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show who leads the metadata log, who votes, and who lags behind.

    Example: `millstream quorum describe`
    """
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(
        topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition]
    )
    with open_session(bootstrap_server, timeout) as session:
        request = DescribeQuorumRequest(topics=[topic])
        response = session.retrying(lambda: _checked(session.call(request, DescribeQuorumResponse)))
    found = response.topics[0].partitions[0]
    facts = {
        "leader": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
    }
    endpoints = {
        node.node_id: [
            f"{each.name}://{host_and_port(each.host, each.port)}" for each in node.listeners
        ]
        for node in response.nodes
    }
    rows = list(_replicas(found, endpoints))
    if as_json:
        show_json(facts | {"replicas": rows})
        return
    show_facts(facts, as_json=False)
    typer.echo()
    show_rows(rows, _HEADINGS, as_json=False)


def _checked(response: DescribeQuorumResponse) -> DescribeQuorumResponse:
    if response.error_code:
        raise error_for_code(response.error_code, response.error_message)
    partition = response.topics[0].partitions[0]
    if partition.error_code:
        raise error_for_code(partition.error_code, partition.error_message)
    return response


def _replicas(
    found: DescribeQuorumResponsePartitionData, endpoints: Mapping[int, list[str]]
) -> Iterator[dict[str, Any]]:
    leader_end = max(
        (
            each.log_end_offset
            for each in found.current_voters
            if each.replica_id == found.leader_id
        ),
        default=-1,
    )
    for role, replicas in (("voter", found.current_voters), ("observer", found.observers)):
        for each in sorted(replicas, key=lambda each: each.replica_id):
            is_leader = each.replica_id == found.leader_id
            yield _replica(each, "leader" if is_leader else role, leader_end) | {
                "endpoints": endpoints.get(each.replica_id, [])
            }


def _replica(state: ReplicaState, role: str, leader_end: int) -> dict[str, Any]:
    is_known = state.log_end_offset >= 0
    directory_id = state.replica_directory_id
    return {
        "node": state.replica_id,
        "role": role,
        "log_end_offset": state.log_end_offset if is_known else None,
        "lag": max(leader_end - state.log_end_offset, 0) if is_known else None,
        "last_caught_up": show_time(state.last_caught_up_timestamp),
        "directory_id": None if directory_id == Uuid.ZERO else str(directory_id),
    }
