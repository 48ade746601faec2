"""Metadata, DescribeTopicPartitions, DescribeCluster, and topics that come by being asked for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import (
    InvalidRequest,
    InvalidTopic,
    LeaderNotAvailable,
    MismatchedEndpointType,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedEndpointType,
)
from millstream.metadata import answers
from millstream.metadata.cache import KRaftMetadataCache
from millstream.protocol.messages.create_topics import CreateTopicsRequest
from millstream.protocol.messages.describe_cluster import DescribeClusterRequest
from millstream.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from millstream.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.server.config import ServerConfig
from millstream.types import Uuid
from tests.unit.server.fakes import Client
from tests.unit.server.harness import CLUSTER_ID, Broker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.protocol.messages.metadata import MetadataResponseTopic


def named(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in names], **fields)


def names_of(response: Any) -> list[str]:
    return [topic.name for topic in response.topics]


@pytest.mark.parametrize("version", range(14))
def test_brokers_topics_and_partitions_in_every_version(version: int) -> None:
    broker = Broker()
    topic_id = broker.create("orders", 2)

    answer = broker.ask(named("orders"), version)

    (node,) = answer.brokers
    (topic,) = answer.topics
    assert (node.node_id, node.host, node.port) == (1, "b1", 9092)
    assert answer.cluster_id == (CLUSTER_ID if version >= 2 else None)
    assert answer.controller_id == (1 if version >= 1 else -1)
    assert (topic.error_code, topic.name) == (0, "orders")
    assert topic.topic_id == (topic_id if version >= 10 else Uuid.ZERO)
    assert [(p.partition_index, p.leader_id, p.error_code) for p in topic.partitions] == [
        (0, 1, 0),
        (1, 1, 0),
    ]


def test_all_topics_are_null_and_in_version_0_nothing() -> None:
    broker = Broker()
    broker.create("a")
    broker.create("b")

    assert names_of(broker.ask(MetadataRequest(topics=None), 1)) == ["a", "b"]
    assert names_of(broker.ask(MetadataRequest(topics=[]), 0)) == ["a", "b"]
    assert names_of(broker.ask(MetadataRequest(topics=[]), 1)) == []


def test_topics_by_id() -> None:
    broker = Broker()
    topic_id = broker.create()
    other = Uuid(b"0123456789abcdef")
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(topic_id=topic_id, name=None),
            MetadataRequestTopic(topic_id=other, name=None),
        ]
    )

    found, missing = broker.ask(request, 12).topics

    assert (found.error_code, found.name) == (0, "orders")
    assert (missing.error_code, missing.topic_id) == (UnknownTopicId.code, other)


def test_ids_are_for_version_12() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=Uuid(b"0" * 16), name="a")])

    assert Broker().ask(request, 10).topics[0].error_code == InvalidRequest.code


def test_a_partition_without_a_leader() -> None:
    broker = Broker(brokers=(1, 2))
    broker.controller.create("orders", [[2]])
    broker.controller.fence(2)
    broker.publish()

    (partition,) = broker.ask(named("orders")).topics[0].partitions

    assert (partition.error_code, partition.leader_id) == (LeaderNotAvailable.code, -1)
    assert partition.offline_replicas == [2]


@pytest.mark.parametrize("version", [8, 10, 13])
def test_what_is_allowed_is_told_to_who_asks(version: int) -> None:
    broker = Broker()
    broker.create()
    request = named("orders", include_topic_authorized_operations=True)

    asked = broker.ask(request, version).topics[0]
    not_asked = broker.ask(named("orders"), version).topics[0]

    assert asked.topic_authorized_operations == 0b110111111000
    assert not_asked.topic_authorized_operations == -(1 << 31)


class TestAutoCreation:
    """Topics that come into being by being asked for."""

    def test_the_first_answer_is_unknown_the_next_has_it(self) -> None:
        broker = Broker(num_partitions=3)

        first = broker.ask(named("new")).topics[0]
        second = broker.ask(named("new")).topics[0]

        assert first.error_code == UnknownTopicOrPartition.code
        assert (second.error_code, len(second.partitions)) == (0, 3)

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("no/slash", InvalidTopic.code),
            ("..", InvalidTopic.code),
            ("x" * 250, InvalidTopic.code),
            ("__consumer_offsets", UnknownTopicOrPartition.code),
        ],
    )
    def test_some_names_are_not_created(self, name: str, code: int) -> None:
        broker = Broker()

        assert broker.ask(named(name)).topics[0].error_code == code
        assert broker.channel.requests == []

    def test_clients_and_brokers_can_forbid_it(self) -> None:
        broker = Broker()
        broker.ask(named("a", allow_auto_topic_creation=False))
        strict = Broker(config=ServerConfig(auto_create_topics_enable=False))
        strict.ask(named("a"))

        assert broker.channel.requests == []
        assert strict.channel.requests == []

    def test_a_topic_is_asked_for_once_at_a_time(self) -> None:
        broker = Broker()
        broker.channel.is_holding = True

        broker.ask(named("a"))
        broker.ask(named("a", "b"))
        broker.channel.release()

        asked = [
            topic.name
            for request, _ in broker.channel.requests
            if isinstance(request, CreateTopicsRequest)
            for topic in request.topics
        ]
        assert asked == ["a", "b"]

    def test_a_refusal_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        broker = Broker(default_replication_factor=3)

        broker.ask(named("a"))

        assert "topic a could not be created" in caplog.text


class TestPages:
    """DescribeTopicPartitions."""

    def test_a_cursor_leads_from_page_to_page(self) -> None:
        broker = Broker()
        broker.create("a", 3)
        broker.create("b", 2)
        request = DescribeTopicPartitionsRequest(response_partition_limit=2)
        seen = []
        while True:
            page = broker.ask(request)
            seen += [(t.name, p.partition_index) for t in page.topics for p in t.partitions]
            if page.next_cursor is None:
                break
            request.cursor = DescribeTopicPartitionsRequestCursor(
                topic_name=page.next_cursor.topic_name,
                partition_index=page.next_cursor.partition_index,
            )

        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]

    def test_the_broker_has_a_limit_of_its_own(self) -> None:
        broker = Broker(config=ServerConfig(request_partition_size_limit=1))
        broker.create("a", 2)

        page = broker.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")]))

        assert len(page.topics[0].partitions) == 1
        assert page.next_cursor.partition_index == 1

    def test_a_topic_that_does_not_exist_and_a_bad_cursor(self) -> None:
        broker = Broker()
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")])

        assert broker.ask(request).topics[0].error_code == UnknownTopicOrPartition.code
        request.cursor = DescribeTopicPartitionsRequestCursor(topic_name="a", partition_index=-1)
        assert broker.ask(request).topics[0].error_code == InvalidRequest.code


class TestCluster:
    """DescribeCluster."""

    def test_fenced_brokers_are_for_who_asks(self) -> None:
        broker = Broker(brokers=(1, 2))
        broker.controller.fence(2)
        broker.publish()

        alive = broker.ask(DescribeClusterRequest())
        everybody = broker.ask(DescribeClusterRequest(include_fenced_brokers=True))

        assert alive.cluster_id == CLUSTER_ID
        assert [each.broker_id for each in alive.brokers] == [1]
        assert [(e.broker_id, e.is_fenced) for e in everybody.brokers] == [(1, False), (2, True)]

    @pytest.mark.parametrize(
        ("endpoint_type", "code"),
        [(2, MismatchedEndpointType.code), (9, UnsupportedEndpointType.code)],
    )
    def test_other_nodes_are_asked_elsewhere(self, endpoint_type: int, code: int) -> None:
        answer = Broker().ask(DescribeClusterRequest(endpoint_type=endpoint_type))

        assert answer.error_code == code
        assert answer.error_message

    def test_what_is_allowed_is_told_to_who_asks(self) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)

        assert Broker().ask(request).cluster_authorized_operations == 0b1111110100000


class TestKeptAnswers:
    """A large answer is built once for as long as topics and brokers do not change."""

    MANY = 400

    @pytest.fixture
    def built(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many topics each answer that was built has."""
        counts: list[int] = []
        build = KRaftMetadataCache.metadata_topics

        def count(
            cache: KRaftMetadataCache, names: Iterable[str], *how: Any
        ) -> list[MetadataResponseTopic]:
            described = build(cache, names, *how)
            counts.append(len(described))
            return described

        monkeypatch.setattr(KRaftMetadataCache, "metadata_topics", count)
        return counts

    def many(self, **settings: Any) -> Broker:
        broker = Broker(brokers=(1, 2), **settings)
        broker.controller.create("wide", [[1]] * self.MANY)
        broker.publish()
        return broker

    def test_the_same_request_is_answered_with_the_same_bytes(self, built: list[int]) -> None:
        broker = self.many()
        first, *others = (broker.ask(MetadataRequest(topics=None), 12) for _ in range(3))
        assert len(first.topics[0].partitions) == self.MANY
        assert others == [first, first]
        assert built == [1]

    def test_small_answers_are_not_kept(self, built: list[int]) -> None:
        broker = Broker()
        broker.create()
        for _ in range(2):
            broker.ask(MetadataRequest(topics=None), 12)
        assert built == [1, 1]

    def test_another_request_has_another_answer(self, built: list[int]) -> None:
        broker = self.many()
        everything = broker.ask(MetadataRequest(topics=None), 12)
        nothing = broker.ask(MetadataRequest(topics=[]), 12)
        older = broker.ask(MetadataRequest(topics=None), 9)
        elsewhere = broker.ask(
            MetadataRequest(topics=None), 12, client=Client(listener_name="EXTERNAL")
        )
        assert (len(everything.topics), len(nothing.topics)) == (1, 0)
        assert older.topics[0].topic_id == Uuid.ZERO
        assert elsewhere.brokers == []
        assert built == [1, 0, 1, 1]

    def test_new_topics_and_fenced_brokers_are_seen_at_once(self) -> None:
        broker = self.many()
        assert names_of(broker.ask(MetadataRequest(topics=None), 12)) == ["wide"]
        broker.create("another")
        changed = broker.ask(MetadataRequest(topics=None), 12)
        assert names_of(changed) == ["another", "wide"]
        assert [each.node_id for each in changed.brokers] == [1, 2]
        broker.controller.fence(2)
        broker.publish()
        assert [each.node_id for each in broker.ask(MetadataRequest(topics=None), 12).brokers] == [
            1
        ]

    def test_a_request_that_creates_a_topic_does_so_each_time(self) -> None:
        broker = self.many()
        asked = named("wide", "new")
        first = {each.name: each.error_code for each in broker.ask(asked).topics}
        assert first == {"wide": 0, "new": UnknownTopicOrPartition.code}
        second = {each.name: each.error_code for each in broker.ask(asked).topics}
        assert second == {"wide": 0, "new": 0}

    def test_the_oldest_make_way_for_new_ones(
        self, built: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(answers, "KEPT_BYTES_MAX", 40_000)
        broker = self.many()
        for version in (9, 10, 11, 12, 12, 9):
            broker.ask(MetadataRequest(topics=None), version)
        assert len(built) == 5
