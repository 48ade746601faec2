"""Bootstrap addresses: where the first connections go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(bootstrap: str | Iterable[str]) -> tuple[Address, ...]:
    """Read `"host:port,host:port"` or a list of such; each once. The default port is 9092."""
    texts = [bootstrap] if isinstance(bootstrap, str) else list(bootstrap)
    items = [item.strip() for text in texts for item in text.split(",") if item.strip()]
    if not items:
        raise InvalidArgument("bootstrap: no address given; write host:port")
    return tuple(dict.fromkeys(parse_address(item) for item in items))


def parse_address(text: str) -> Address:
    """Read `host`, `host:port`, `[IPv6]:port` or a bare IPv6 address."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, port = text, str(DEFAULT_PORT)
    name = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16 or not name or "/" in name:
        raise InvalidArgument(f"bootstrap: {text!r} is not host:port")
    return Address(name, int(port))
