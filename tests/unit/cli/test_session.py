"""A session finds a broker at once or says why not, and names what may have been meant."""

from __future__ import annotations

import pytest

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.session import open_session
from millstream.client.admin.topics import CreatedTopic
from millstream.errors import BootstrapFailed, InvalidTopic, OperationTimeout
from millstream.protocol.messages import ListOffsetsRequest, MetadataRequest, MetadataResponse
from tests.unit.cli.fake_cluster import TOPIC, FakeCluster
from tests.unit.cli.memory_selector import PLACES


def test_one_broker_that_answers_is_enough() -> None:
    cluster = FakeCluster()
    PLACES[cluster.address] = cluster

    with open_session(f"down:1,{cluster.address}", 5) as session:
        assert list(session.topics()) == [TOPIC]
        assert [each.host for each in session.brokers().values()] == [cluster.address.host]


def test_all_that_did_not_answer_are_named_at_once() -> None:
    with pytest.raises(BootstrapFailed) as raised:
        open_session("a:1,b:2", 600)

    assert "a:1: nobody is there" in str(raised.value)
    assert "b:2: nobody is there" in str(raised.value)


def test_a_topic_is_asked_for_once() -> None:
    cluster = FakeCluster(partitions=3)
    with cluster.session() as session:
        assert len(session.topic(TOPIC).partitions) == 3
        assert session.topic(TOPIC) is session.topic(TOPIC)

    asked = [each for each in cluster.requests if isinstance(each, MetadataRequest) and each.topics]
    assert len(asked) == 1


def test_a_topic_that_is_not_there_is_answered_with_its_neighbour_or_a_way() -> None:
    with FakeCluster().session() as session:
        with pytest.raises(CommandFailed, match="did you mean 'orders'"):
            session.topic("ordres")
        with pytest.raises(CommandFailed, match="millstream topics create zzz"):
            session.topic("zzz")


def test_what_a_broker_says_about_a_topic_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    metadata = cluster._metadata

    def refuse(names: list[str | None] | None) -> MetadataResponse:
        response = metadata(names)
        for each in response.topics:
            each.error_code = InvalidTopic.code
        return response

    monkeypatch.setattr(cluster, "_metadata", refuse)

    with cluster.session() as session, pytest.raises(InvalidTopic):
        session.topic(TOPIC)


def test_a_partition_that_is_not_there_is_told() -> None:
    with (
        FakeCluster().session() as session,
        pytest.raises(CommandFailed, match="has no partition 7; it has 1, from 0 on"),
    ):
        session.partition(TOPIC, 7)


def test_a_new_topic_is_waited_for_until_its_leaders_answer() -> None:
    cluster = FakeCluster(partitions=2)
    with cluster.session() as session:
        session.wait_for_leaders([CreatedTopic(TOPIC, None, 2, 1, {})])

    [request] = [each for each in cluster.requests if isinstance(each, ListOffsetsRequest)]
    assert [each.partition_index for each in request.topics[0].partitions] == [0, 1]


def test_it_gives_up_after_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    metadata = cluster._metadata

    def elect_nobody(names: list[str | None] | None) -> MetadataResponse:
        response = metadata(names)
        for topic in response.topics:
            for each in topic.partitions:
                each.leader_id = -1
        return response

    monkeypatch.setattr(cluster, "_metadata", elect_nobody)

    with cluster.session(timeout_s=0.3) as session, pytest.raises(OperationTimeout):
        session.wait_for_leaders([CreatedTopic(TOPIC, None, 1, 1, {})])


@pytest.mark.parametrize(
    ("bootstrap", "timeout_s", "namespace", "says"),
    [
        ("localhost:x", 1, None, "--bootstrap-server: .*host:port"),
        ("", 1, None, "--bootstrap-server"),
        ("localhost", 0, None, "--timeout"),
        ("localhost", 1, "no dots.", "--namespace"),
    ],
)
def test_options_that_make_no_sense_are_named(
    bootstrap: str, timeout_s: float, namespace: str | None, says: str
) -> None:
    with pytest.raises(UsageFault, match=says):
        open_session(bootstrap, timeout_s, namespace)
