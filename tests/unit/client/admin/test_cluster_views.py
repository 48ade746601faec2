"""What an admin tells of a cluster: all topics, who coordinates what, and that nobody is there."""

from __future__ import annotations

import pytest

from millstream.errors import BootstrapFailed, TopicAuthorizationFailed
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    ConsumerGroupDescribeResponse,
    DescribeQuorumResponse,
    DescribeShareGroupOffsetsResponse,
    DescribeTransactionsResponse,
    ListGroupsResponse,
    ListTransactionsResponse,
    consumer_group_describe,
    describe_quorum,
    describe_transactions,
    list_groups,
    list_transactions,
)
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from millstream.types import TopicPartition
from tests.unit.client.admin.office import Office


def test_an_address_where_nobody_is_fails_at_once() -> None:
    office = Office()
    office.cluster.stop("broker1")

    with pytest.raises(BootstrapFailed, match="broker1:9092: refused"):
        office.run(office.operations.connect())

    assert office.done_ms < 100
    office.cluster.start("broker1")
    office.run(office.operations.connect())
    office.run(office.operations.connect())


def test_other_calls_wait_for_a_broker_that_is_just_starting() -> None:
    office = Office()
    office.cluster.stop("broker1")
    with pytest.raises(BootstrapFailed):
        office.run(office.operations.list_groups(timeout=3))

    assert office.done_ms >= 3000


def test_all_topics_are_described_if_none_are_named() -> None:
    office = Office(namespace="test")
    for name in ("test.b", "test.a", "other.c"):
        office.cluster.add_topic(name, [1, 2])
    office.cluster.topics["test.b"].error_code = TopicAuthorizationFailed.code

    found = office.run(office.operations.describe_topics())

    assert [each.name for each in found.results.values()] == ["a"]
    assert len(found["a"].partitions) == 2
    assert list(found.errors) == ["b"]


def test_who_coordinates_is_told() -> None:
    office = Office()
    group = consumer_group_describe.DescribedGroup(group_id="x2", group_state="Empty")
    office.answers(ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeResponse(groups=[group]))
    office.answers(
        ApiKey.LIST_GROUPS,
        ListGroupsResponse(groups=[list_groups.ListedGroup(group_id="x2", group_type="Consumer")]),
        ListGroupsResponse(),
    )
    state = describe_transactions.TransactionState(transactional_id="t3")
    office.answers(
        ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsResponse(transaction_states=[state])
    )
    listed = list_transactions.TransactionState(transactional_id="t3")
    office.answers(
        ApiKey.LIST_TRANSACTIONS,
        ListTransactionsResponse(transaction_states=[listed]),
        ListTransactionsResponse(),
    )
    run, operations = office.run, office.operations

    assert run(operations.describe_groups(["x2"]))["x2"].coordinator == 2
    assert run(operations.describe_transactions(["t3"]))["t3"].coordinator == 3
    [group_listing] = run(operations.list_groups())
    assert group_listing.coordinator == office.nodes(ApiKey.LIST_GROUPS)[0]
    [listing] = run(operations.list_transactions())
    assert listing.coordinator == office.nodes(ApiKey.LIST_TRANSACTIONS)[0]


def test_a_share_group_that_has_not_read_yet_has_no_offset() -> None:
    office = Office()
    parts = [
        DescribeShareGroupOffsetsResponsePartition(partition_index=0, start_offset=-1, lag=-1),
        DescribeShareGroupOffsetsResponsePartition(partition_index=1, start_offset=7, lag=2),
    ]
    topic = DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=parts)
    group = DescribeShareGroupOffsetsResponseGroup(group_id="s", topics=[topic])
    office.answers(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DescribeShareGroupOffsetsResponse(groups=[group])
    )

    found = office.run(office.operations.list_share_group_offsets(["s"]))["s"]

    assert [(each.start_offset, each.lag) for each in found.values()] == [(None, None), (7, 2)]
    assert list(found) == [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_the_quorum_says_where_its_nodes_are() -> None:
    office = Office()
    listener = describe_quorum.Listener(name="CONTROLLER", host="c", port=9093)
    partition = describe_quorum.DescribeQuorumResponsePartitionData(leader_id=1)
    topic = describe_quorum.DescribeQuorumResponseTopicData(partitions=[partition])
    node = describe_quorum.Node(node_id=1, listeners=[listener])
    office.answers(ApiKey.DESCRIBE_QUORUM, DescribeQuorumResponse(topics=[topic], nodes=[node]))

    [endpoint] = office.run(office.operations.describe_quorum()).endpoints[1]

    assert (endpoint.listener, endpoint.host, endpoint.port) == ("CONTROLLER", "c", 9093)
