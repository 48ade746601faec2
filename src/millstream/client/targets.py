"""The brokers that can answer a request, as `RequestRouter` finds them."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

CoordinatorKind: TypeAlias = Literal["group", "transaction", "share"]


class _Anybody(Enum):
    """Addressees without a name."""

    ANY = "any broker"
    CONTROLLER = "the controller"


ANY: Final = _Anybody.ANY
"""Whichever broker is least busy."""
CONTROLLER: Final = _Anybody.CONTROLLER
"""The active controller, or the broker that passes on to it."""


class Node(NamedTuple):
    """One broker."""

    node_id: int


class Leader(NamedTuple):
    """The leader of a partition."""

    topic: str
    partition: int


class Coordinator(NamedTuple):
    """The coordinator of a group, a transactional id or a share partition."""

    kind: CoordinatorKind
    key: str


Target: TypeAlias = _Anybody | Node | Leader | Coordinator
