"""Metrics that a real client pushes to a broker process which asked for them."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from millstream.protocol.messages import ApiVersionsRequest, api_versions
from tests.integration.node.harness import Client, running
from tests.waiting import until

confluent_kafka: Any = pytest.importorskip("confluent_kafka", reason="a client used only in tests")

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(120)]

CLIENT_METRICS = 16
GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY = 71, 72


def listed_keys(client: Client) -> set[int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = client.ask(request, 3, api_versions.ApiVersionsResponse)
    return {each.api_key for each in response.api_keys}


def test_a_client_pushes_what_a_subscription_asks_for(tmp_path: Path) -> None:
    settings = ("millstream.client.telemetry=log", "millstream.log.format=json")
    arguments = [part for each in settings for part in ("--set", each)]
    with running(tmp_path, *arguments) as node:
        address = node.until_ready()
        with Client(address) as client:
            assert {GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY} <= listed_keys(client)
            assert client.set_config(CLIENT_METRICS, "all", "interval.ms", "200") == 0
            assert client.set_config(CLIENT_METRICS, "all", "metrics", "*") == 0
            assert client.set_config(CLIENT_METRICS, "all", "match", "client_id=bill.*") == 0
            client.create_topic("orders")
        billing = _producer(address, "billing")
        other = _producer(address, "other")
        pushed = _pushed_values(node, billing, other)
        code, log = node.finish(signal.SIGTERM)

    assert code == 0
    assert "Traceback" not in log
    first = pushed[0]
    assert first["part"] == "client_metrics"
    assert {each["client_id"] for each in pushed} == {"billing"}
    assert (
        first["client_software"].startswith("confluent-kafka-python ") or first["client_software"]
    )
    names = {metric["name"] for each in pushed for metric in each["metrics"]}
    assert any(name.startswith("org.apache.kafka.producer.") for name in names), names


def _producer(address: str, client_id: str) -> Any:
    return confluent_kafka.Producer({"bootstrap.servers": address, "client.id": client_id})


def _pushed_values(node: Any, *producers: Any) -> list[dict[str, Any]]:
    pushed: list[dict[str, Any]] = []

    def has_pushed() -> bool:
        for producer in producers:
            producer.produce("orders", b"x")
            producer.poll(0.02)
        lines = [json.loads(line) for line in node.log().splitlines()]
        pushed[:] = [line for line in lines if "metrics" in line]
        return len(pushed) >= 2 and any(each["metrics"] for each in pushed)

    until(has_pushed)
    return pushed


def test_by_default_clients_are_not_told_of_metrics(tmp_path: Path) -> None:
    with running(tmp_path) as node, Client(node.until_ready()) as client:
        assert not {GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY} & listed_keys(client)
