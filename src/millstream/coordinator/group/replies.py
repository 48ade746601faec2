"""`Reply`: the answer to a member that may have to wait for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import ApiError

T = TypeVar("T")


class Reply(Generic[T]):
    """An answer that is given once: by who was asked, or by who let the asker wait."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[T | ApiError], None]) -> None:
        self._done: Callable[[T | ApiError], None] | None = done

    def give(self, answer: T | ApiError) -> None:
        """Answer, unless somebody was quicker."""
        done, self._done = self._done, None
        if done is not None:
            done(answer)

    def give_unless_parked(self, answer: T | ApiError | None) -> None:
        """Answer with the outcome of a decision; None says that the answer comes later."""
        if answer is not None:
            self.give(answer)
