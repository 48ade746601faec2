"""The states of a transactional producer, which may follow which, and what to say of the others."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from millstream.errors import InvalidTxnState, OperationTimeout

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

_HINTS: Final[Mapping[State, str]] = {
    State.UNINITIALIZED: "it is initialized once",
    State.READY: "end what is under way first",
    State.IN_TRANSACTION: "begin a transaction first",
}
"""What to do to be in a state."""

_CALLS: Final[Mapping[State, str]] = {
    State.COMMITTING: "commit_transaction",
    State.ABORTING: "abort_transaction",
}


class Ending:
    """How the transaction that was begun last ends, and whether its caller waited for that.

    Who stopped waiting may ask again: for what goes on, and once for what is over meanwhile.
    """

    __slots__ = ("_is_unheard", "_state")

    def __init__(self) -> None:
        self._state: State | None = None
        self._is_unheard = False

    def begin(self, state: State | None) -> None:
        """It is to end so; None: it has only begun."""
        self._state = state
        self._is_unheard = False

    def let_go(self) -> None:
        """Whoever asked for the end does not wait for it any more."""
        self._is_unheard = self._state is not None

    def is_asked_again(self, asked: State, state: State) -> bool:
        """Whether the end that is asked for is under way, or came when nobody waited for it."""
        if self._state is not asked or not (
            state is asked or (state is State.READY and self._is_unheard)
        ):
            return False
        self._is_unheard = False
        return True

    def refusal(self, what: str, state: State, wanted: State) -> InvalidTxnState:
        """Why a call cannot be made in a state, and what to do."""
        if self._state is not None and (state in _CALLS or self._is_unheard):
            call = _CALLS[self._state]
            return InvalidTxnState(
                f"{what}: nobody has waited for the end of {call}(), which goes on or is done: "
                f"call {call}() again, and it tells how that ends"
            )
        return InvalidTxnState(f"{what}: the producer is {state.value}; {_HINTS[wanted]}")


def timed_out(what: str, seconds: float) -> OperationTimeout:
    """Nobody knows yet how a call ends."""
    text = f"{what}: no result within {seconds:g} s"
    if what in _CALLS.values():
        text += f"; it goes on: call {what}() again to learn how it ends, nothing else helps"
    return OperationTimeout(text)
