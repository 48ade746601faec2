"""Settings as a running broker describes and takes them, where Apache Kafka has rules for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import InvalidConfig
from millstream.protocol.messages import (
    DescribeConfigsRequest,
    describe_configs,
)
from millstream.testing import EmbeddedBroker
from tests.integration.node.harness import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

TOPIC, BROKER, GROUP = 2, 4, 32
GROUP_SOURCE, STATIC, DEFAULT = 8, 4, 5
TIMEOUT = "consumer.session.timeout.ms"
BROKERS_TIMEOUT = "group.consumer.session.timeout.ms"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    settings = {BROKERS_TIMEOUT: 50_000}
    with EmbeddedBroker(settings) as broker, Client(broker.bootstrap_servers) as client:
        yield client


def described(client: Client, kind: int, name: str, keys: list[str] | None) -> dict[str, Any]:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    answer = client.ask(request, 4, describe_configs.DescribeConfigsResponse)
    return {each.name: each for each in answer.results[0].configs}


def levels(setting: Any) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in setting.synonyms]


def test_no_keys_are_all_keys(client: Client) -> None:
    everything = described(client, BROKER, "1", None)

    assert len(everything) > 100
    assert described(client, BROKER, "1", []).keys() == everything.keys()


def test_a_group_has_what_the_broker_was_given(client: Client) -> None:
    setting = described(client, GROUP, "readers", [TIMEOUT])[TIMEOUT]

    assert (setting.value, setting.config_source) == ("50000", STATIC)
    assert levels(setting) == [
        (BROKERS_TIMEOUT, "50000", STATIC),
        (BROKERS_TIMEOUT, "45000", DEFAULT),
    ]


def test_what_is_set_for_a_group_hides_the_brokers(client: Client) -> None:
    assert client.set_config(GROUP, "writers", TIMEOUT, "55000") == 0

    setting = described(client, GROUP, "writers", [TIMEOUT])[TIMEOUT]

    assert (setting.value, setting.config_source) == ("55000", GROUP_SOURCE)
    assert levels(setting)[:2] == [(TIMEOUT, "55000", GROUP_SOURCE), (BROKERS_TIMEOUT, "50000", 4)]


def test_there_is_no_tiered_storage_to_turn_on(client: Client) -> None:
    assert client.create_topic("tiered", remote_storage_enable="true") == InvalidConfig.code
    assert client.create_topic("plain", remote_storage_enable="false") == 0
    refused = client.set_config(TOPIC, "plain", "remote.storage.enable", "true")
    assert refused == InvalidConfig.code


def test_settings_of_streams_groups_are_not_known(client: Client) -> None:
    assert (
        client.set_config(GROUP, "app", "streams.num.standby.replicas", "1") == InvalidConfig.code
    )
