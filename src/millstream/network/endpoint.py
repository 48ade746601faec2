"""Listener strings such as `PLAINTEXT://[::1]:9092`: their parts, and how to read them.

`SocketServerConfig` parses its settings with these; the broker registers `Endpoint`s. Nothing here
resolves a name or opens a socket.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

PORT_MAX: Final = 65_535
_LISTENER = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_.-]*)://"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\]|(?P<host>[A-Za-z0-9._-]*))"
    r":(?P<port>[0-9]{1,5})",
    re.ASCII,
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)

LISTENER_SYNTAX: Final = (
    f"a list of NAME://HOST:PORT with a port from 0 to {PORT_MAX} (0: any free one); an empty host "
    "is every address, an IPv6 address stands in brackets: PLAINTEXT://[::1]:9092"
)


class SecurityProtocol(Enum):
    """How a listener's connections are protected and who may open them."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        """Whether the bytes on the wire are TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        """Whether a client must authenticate by SASL before anything else."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener: where it is and how it is protected. Port 0 before it is bound is "any"."""

    listener_name: str
    security_protocol: SecurityProtocol
    host: str
    port: int

    @property
    def is_everywhere(self) -> bool:
        """Whether the host stands for every address of the machine, which nobody can connect to."""
        return self.host in ("", "0.0.0.0", "::")

    def __str__(self) -> str:
        return f"{self.listener_name}://{host_and_port(self.host, self.port)}"


def host_and_port(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_listener(text: str) -> tuple[str, str, int] | None:
    """Name in capitals, host without brackets and port; None if the text is not a listener."""
    match = _LISTENER.fullmatch(text)
    if match is None or int(match["port"]) > PORT_MAX:
        return None
    if match["ipv6"] is not None and not _is_ipv6(match["ipv6"]):
        return None
    return match["name"].upper(), match["ipv6"] or match["host"] or "", int(match["port"])


def is_listener_name(text: str) -> bool:
    """Whether a listener may be called so."""
    return _NAME.fullmatch(text) is not None


def parse_protocol_map(items: tuple[str, ...]) -> dict[str, SecurityProtocol] | None:
    """`("INSIDE:SSL", ...)` as a mapping; None if an item is malformed or a name occurs twice."""
    protocols: dict[str, SecurityProtocol] = {}
    for item in items:
        name, colon, protocol = (part.strip() for part in item.partition(":"))
        known = protocol.upper() in SecurityProtocol.__members__
        if not colon or not known or not is_listener_name(name) or name.upper() in protocols:
            return None
        protocols[name.upper()] = SecurityProtocol[protocol.upper()]
    return protocols


def parse_ip_overrides(items: tuple[str, ...]) -> dict[str, int] | None:
    """`("127.0.0.1:200", "::1:5", ...)` as address to limit; None if an item is malformed.

    Names are refused: an address that a name gets later would not be limited.
    """
    limits: dict[str, int] = {}
    for item in items:
        host, colon, limit = item.rpartition(":")
        host = host.strip().strip("[]")
        if not colon or not host or not limit.strip().isascii() or not limit.strip().isdigit():
            return None
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return None
        limits[address.compressed] = int(limit)
    return limits


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
