"""Host names to addresses, off the caller's thread: the system's resolver may take many seconds.

`SocketSelector` asks for each connection. Nothing is cached: a name may have moved.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable


InetAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]


class SocketAddress(NamedTuple):
    """What a socket of a family connects to."""

    family: int
    address: InetAddress


class Resolution(NamedTuple):
    """The addresses of a host, or why there are none."""

    connection_id: int
    addresses: tuple[SocketAddress, ...]
    failure: str


def numeric_addresses(host: str, port: int) -> tuple[SocketAddress, ...] | None:
    """The address of a host that is one already; None for a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return _look_up(host, port, socket.AI_NUMERICHOST)


def resolve(
    connection_id: int, host: str, port: int, on_done: Callable[[Resolution], None]
) -> None:
    """Look a name up in a thread that ends with it; `on_done` is called there."""

    def work() -> None:
        on_done(_resolution(connection_id, host, port))

    threading.Thread(target=work, name=f"millstream-resolve-{host}", daemon=True).start()


def _resolution(connection_id: int, host: str, port: int) -> Resolution:
    try:
        return Resolution(connection_id, _look_up(host, port, 0), "")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return Resolution(connection_id, (), f"no such host: {reason}")


def _look_up(host: str, port: int, flags: int) -> tuple[SocketAddress, ...]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return tuple(
        dict.fromkeys(SocketAddress(each[0], cast("InetAddress", each[4])) for each in found)
    )
