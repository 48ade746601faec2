"""The registry's client: every call, credentials, dead and ill registries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.client.serialization.schema_registry import Schema, SchemaRegistryClient
from millstream.errors import InvalidArgument, SchemaRegistryError

if TYPE_CHECKING:
    from tests.schema_registry import Registry


def test_the_registry_can_be_asked_for_everything(client: SchemaRegistryClient) -> None:
    schema = Schema('"string"')
    assert client.register("a/b", schema, normalize=True) == 1
    assert client.subjects() == ["a/b"]
    assert client.versions("a/b") == [1]
    assert client.version("a/b").schema == schema
    assert client.lookup("a/b", schema).version == 1
    assert client.compatibility() == "BACKWARD"
    client.set_compatibility("FULL", "a")
    assert client.compatibility("a") == "FULL"
    assert client.is_compatible("a/b", Schema('"compatible"'))
    assert not client.is_compatible("a/b", schema)
    assert client.delete("a/b", permanent=True) == [1]
    assert client.subjects() == []


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"username": "u", "password": "p"}, "Basic dTpw"),
        ({"token": "t"}, "Bearer t"),
        ({}, None),
    ],
)
def test_credentials_are_sent(
    registry: Registry, options: dict[str, Any], sent: str | None
) -> None:
    SchemaRegistryClient(registry.url, **options).subjects()

    assert registry.authorizations == {sent}


def test_a_registry_that_is_ill_is_asked_again_and_a_dead_one_is_passed_over(
    registry: Registry,
) -> None:
    registry.failures_left = 2
    client = SchemaRegistryClient(["http://127.0.0.1:9", registry.url])

    assert client.subjects() == []
    registry.failures_left = 99
    with pytest.raises(SchemaRegistryError, match="Error while forwarding") as failure:
        client.subjects()
    assert failure.value.code == 50003


def test_an_answer_that_is_not_the_api_is_told(registry: Registry) -> None:
    with pytest.raises(SchemaRegistryError, match="404"):
        SchemaRegistryClient(registry.url + "/elsewhere").subjects()
    with pytest.raises(SchemaRegistryError, match="does not answer"):
        SchemaRegistryClient("http://127.0.0.1:9", retries=0).subjects()


@pytest.mark.parametrize("url", ["", "localhost:8081", "ftp://host", []])
def test_an_address_must_be_one(url: Any) -> None:
    with pytest.raises(InvalidArgument, match="http://host:port"):
        SchemaRegistryClient(url)
