"""The name by which other machines reach this one, as far as this one can know it.

`Node` advertises it for a listener on every address. `localhost` would lead the clients of other
machines to themselves, so it is the last resort.
"""

from __future__ import annotations

import socket


def own_host_name() -> str:
    """The full name of this machine; its short one where the full one is only `localhost`."""
    full, short = socket.getfqdn(), socket.gethostname()
    if not is_loopback_name(full):
        return full
    return short if not is_loopback_name(short) and _resolves(short) else full


def is_loopback_name(name: str) -> bool:
    """Whether a name means the machine that uses it, wherever that is."""
    first, _, rest = name.lower().partition(".")
    return first == "localhost" and rest in ("", "localdomain")


def _resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return False
    return True
