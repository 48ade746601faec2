"""Where to listen and how much to take: what is accepted, what is refused and how it is said."""

from __future__ import annotations

import pytest

from millstream.config import parse, render_reference
from millstream.errors import InvalidConfig
from millstream.network.endpoint import Endpoint, SecurityProtocol
from millstream.network.server import SocketServerConfig

PLAINTEXT = SecurityProtocol.PLAINTEXT


def test_the_limits_are_kafkas() -> None:
    config = SocketServerConfig()

    assert config.endpoints == (Endpoint("PLAINTEXT", PLAINTEXT, "", 9092),)
    assert config.inter_broker_name == "PLAINTEXT"
    assert config.socket_request_max_bytes == 104_857_600
    assert config.connections_max_idle_ms == 600_000
    assert config.queued_max_requests == 500
    assert config.queued_max_request_bytes == -1
    assert config.max_connections == config.max_connections_per_ip == 2_147_483_647
    assert config.socket_listen_backlog_size == 50


def test_the_kernel_sizes_its_buffers_unless_told() -> None:
    config = SocketServerConfig()

    assert config.socket_send_buffer_bytes == config.socket_receive_buffer_bytes == -1


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("PLAINTEXT://localhost:9092", "localhost", 9092),
        ("plaintext://:0", "", 0),
        ("PLAINTEXT://0.0.0.0:65535", "0.0.0.0", 65_535),
        ("PLAINTEXT://[::]:9092", "::", 9092),
        ("PLAINTEXT://[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("PLAINTEXT://broker-1.example.org:9092", "broker-1.example.org", 9092),
    ],
)
def test_listeners_are_read(text: str, host: str, port: int) -> None:
    config = parse(SocketServerConfig, {"listeners": text})

    assert config.endpoints == (Endpoint("PLAINTEXT", PLAINTEXT, host, port),)


def test_endpoints_are_written_as_they_are_read() -> None:
    texts = ("PLAINTEXT://localhost:1", "SSL://[::1]:2", "SASL_SSL://:3")

    config = SocketServerConfig(listeners=texts)

    assert tuple(map(str, config.endpoints)) == texts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:9092",
        "PLAINTEXT://localhost",
        "PLAINTEXT://localhost:",
        "PLAINTEXT://localhost:70000",
        "PLAINTEXT://localhost:-1",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://[::1:9092",
        "PLAINTEXT://[12345::]:9092",
        "PLAINTEXT://local host:9092",
        "://localhost:9092",
        "PLAINTEXT:/localhost:9092",
    ],
)
def test_what_is_no_listener_is_refused_with_the_syntax(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"NAME://HOST:PORT"):
        parse(SocketServerConfig, {"listeners": text})


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"listeners": "SSL://:1,SSL://:2"}, "different names"),
        ({"listeners": "SSL://:1,PLAINTEXT://:1"}, "different ports"),
        ({"listeners": "SSL://a:1,PLAINTEXT://b:1"}, "different ports"),
        ({"listeners": "SSL://:1,PLAINTEXT://[::1]:1"}, "different ports"),
        ({"listeners": "INSIDE://:1"}, "names are in listener.security.protocol.map"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "not 0.0.0.0"),
        ({"advertised.listeners": "SSL://a:1"}, "among those of listeners"),
        (
            {"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:1"},
            "advertised.listeners.*different names",
        ),
        ({"listener.security.protocol.map": "A:PLAIN"}, "NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "A:SSL,a:SSL"}, "each name once"),
        ({"listener.security.protocol.map": "A"}, "NAME:PROTOCOL"),
        ({"inter.broker.listener.name": "SSL"}, "one of the listeners"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "controller.listener.names": "plaintext"},
            "not in controller.listener.names",
        ),
        ({"controller.listener.names": "CONTROLLER"}, "listener.security.protocol.map"),
        ({"max.connections.per.ip": "0"}, "lets somebody in"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "ADDRESS:COUNT"),
        ({"max.connections.per.ip.overrides": "localhost:3"}, "IP addresses instead of names"),
        ({"queued.max.request.bytes": "0"}, "at least 1, or -1"),
    ],
)
def test_contradictions_are_named(properties: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        parse(SocketServerConfig, properties)


def test_one_error_lists_every_fault() -> None:
    properties = {
        "listeners": "SSL://:1,SSL://:1,X://:2",
        "socket.request.max.bytes": "0",
        "queued.max.requests": "many",
    }

    with pytest.raises(InvalidConfig) as caught:
        parse(SocketServerConfig, properties)

    lines = str(caught.value).splitlines()
    assert lines[0] == "3 invalid settings:"
    assert [line.split("=")[0].strip() for line in lines[1:]] == [
        "queued.max.requests",
        "socket.request.max.bytes",
        "listeners",
    ]


def test_ipv4_and_ipv6_may_share_a_port() -> None:
    config = SocketServerConfig(listeners=("SSL://127.0.0.1:1", "PLAINTEXT://[::1]:1"))

    assert [endpoint.port for endpoint in config.endpoints] == [1, 1]


def test_without_advertised_listeners_the_bound_ones_are_advertised() -> None:
    config = SocketServerConfig(
        listeners=("PLAINTEXT://:0", "SSL://[::1]:0", "CONTROLLER://:0"),
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "SSL:SSL", "CONTROLLER:SSL"),
        controller_listener_names=("CONTROLLER",),
    )
    bound = (
        Endpoint("PLAINTEXT", PLAINTEXT, "", 4001),
        Endpoint("SSL", SecurityProtocol.SSL, "::1", 4002),
        Endpoint("CONTROLLER", SecurityProtocol.SSL, "", 4003),
    )

    told = config.advertised(bound, "me.example.org")

    assert list(map(str, told)) == ["PLAINTEXT://me.example.org:4001", "SSL://[::1]:4002"]


def test_advertised_listeners_replace_addresses_and_leave_out_the_others() -> None:
    config = SocketServerConfig(
        listeners=("PLAINTEXT://:0", "SSL://:0"),
        advertised_listeners=("plaintext://public.example.org:0",),
    )
    bound = (
        Endpoint("PLAINTEXT", PLAINTEXT, "", 4001),
        Endpoint("SSL", SecurityProtocol.SSL, "", 4002),
    )

    told = config.advertised(bound, "me.example.org")

    assert list(map(str, told)) == ["PLAINTEXT://public.example.org:4001"]


def test_the_controllers_listener_is_never_advertised_to_clients() -> None:
    config = SocketServerConfig(
        listeners=("PLAINTEXT://:0", "CONTROLLER://:0"),
        advertised_listeners=("PLAINTEXT://here:0", "CONTROLLER://here:0"),
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"),
        controller_listener_names=("CONTROLLER",),
    )
    bound = (
        Endpoint("PLAINTEXT", PLAINTEXT, "", 4001),
        Endpoint("CONTROLLER", PLAINTEXT, "", 4002),
    )

    assert list(map(str, config.advertised(bound, "me"))) == ["PLAINTEXT://here:4001"]


def test_the_listener_between_brokers_follows_the_protocol_or_the_name() -> None:
    listeners = ("CONTROLLER://:1", "OUTSIDE://:2", "INSIDE://:3")
    protocols = ("CONTROLLER:PLAINTEXT", "OUTSIDE:SASL_SSL", "INSIDE:PLAINTEXT")

    def config(**settings: str) -> SocketServerConfig:
        return parse(
            SocketServerConfig,
            {key.replace("_", "."): value for key, value in settings.items()}
            | {
                "listeners": ",".join(listeners),
                "listener.security.protocol.map": ",".join(protocols),
                "controller.listener.names": "CONTROLLER",
            },
        )

    assert config().inter_broker_name == "INSIDE"
    assert config(inter_broker_listener_name="outside").inter_broker_name == "OUTSIDE"
    assert config(security_inter_broker_protocol="SSL").inter_broker_name is None


def test_limits_of_single_addresses_are_read() -> None:
    config = SocketServerConfig(max_connections_per_ip_overrides=("10.0.0.7:5", "[0:0::1]:6"))

    assert config.ip_limits == {"10.0.0.7": 5, "::1": 6}


def test_protocols_know_what_they_demand() -> None:
    encrypted = {each.name for each in SecurityProtocol if each.is_encrypted}
    sasl = {each.name for each in SecurityProtocol if each.is_sasl}

    assert encrypted == {"SSL", "SASL_SSL"}
    assert sasl == {"SASL_PLAINTEXT", "SASL_SSL"}


def test_every_setting_has_a_place_in_the_reference() -> None:
    assert "### socket.request.max.bytes" in render_reference(SocketServerConfig)
