"""Asking about many things at once, whose answers come one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

K = TypeVar("K")
T = TypeVar("T")


def gather(
    keys: Sequence[K],
    ask: Callable[[K, Callable[[T], None]], None],
    done: Callable[[list[T]], None],
) -> None:
    """Ask for every key; `done` gets the answers in the order of the keys when all are there."""
    answers: dict[int, T] = {}
    if not keys:
        done([])
        return

    def answerer(place: int) -> Callable[[T], None]:
        def answered(answer: T) -> None:
            answers[place] = answer
            if len(answers) == len(keys):
                done([answers[each] for each in range(len(keys))])

        return answered

    for place, key in enumerate(keys):
        ask(key, answerer(place))
