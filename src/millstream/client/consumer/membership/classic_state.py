"""Where a member of a classic group stands, and where it may go from there."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(Enum):
    """Where a member stands."""

    UNJOINED = "unjoined"
    GIVING_BACK = "giving back"
    """Its listener runs for what it has to give back before it joins."""
    JOINING = "joining"
    STABLE = "stable"
    DESERTED = "deserted"
    """It left because the user did not poll; it comes back when he does."""
    GONE = "gone"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNJOINED: frozenset({State.GIVING_BACK, State.JOINING, State.DESERTED, State.GONE}),
    State.GIVING_BACK: frozenset({State.JOINING, State.UNJOINED, State.DESERTED, State.GONE}),
    State.JOINING: frozenset({State.STABLE, State.UNJOINED, State.DESERTED, State.GONE}),
    State.STABLE: frozenset(
        {State.GIVING_BACK, State.JOINING, State.UNJOINED, State.DESERTED, State.GONE}
    ),
    State.DESERTED: frozenset({State.UNJOINED, State.GONE}),
    State.GONE: frozenset({State.UNJOINED}),
}
