"""Settings that a user would rely on for protection, which this version cannot give.

`node_config` refuses them: a listener that only looks protected is worse than none. Settings that
merely tune TLS or SASL protect nobody by themselves; they are without effect, and a warning. Values
are never shown, many are secrets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.config import Fault
from millstream.network.endpoint import SecurityProtocol, parse_listener, parse_protocol_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_WHY: Final = (
    "this version has no TLS, SASL or ACLs; protect it from outside, by a private network or a "
    "proxy"
)
_LISTENER_PREFIX: Final = "listener.name."
_KEYS: Final = frozenset({"authorizer.class.name", "super.users"})
_FAMILIES: Final = ("ssl", "sasl")
_TUNING: Final = (
    "sasl.kerberos.",
    "sasl.login.",
    "sasl.server.max.receive.size",
    "ssl.allow.",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.keymanager.algorithm",
    "ssl.keystore.type",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.type",
)
"""How keys begin that say how to protect, and not that it shall be done."""
_NOTHING: Final = ("", "none")
"""Values such as that of ssl.client.auth which ask for no protection."""


def protection_faults(texts: Mapping[str, str], variables: Iterable[str]) -> list[Fault]:
    """Everything in settings, and in variables that name none, which promises protection."""
    faults = [
        Fault(name, "...", f"left out: {_WHY}")
        for name, text in texts.items()
        if promises_protection(name) and text.strip().lower() not in _NOTHING
    ]
    faults += [
        Fault(variable, "...", f"left out: {_WHY}")
        for variable in variables
        if promises_protection(_spelled_as_key(variable))
    ]
    return faults + _listener_faults(texts)


def promises_protection(name: str) -> bool:
    """Whether who sets this key expects to be protected by it."""
    key = _without_listener(name)
    return key in _KEYS or (key.startswith(("ssl.", "sasl.")) and not key.startswith(_TUNING))


def only_tunes_protection(name: str) -> bool:
    """Whether this key belongs to TLS or SASL and protects nobody by itself."""
    return _without_listener(name).startswith(_TUNING)


def _listener_faults(texts: Mapping[str, str]) -> list[Fault]:
    """Listeners whose protocol protects; what is malformed here is a fault of its own elsewhere."""
    plain = SecurityProtocol.PLAINTEXT
    protocols = parse_protocol_map(_items(texts.get("listener.security.protocol.map", ""))) or {}
    faults = []
    listened = set()
    for item in _items(texts.get("listeners", "")):
        parsed = parse_listener(item)
        if parsed is not None:
            listened.add(parsed[0])
            if protocols.get(parsed[0], plain) is not plain:
                protocol = protocols[parsed[0]].value
                faults.append(Fault("listeners", item, f"PLAINTEXT and not {protocol}: {_WHY}"))
    for name in _items(texts.get("controller.listener.names", "")):
        if name.upper() not in listened and protocols.get(name.upper(), plain) is not plain:
            protocol = protocols[name.upper()].value
            must_be = f"PLAINTEXT and not {protocol}: {_WHY}"
            faults.append(Fault("controller.listener.names", name, must_be))
    between_brokers = texts.get("security.inter.broker.protocol", plain.value).strip()
    if between_brokers in SecurityProtocol.__members__ and between_brokers != plain.value:
        must_be = f"PLAINTEXT: {_WHY}"
        faults.append(Fault("security.inter.broker.protocol", between_brokers, must_be))
    return faults


def _without_listener(name: str) -> str:
    """`listener.name.outside.plain.sasl.jaas.config` from the family on: sasl.jaas.config."""
    if not name.startswith(_LISTENER_PREFIX):
        return name
    parts = name.split(".")
    for place, part in enumerate(parts):
        if place > 2 and part in _FAMILIES:
            return ".".join(parts[place:])
    return name


def _spelled_as_key(variable: str) -> str:
    return variable.removeprefix("MILLSTREAM_").lower().replace("_", ".")


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())
