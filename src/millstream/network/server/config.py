"""The settings of the socket server: Kafka's names and, but for two, its defaults.

`node` gathers them; `SocketServer` takes a `SocketServerConfig`. Two settings are our own, and the
kernel's buffers are left to the kernel (docs/internals/network.md has the figures). The lists of
listeners are checked as a whole: a wrong one ends in one error which names every fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from millstream.config import (
    ConfigType,
    Rule,
    UpdateMode,
    Validator,
    at_least,
    each,
    key,
    one_of,
    validate,
)
from millstream.network.endpoint import (
    LISTENER_SYNTAX,
    Endpoint,
    SecurityProtocol,
    is_listener_name,
    parse_ip_overrides,
    parse_listener,
    parse_protocol_map,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.network.server.listener_limits import ListenerLimits

INT_MAX: Final = (1 << 31) - 1
_LONG: Final = ConfigType.LONG
_PROTOCOLS: Final = tuple(protocol.value for protocol in SecurityProtocol)

_listeners = each(lambda item: parse_listener(item) is not None, LISTENER_SYNTAX)
_listener_names = each(is_listener_name, "a list of listener names")


def _names(listeners: tuple[str, ...]) -> list[str]:
    return [parsed[0] for item in listeners if (parsed := parse_listener(item)) is not None]


def _is_distinct(names: list[str]) -> bool:
    return len(set(names)) == len(names)


def _ports_are_distinct(listeners: tuple[str, ...]) -> bool:
    """Whether no two listeners want the same port of the same kind of address."""
    claims = [
        (family, port)
        for _, host, port in filter(None, map(parse_listener, listeners))
        for family in (("IPv6",) if ":" in host else ("IPv4",) if host else ("IPv4", "IPv6"))
        if port != 0
    ]
    return len(set(claims)) == len(claims)


def _is_mapped(names: list[str], protocol_map: tuple[str, ...]) -> bool:
    protocols = parse_protocol_map(protocol_map)
    return protocols is None or all(name in protocols for name in names)


def _can_be_advertised(advertised: tuple[str, ...] | None) -> bool:
    parsed = filter(None, map(parse_listener, advertised or ()))
    return not any(host in ("0.0.0.0", "::") for _, host, _ in parsed)


def _are_listened_on(advertised: tuple[str, ...] | None, listeners: tuple[str, ...]) -> bool:
    return set(_names(advertised or ())) <= set(_names(listeners))


def _lets_somebody_in(overrides: tuple[str, ...]) -> bool:
    return any(limit > 0 for limit in (parse_ip_overrides(overrides) or {}).values())


def _is_for_brokers(
    name: str | None, listeners: tuple[str, ...], controller_names: tuple[str, ...]
) -> bool:
    if name is None:
        return True
    is_controllers = name.upper() in {each.upper() for each in controller_names}
    return name.upper() in _names(listeners) and not is_controllers


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketServerConfig:
    """Where the broker listens, how much it accepts, how long it waits."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ("listeners",),
            lambda listeners: _is_distinct(_names(listeners)),
            "listeners with different names",
        ),
        Rule(("listeners",), _ports_are_distinct, "listeners with different ports"),
        Rule(
            ("listeners", "listener_security_protocol_map"),
            lambda listeners, protocols: _is_mapped(_names(listeners), protocols),
            "listeners whose names are in listener.security.protocol.map",
        ),
        Rule(
            ("advertised_listeners",),
            lambda advertised: _is_distinct(_names(advertised or ())),
            "listeners with different names",
        ),
        Rule(
            ("advertised_listeners",),
            _can_be_advertised,
            "addresses a client can connect to, not 0.0.0.0 or [::]",
        ),
        Rule(
            ("advertised_listeners", "listeners"),
            _are_listened_on,
            "listeners whose names are among those of listeners",
        ),
        Rule(
            ("inter_broker_listener_name", "listeners", "controller_listener_names"),
            _is_for_brokers,
            "the name of one of the listeners that is not in controller.listener.names",
        ),
        Rule(
            ("controller_listener_names", "listener_security_protocol_map"),
            lambda names, protocols: _is_mapped([name.upper() for name in names], protocols),
            "names that are in listener.security.protocol.map",
        ),
        Rule(
            ("max_connections_per_ip", "max_connections_per_ip_overrides"),
            lambda limit, overrides: limit > 0 or _lets_somebody_in(overrides),
            "at least 1 unless max.connections.per.ip.overrides lets somebody in",
        ),
    )

    listeners: tuple[str, ...] = key(
        "listeners",
        ("PLAINTEXT://:9092",),
        Validator(LISTENER_SYNTAX, lambda value: bool(value) and _listeners.accepts(value)),
        "Where to listen, as NAME://HOST:PORT. Port 0 takes any free port.",
    )
    advertised_listeners: tuple[str, ...] | None = key(
        "advertised.listeners",
        None,
        _listeners,
        "What clients are told to connect to, where it differs from `listeners`.",
        kind=ConfigType.LIST,
    )
    listener_security_protocol_map: tuple[str, ...] = key(
        "listener.security.protocol.map",
        tuple(f"{name}:{name}" for name in _PROTOCOLS),
        Validator(
            f"a list of NAME:PROTOCOL, each name once, protocols {', '.join(_PROTOCOLS)}",
            lambda items: parse_protocol_map(items) is not None,
        ),
        "Which protocol each listener name stands for.",
    )
    controller_listener_names: tuple[str, ...] = key(
        "controller.listener.names",
        (),
        _listener_names,
        "The listeners of the controller. Brokers and clients do not use them.",
    )
    inter_broker_listener_name: str | None = key(
        "inter.broker.listener.name",
        None,
        Validator("a listener name", is_listener_name),
        "The listener other brokers connect to; without it, the one with "
        "`security.inter.broker.protocol`.",
        kind=ConfigType.STRING,
    )
    security_inter_broker_protocol: str = key(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        one_of(*_PROTOCOLS),
        "The protocol between brokers where `inter.broker.listener.name` is not set.",
    )
    max_connections: int = key(
        "max.connections",
        INT_MAX,
        at_least(1),
        "How many connections may be open in all. When it is reached, new ones wait; the listener "
        "between brokers closes the least recently used connection of another listener instead.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    max_connections_per_ip: int = key(
        "max.connections.per.ip",
        INT_MAX,
        at_least(0),
        "How many connections one address may have open; more are closed at once.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: tuple[str, ...] = key(
        "max.connections.per.ip.overrides",
        (),
        Validator(
            "a list of ADDRESS:COUNT such as 10.0.0.7:100, with IP addresses instead of names",
            lambda items: parse_ip_overrides(items) is not None,
        ),
        "Other limits for some addresses, as ADDRESS:COUNT.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = key(
        "max.connection.creation.rate",
        INT_MAX,
        at_least(1),
        "How many connections are accepted per second; more wait in the listen queue.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    connections_max_idle_ms: int = key(
        "connections.max.idle.ms",
        600_000,
        at_least(-1),
        "Close a connection on which nothing was received or sent for so long; -1 never.",
        kind=_LONG,
        unit="ms",
    )
    socket_request_max_bytes: int = key(
        "socket.request.max.bytes",
        104_857_600,
        at_least(1),
        "The largest request; a larger one closes its connection.",
        unit="bytes",
    )
    queued_max_requests: int = key(
        "queued.max.requests",
        500,
        at_least(1),
        "How many unanswered requests may keep their bytes in memory before no more are read.",
    )
    queued_max_request_bytes: int = key(
        "queued.max.request.bytes",
        -1,
        at_least(1).or_exactly(-1),
        "How much memory requests may take, partly received ones included, before no more are "
        "read; -1 is no limit.",
        kind=_LONG,
        unit="bytes",
    )
    socket_send_buffer_bytes: int = key(
        "socket.send.buffer.bytes",
        -1,
        at_least(1).or_exactly(-1),
        "The kernel's send buffer of a connection; -1 lets the kernel adapt it, which is faster "
        "than Apache Kafka's default of 102400.",
        unit="bytes",
    )
    socket_receive_buffer_bytes: int = key(
        "socket.receive.buffer.bytes",
        -1,
        at_least(1).or_exactly(-1),
        "The kernel's receive buffer of a connection; -1 lets the kernel adapt it, which is faster "
        "than Apache Kafka's default of 102400.",
        unit="bytes",
    )
    socket_listen_backlog_size: int = key(
        "socket.listen.backlog.size",
        50,
        at_least(1),
        "How many connections may wait to be accepted.",
    )
    in_flight_requests_max: int = key(
        "millstream.connection.in.flight.requests",
        32,
        at_least(1),
        "How many requests of one connection may wait for their responses; then it is not read "
        "until one is answered. Requests are handled and answered in the order they came.",
    )
    write_stall_max_ms: int = key(
        "millstream.connection.write.stall.max.ms",
        300_000,
        at_least(1),
        "Close a connection whose peer has taken nothing of a response for so long.",
        kind=_LONG,
        unit="ms",
    )

    listener_limits: Mapping[str, ListenerLimits] = field(default_factory=dict)
    """What single listeners may have of `max.connections` and the rate, by their names."""

    def __post_init__(self) -> None:
        validate(self)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where to listen, controller listeners included, in the order given."""
        return self._endpoints(self.listeners)

    @property
    def controller_names(self) -> frozenset[str]:
        """`controller.listener.names` in capitals."""
        return frozenset(name.upper() for name in self.controller_listener_names)

    @property
    def inter_broker_name(self) -> str | None:
        """The name of the listener between brokers, as given or by its protocol."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        wanted = SecurityProtocol[self.security_inter_broker_protocol]
        for endpoint in self.endpoints:
            is_brokers = endpoint.listener_name not in self.controller_names
            if is_brokers and endpoint.security_protocol is wanted:
                return endpoint.listener_name
        return None

    @property
    def ip_limits(self) -> dict[str, int]:
        """`max.connections.per.ip.overrides` by address."""
        return parse_ip_overrides(self.max_connections_per_ip_overrides) or {}

    def advertised(self, bound: tuple[Endpoint, ...], fallback_host: str) -> tuple[Endpoint, ...]:
        """What to tell clients, given what was bound.

        Without `advertised.listeners` every listener is advertised as it is bound; with it, those
        it names. The controller's are not for clients, even when they are named, as they are in the
        settings that Apache Kafka comes with. `fallback_host` stands in for "every address", the
        bound port for an advertised port 0.
        """
        given = {
            each.listener_name: each for each in self._endpoints(self.advertised_listeners or ())
        }
        result = []
        for endpoint in bound:
            name = endpoint.listener_name
            told = given.get(name)
            if name in self.controller_names or (given and told is None):
                continue
            told = told or endpoint
            host = fallback_host if told.is_everywhere else told.host
            port = told.port or endpoint.port
            result.append(Endpoint(name, endpoint.security_protocol, host, port))
        return tuple(result)

    def advertised_controllers(self, bound: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """What to tell other nodes of the quorum, given the controller's listeners as bound."""
        given = {
            each.listener_name: each for each in self._endpoints(self.advertised_listeners or ())
        }
        return tuple(
            Endpoint(each.listener_name, each.security_protocol, told.host, told.port or each.port)
            for each in bound
            for told in (given.get(each.listener_name, each),)
        )

    def _endpoints(self, listeners: tuple[str, ...]) -> tuple[Endpoint, ...]:
        protocols = parse_protocol_map(self.listener_security_protocol_map) or {}
        parsed = filter(None, map(parse_listener, listeners))
        return tuple(Endpoint(name, protocols[name], host, port) for name, host, port in parsed)
