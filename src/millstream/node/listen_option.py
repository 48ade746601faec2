"""What `--listen` and `--advertise` make of the listeners that a file or the environment gave.

`main` calls them before the settings are read. They say where clients connect, so only the clients'
listener moves; the controller's stays, without which the settings of a file would not fit together
any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidConfig
from millstream.network.endpoint import parse_listener

if TYPE_CHECKING:
    from collections.abc import Mapping

_SYNTAX: Final = (
    "write it as HOST:PORT, such as localhost:9092; an empty host is every address, an IPv6 "
    "address stands in brackets"
)


def with_listen(listen: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings, with the clients' listener at an address; it is advertised as it is bound."""
    if parse_listener(f"PLAINTEXT://{listen}") is None:
        raise InvalidConfig(f"--listen {listen}: {_hint(listen)}{_SYNTAX}")
    option = f"--listen {listen}"
    items = _items(given.get("listeners", ""))
    place = _place_of_clients(items, given, option)
    if place is not None:
        items[place] = f"{_name(items[place])}://{listen}"
    else:
        items.insert(0, f"PLAINTEXT://{listen}")
    changed = {**given, "listeners": ",".join(items)}
    # Of other listeners only the controller's can be left, and that is not advertised.
    changed.pop("advertised.listeners", None)
    return changed


def with_advertise(advertise: str, given: Mapping[str, str]) -> dict[str, str]:
    """The settings, with the clients' listener advertised under a name; without a port, its own."""
    host, port = _host_and_port(advertise)
    if parse_listener(f"PLAINTEXT://{host}:{port}") is None or host in ("", "0.0.0.0", "[::]"):
        raise InvalidConfig(
            f"--advertise {advertise}: write it as HOST or HOST:PORT, with a name or an address "
            "that clients can connect to"
        )
    items = _items(given.get("listeners", "PLAINTEXT://localhost:9092"))
    place = _place_of_clients(items, given, f"--advertise {advertise}")
    name = "PLAINTEXT" if place is None else _name(items[place])
    return {**given, "advertised.listeners": f"{name}://{host}:{port}"}


def _host_and_port(text: str) -> tuple[str, str]:
    """Port 0 stands for the one that is bound."""
    if ":" not in text or text.endswith("]"):
        return text, "0"
    host, _, port = text.rpartition(":")
    return host, port


def _place_of_clients(items: list[str], given: Mapping[str, str], option: str) -> int | None:
    """Which of the listeners is the clients'; None if there is none yet."""
    if "broker" not in _items(given.get("process.roles", "broker")):
        raise InvalidConfig(
            f"{option}: a node that is no broker has no clients; say where the controller "
            "listens by --set listeners=CONTROLLER://HOST:PORT"
        )
    controllers = _items(given.get("controller.listener.names", "CONTROLLER").upper())
    places = [place for place, item in enumerate(items) if _name(item) not in (None, *controllers)]
    if len(places) > 1:
        names = ", ".join(str(_name(items[place])) for place in places)
        setting = "listeners" if option.startswith("--listen") else "advertised.listeners"
        raise InvalidConfig(
            f"{option}: clients have several listeners ({names}); say where all of them "
            f"are by --set {setting}=NAME://HOST:PORT,..."
        )
    return places[0] if places else None


def _hint(listen: str) -> str:
    if listen.isascii() and listen.isdigit():
        return f"did you mean localhost:{listen}? "
    return ""


def _name(listener: str) -> str | None:
    parsed = parse_listener(listener)
    return None if parsed is None else parsed[0]


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
