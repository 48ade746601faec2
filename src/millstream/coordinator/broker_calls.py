"""Calls on their way to other brokers: collected per destination, tried again where that helps.

A state machine without hands. `node.peer_calls` finds the destination of each call, sends what
`take_batches` gives, and says what became of it. One request per destination is under way at a
time; what comes meanwhile goes together in the next one.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from millstream.errors import ApiError

A = TypeVar("A")
R = TypeVar("R")

BATCH_MAX: Final = 1000
"""How many calls one request carries at most."""


class Call(Generic[A, R]):
    """One question and the one who waits for its answer."""

    __slots__ = ("asked", "done", "due_ms", "failures")

    def __init__(self, asked: A, done: Callable[[R | ApiError], None], now_ms: int) -> None:
        self.asked = asked
        self.done = done
        self.failures = 0
        self.due_ms = now_ms


class BrokerCalls(Generic[A, R]):
    """The calls of one purpose. Those of one key are asked one after the other, in order."""

    def __init__(
        self,
        key_of: Callable[[A], Hashable],
        *,
        tries_max: int = 1,
        wait_ms: Callable[[int], int] = lambda _failures: 0,
    ) -> None:
        """`wait_ms` is the pause after so many failures."""
        self._key_of = key_of
        self._tries_max = tries_max
        self._wait_ms = wait_ms
        self._by_key: dict[Hashable, deque[Call[A, R]]] = {}
        """The first of each is being asked; the others wait for it."""
        self._unrouted: list[Call[A, R]] = []
        self._collected: dict[Hashable, list[Call[A, R]]] = {}
        self._in_flight: set[Hashable] = set()

    def is_pending(self, asked: A) -> bool:
        """Whether a call of the same key is on its way: another must wait for it."""
        return self._key_of(asked) in self._by_key

    def add(self, call: Call[A, R]) -> None:
        """A question came up."""
        calls = self._by_key.setdefault(self._key_of(call.asked), deque())
        calls.append(call)
        if len(calls) == 1:
            self._unrouted.append(call)

    def take_unrouted(self, now_ms: int) -> list[Call[A, R]]:
        """Calls whose destination is to be found now: new ones, and those whose pause is over."""
        due = [each for each in self._unrouted if each.due_ms <= now_ms]
        if due:
            self._unrouted = [each for each in self._unrouted if each.due_ms > now_ms]
        return due

    def collect(self, destination: Hashable, call: Call[A, R]) -> None:
        """A call goes to this destination, with its next request."""
        self._collected.setdefault(destination, []).append(call)

    def take_batches(self) -> list[tuple[Hashable, list[Call[A, R]]]]:
        """What to send now; `answered` must follow for each."""
        batches = []
        for destination in [each for each in self._collected if each not in self._in_flight]:
            self._in_flight.add(destination)
            calls = self._collected.pop(destination)
            if len(calls) > BATCH_MAX:
                self._collected[destination] = calls[BATCH_MAX:]
            batches.append((destination, calls[:BATCH_MAX]))
        return batches

    def answered(self, destination: Hashable) -> None:
        """The request to a destination has come to its end, well or badly."""
        self._in_flight.discard(destination)

    def try_again(self, call: Call[A, R], now_ms: int) -> bool:
        """A call failed in a way that may pass: whether it is tried once more."""
        if not self._may_try_again(call, now_ms):
            return False
        self._unrouted.append(call)
        return True

    def add_failed(self, call: Call[A, R], now_ms: int) -> bool:
        """As `try_again`, for a call that was asked at once instead of being added."""
        if not self._may_try_again(call, now_ms):
            return False
        self.add(call)
        return True

    def _may_try_again(self, call: Call[A, R], now_ms: int) -> bool:
        call.failures += 1
        call.due_ms = now_ms + self._wait_ms(call.failures)
        return call.failures < self._tries_max

    def finished(self, call: Call[A, R]) -> None:
        """A call has its answer: the next of its key is asked."""
        key = self._key_of(call.asked)
        calls = self._by_key[key]
        first = calls.popleft()
        assert first is call
        if calls:
            self._unrouted.append(calls[0])
        else:
            del self._by_key[key]

    def next_deadline_ms(self) -> int | None:
        """When `take_unrouted` has something; None if never."""
        return min((each.due_ms for each in self._unrouted), default=None)

    def take_all(self) -> list[Call[A, R]]:
        """Everything, in order: nobody will ask any more."""
        waiting = [call for calls in self._by_key.values() for call in calls]
        self._by_key, self._unrouted, self._collected = {}, [], {}
        return waiting
