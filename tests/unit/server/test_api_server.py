"""Requests that wait, fail, or are still there when the node stops."""

from __future__ import annotations

import logging

import pytest

from millstream.errors import RequestTimedOut, UnknownServerError
from millstream.network.server.request import CLOSE
from millstream.protocol.messages.create_topics import CreateTopicsRequest
from millstream.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from millstream.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.unit.controller.rig import new_topic
from tests.unit.server.harness import Broker


def creation() -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[new_topic("late", None, 1, 1)])


def test_an_answer_that_comes_later_completes_the_request() -> None:
    broker = Broker()
    broker.channel.is_holding = True
    call = broker.call(creation())
    assert call.is_pending

    broker.channel.release()

    assert call.response.topics[0].error_code == 0
    assert call.request.connection.answers == [call.request]  # type: ignore[attr-defined]


def test_the_controller_is_told_who_asks() -> None:
    broker = Broker()

    broker.ask(creation(), 5, client_id="alice's laptop")

    ((_, context),) = broker.channel.requests
    assert context.principal == "User:ANONYMOUS"
    assert (context.version, context.client_id) == (5, "alice's laptop")


def test_a_node_that_stops_answers_what_waits_and_ignores_what_comes_later() -> None:
    broker = Broker()
    broker.channel.is_holding = True
    call = broker.call(creation())

    broker.apis.close()
    broker.channel.release()

    assert call.response.topics[0].error_code == RequestTimedOut.code


def test_a_failing_handler_is_logged_and_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()

    def broken() -> None:
        raise RuntimeError("no idea")

    monkeypatch.setattr(broker.replicas, "describe_log_dirs", broken, raising=True)
    caplog.set_level(logging.ERROR)

    answer = broker.ask(DescribeLogDirsRequest(topics=None))

    assert answer.error_code == UnknownServerError.code
    (logged,) = caplog.records
    assert "DescribeLogDirs" in logged.getMessage()
    assert logged.exc_info


def test_a_client_cannot_fill_the_log_with_failures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()

    def broken() -> None:
        raise RuntimeError("no idea")

    monkeypatch.setattr(broker.replicas, "describe_log_dirs", broken, raising=True)
    caplog.set_level(logging.ERROR)

    for _ in range(5):
        broker.ask(DescribeLogDirsRequest(topics=None))

    (logged,) = caplog.records
    assert logged.fields["api"] == "DescribeLogDirs"  # type: ignore[attr-defined]


def test_an_answer_that_cannot_be_encoded_becomes_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker()
    handler = broker.apis._handlers[35]
    unfit = DescribeLogDirsResponse(throttle_time_ms=1 << 40)
    object.__setattr__(handler, "handle", lambda *_: unfit)

    assert broker.ask(DescribeLogDirsRequest(topics=None)).error_code == UnknownServerError.code

    object.__setattr__(handler, "fail", lambda *_: unfit)
    assert broker.call(DescribeLogDirsRequest(topics=None)).outcome is CLOSE


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elections_fail_in_a_shape_that_each_version_has(version: int) -> None:
    broker = Broker()
    broker.controller.controller.on_not_leader()
    request = ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic="orders", partitions=[0])]
    )

    answer = broker.ask(request, version)

    assert answer.error_code == (41 if version else 0)
    assert answer.replica_election_results[0].partition_result[0].error_code == 41
