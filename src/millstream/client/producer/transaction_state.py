"""The states of a transactional producer, and which may follow which."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(Enum):
    """Where the producer is."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "not in a transaction"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE = "in a transaction that must be aborted"
    FATAL = "not usable any more"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING}),
    State.INITIALIZING: frozenset({State.READY}),
    State.READY: frozenset({State.IN_TRANSACTION}),
    State.IN_TRANSACTION: frozenset({State.COMMITTING, State.ABORTING, State.ABORTABLE}),
    State.COMMITTING: frozenset({State.READY, State.ABORTABLE}),
    State.ABORTABLE: frozenset({State.ABORTING}),
    State.ABORTING: frozenset({State.READY, State.INITIALIZING}),
    State.FATAL: frozenset(),
}
"""Besides, every state may become FATAL."""

OPEN: Final = (State.IN_TRANSACTION, State.COMMITTING)
"""A transaction is under way and may still be committed."""

HINTS: Final[Mapping[State, str]] = {
    State.UNINITIALIZED: "it is initialized once",
    State.READY: "end what is under way first",
    State.IN_TRANSACTION: "begin a transaction first",
}
"""What to do to be in a state."""
