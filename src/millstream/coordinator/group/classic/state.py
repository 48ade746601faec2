"""The states of a classic group, and which may follow which."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClassicState(Enum):
    """What a classic group is doing, as DescribeGroups spells it."""

    __hash__ = object.__hash__  # Each is only itself; the inherited one is slow.

    EMPTY = "Empty"
    """It has no members; offsets may be there."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members join the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation is there; its leader has not said yet who reads what."""
    STABLE = "Stable"
    DEAD = "Dead"
    """It is deleted, or another broker has it."""


PREDECESSORS: Mapping[ClassicState, frozenset[ClassicState]] = MappingProxyType(
    {
        ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
        ClassicState.PREPARING_REBALANCE: frozenset(
            {ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}
        ),
        ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.PREPARING_REBALANCE}),
        ClassicState.STABLE: frozenset({ClassicState.COMPLETING_REBALANCE}),
        ClassicState.DEAD: frozenset(ClassicState),
    }
)
"""For each state those that it may follow."""
