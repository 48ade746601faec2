"""Strangers on the controller listener of a quorum of one: refused, and nobody steps down."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InconsistentVoterSet, RequestTimedOut, VoterNotFound
from millstream.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    VoteRequest,
    VoteResponse,
    add_raft_voter,
    begin_quorum_epoch,
    describe_quorum,
    end_quorum_epoch,
    vote,
)
from millstream.types import Uuid
from tests.integration.node.harness import Client
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.faults.harness import Broker

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

METADATA = "__cluster_metadata"
STRANGER = 9
DIRECTORY = Uuid(b"0123456789abcdef")
ASKED = describe_quorum.DescribeQuorumRequestTopicData(
    topic_name=METADATA,
    partitions=[describe_quorum.DescribeQuorumRequestPartitionData(partition_index=0)],
)
later_epochs = itertools.count(1000, 1000)
"""Epochs that the quorum has not reached, whichever test comes first."""


@pytest.fixture
def controller(broker: Broker) -> Iterator[Client]:
    """A connection to the controller listener."""
    found = re.search(r"CONTROLLER://([^ ,]+)", broker.said("ready")[0])
    assert found is not None
    with Client(found[1]) as client:
        yield client


def times_elected(broker: Broker) -> int:
    return len(broker.said("this node is the active controller"))


def test_a_leader_that_is_no_voter_is_refused(broker: Broker, controller: Client) -> None:
    elections, epoch = times_elected(broker), next(later_epochs)
    for number in range(20):
        asked = begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(
            partition_index=0, leader_id=STRANGER, leader_epoch=epoch + number
        )
        request = BeginQuorumEpochRequest(
            topics=[
                begin_quorum_epoch.BeginQuorumEpochRequestTopicData(
                    topic_name=METADATA, partitions=[asked]
                )
            ],
            leader_endpoints=[
                begin_quorum_epoch.LeaderEndpoint(name="CONTROLLER", host="127.0.0.1", port=1)
            ],
        )
        answer = controller.ask(request, 1, BeginQuorumEpochResponse)
        code = answer.topics[0].partitions[0].error_code
        assert code == InconsistentVoterSet.code

    with broker.client() as client:
        assert client.create_topic("after-a-claim") == 0
    assert times_elected(broker) == elections


def test_the_farewell_of_a_stranger_is_refused(broker: Broker, controller: Client) -> None:
    elections = times_elected(broker)
    asked = end_quorum_epoch.EndQuorumEpochRequestPartitionData(
        partition_index=0, leader_id=STRANGER, leader_epoch=next(later_epochs)
    )
    topic = end_quorum_epoch.EndQuorumEpochRequestTopicData(topic_name=METADATA, partitions=[asked])
    request = EndQuorumEpochRequest(topics=[topic])

    answer = controller.ask(request, 1, EndQuorumEpochResponse)

    assert answer.topics[0].partitions[0].error_code == InconsistentVoterSet.code
    with broker.client() as client:
        assert client.create_topic("after-a-farewell") == 0
    assert times_elected(broker) == elections


def test_a_stranger_that_is_voted_for_cannot_be_reached_and_the_voter_leads_again(
    broker: Broker, controller: Client
) -> None:
    # By Kafka's rules a voter does not ask who else votes: its own set may be the old one.
    elections, epoch = times_elected(broker), next(later_epochs)
    asked = vote.VoteRequestPartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=STRANGER,
        replica_directory_id=DIRECTORY,
        last_offset_epoch=epoch - 1,
        last_offset=1 << 40,
    )
    topic = vote.VoteRequestTopicData(topic_name=METADATA, partitions=[asked])
    answer = controller.ask(VoteRequest(topics=[topic]), 1, VoteResponse)
    assert answer.topics[0].partitions[0].vote_granted
    claim = begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(
        partition_index=0, leader_id=STRANGER, leader_epoch=epoch
    )
    request = BeginQuorumEpochRequest(
        topics=[
            begin_quorum_epoch.BeginQuorumEpochRequestTopicData(
                topic_name=METADATA, partitions=[claim]
            )
        ],
        leader_endpoints=[
            begin_quorum_epoch.LeaderEndpoint(name="CONTROLLER", host="127.0.0.1", port=1)
        ],
    )
    controller.ask(request, 1, BeginQuorumEpochResponse)

    until(lambda: times_elected(broker) > elections)
    broker.still_serves()


def test_a_voter_that_cannot_be_reached_is_not_added(broker: Broker, controller: Client) -> None:
    listener = add_raft_voter.Listener(name="CONTROLLER", host="127.0.0.1", port=1)
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=2000,
        voter_id=7,
        voter_directory_id=DIRECTORY,
        listeners=[listener],
    )

    answer = controller.ask(request, 0, AddRaftVoterResponse)

    assert answer.error_code == RequestTimedOut.code
    broker.still_serves()


def test_the_only_voter_is_not_removed(broker: Broker, controller: Client) -> None:
    quorum = controller.ask(DescribeQuorumRequest(topics=[ASKED]), 2, DescribeQuorumResponse)
    (voter,) = quorum.topics[0].partitions[0].current_voters
    request = RemoveRaftVoterRequest(
        cluster_id=None,
        voter_id=voter.replica_id,
        voter_directory_id=voter.replica_directory_id,
    )

    answer = controller.ask(request, 0, RemoveRaftVoterResponse)

    assert answer.error_code == VoterNotFound.code
    broker.still_serves()
