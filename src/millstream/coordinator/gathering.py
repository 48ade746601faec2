"""Asking about many things at once, whose answers come one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from millstream.errors import ApiError

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


def gather_or_fail(
    keys: Sequence[K],
    ask: Callable[[K, Callable[[T | ApiError], None]], None],
    fail: Callable[[K, ApiError], T],
    done: Callable[[list[T]], None],
) -> None:
    """The same where each may fail for itself, which `fail` puts into an answer."""

    def gathered(found: list[T | ApiError]) -> None:
        done(
            [
                fail(key, each) if isinstance(each, ApiError) else each
                for key, each in zip(keys, found, strict=True)
            ]
        )

    gather(keys, ask, gathered)
