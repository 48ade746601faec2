"""What `--listen HOST:PORT` makes of the listeners that a file or the environment gave.

`main` calls it before the settings are read. It says where clients connect, so only their listener
moves; the controller's stays, without which the settings of a file would not fit together any more.
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
    if "broker" not in _items(given.get("process.roles", "broker")):
        raise InvalidConfig(
            f"--listen {listen}: a node that is no broker has no clients; say where the controller "
            "listens by --set listeners=CONTROLLER://HOST:PORT"
        )
    controllers = _items(given.get("controller.listener.names", "CONTROLLER").upper())
    items = _items(given.get("listeners", ""))
    places = [place for place, item in enumerate(items) if _name(item) not in (None, *controllers)]
    if len(places) > 1:
        names = ", ".join(str(_name(items[place])) for place in places)
        raise InvalidConfig(
            f"--listen {listen}: clients have several listeners ({names}); say where all of them "
            "are by --set listeners=NAME://HOST:PORT,..."
        )
    if places:
        items[places[0]] = f"{_name(items[places[0]])}://{listen}"
    else:
        items.insert(0, f"PLAINTEXT://{listen}")
    changed = {**given, "listeners": ",".join(items)}
    # Of other listeners only the controller's can be left, and that is not advertised.
    changed.pop("advertised.listeners", None)
    return changed


def _hint(listen: str) -> str:
    if listen.isascii() and listen.isdigit():
        return f"did you mean localhost:{listen}? "
    return ""


def _name(listener: str) -> str | None:
    parsed = parse_listener(listener)
    return None if parsed is None else parsed[0]


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
