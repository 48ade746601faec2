"""Environments that share a cluster and cannot mix: a prefix on topics, groups and transactions.

With `environment="staging"` a client's topic "orders" is "staging.orders" on the wire. The faces
(Producer, Consumer, Admin) translate where names come in and go out; everything below has the
names of the wire. What lacks the prefix does not exist for the client.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.errors import InvalidArgument

_LEGAL: Final = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)


class Isolation:
    """Names as the user has them, to names on the wire and back."""

    __slots__ = ("environment", "prefix")

    def __init__(self, environment: str | None = None) -> None:
        if environment is not None and not _LEGAL.fullmatch(environment):
            raise InvalidArgument(
                f"environment={environment!r}: must be 1 to 100 letters, digits, _ or -"
            )
        self.environment = environment
        self.prefix = "" if environment is None else f"{environment}."

    def to_wire(self, name: str) -> str:
        """A topic, group or transactional id as the brokers know it."""
        if not isinstance(name, str):
            raise InvalidArgument(f"a name is a str, not {name!r}")
        return self.prefix + name

    def from_wire(self, name: str) -> str | None:
        """The user's name of it; None if it belongs to another environment."""
        return name[len(self.prefix) :] if name.startswith(self.prefix) else None

    def is_visible(self, wire_name: str) -> bool:
        """Whether it belongs to this environment."""
        return wire_name.startswith(self.prefix)
