"""Settings in Python's names and in Kafka's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_type_hints

import pytest

from millstream.client.config import (
    ClientConfig,
    ClientSettings,
    keyword_names,
    object_setting,
    settings_from_dotted,
    settings_from_kwargs,
)
from millstream.client.namespace import Namespace
from millstream.config import any_value, key
from millstream.errors import InvalidArgument

BOOTSTRAP = {"bootstrap_servers": "localhost:9092"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleConfig(ClientConfig):
    """A client with settings of its own."""

    topics: tuple[str, ...] = key("topics", (), any_value(), "Topics.")
    listener: object = object_setting("listener", None, "Told of things.")


def test_the_typed_dict_names_every_setting_but_the_bootstrap_servers() -> None:
    assert get_type_hints(ClientSettings).keys() == keyword_names(ClientConfig).keys() - {
        "bootstrap_servers"
    }


def test_durations_are_seconds_in_python_and_milliseconds_inside() -> None:
    config = settings_from_kwargs(
        ClientConfig, {**BOOTSTRAP, "request_timeout": 2.5, "reconnect_backoff": 0.0001}
    )

    assert config.request_timeout_ms == 2_500
    assert config.reconnect_backoff_ms == 1, "a duration above 0 does not become 0"
    assert config.retry_backoff_ms == 100
    assert config.network(3).request_timeout_ms == 2_500
    assert config.network(3).max_in_flight == 3


def test_forever_is_the_largest_number() -> None:
    config = settings_from_kwargs(ClientConfig, {**BOOTSTRAP, "request_timeout": math.inf})

    assert config.request_timeout_ms == (1 << 31) - 1


def test_kafkas_names_take_text_and_values() -> None:
    config = settings_from_dotted(
        ClientConfig,
        {
            "bootstrap.servers": "a:1,b:2",
            "request.timeout.ms": "5000",
            "metadata.max.age.ms": 7,
            "millstream.namespace": "staging",
            "metadata.recovery.strategy": "none",
        },
    )

    assert config.request_timeout_ms == 5_000
    assert config.metadata_max_age_ms == 7
    assert [str(each) for each in config.bootstrap] == ["a:1", "b:2"]
    assert config.names.to_wire("x") == "staging.x"
    assert not config.metadata().rebootstrap
    assert isinstance(config.names, Namespace)


def test_lists_and_objects_are_taken() -> None:
    listener = object()
    by_keyword = settings_from_kwargs(
        ExampleConfig, {**BOOTSTRAP, "topics": ["a", "b"], "listener": listener}
    )
    by_name = settings_from_dotted(
        ExampleConfig, {"bootstrap.servers": ["x:1"], "topics": "a, b", "listener": listener}
    )

    assert by_keyword.topics == by_name.topics == ("a", "b")
    assert by_keyword.listener is by_name.listener is listener


def test_every_fault_is_in_one_error_with_the_nearest_name() -> None:
    with pytest.raises(InvalidArgument) as caught:
        settings_from_kwargs(
            ClientConfig,
            {
                "request_timeot": 1,
                "request_timeout": "soon",
                "retry_backoff": -1.0,
                "security_protocol": "SSL",
            },
        )

    text = str(caught.value)
    assert "5 invalid settings" in text
    assert "request_timeot: there is no such setting; did you mean request_timeout?" in text
    assert "request_timeout='soon': must be" in text
    assert "retry_backoff=-1.0: must be at least 0 ms" in text
    assert "security_protocol='SSL': must be one of PLAINTEXT" in text
    assert "bootstrap_servers: missing" in text


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"reqest.timeout.ms": 1}, "did you mean request.timeout.ms"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms='soon': must be"),
        ({"request.timeout.ms": True}, "request.timeout.ms=True: must be"),
        ({"zzzz": True}, "zzzz: there is no such setting"),
        ({"client.id": 7}, "client.id=7: must be a string"),
    ],
)
def test_faults_of_kafkas_names(properties: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        settings_from_dotted(ClientConfig, {"bootstrap.servers": "a", **properties})


@pytest.mark.parametrize("value", [math.nan, -math.inf, None, "1"])
def test_a_duration_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="request_timeout"):
        settings_from_kwargs(ClientConfig, {**BOOTSTRAP, "request_timeout": value})


def test_missing_bootstrap_servers_are_named_as_they_were_asked_for() -> None:
    with pytest.raises(InvalidArgument, match=r"bootstrap\.servers: missing"):
        settings_from_dotted(ClientConfig, {})


def test_a_settings_object_checks_itself() -> None:
    with pytest.raises(InvalidArgument, match=r"request\.timeout\.ms"):
        ClientConfig(bootstrap_servers=("a",), request_timeout_ms=0)
