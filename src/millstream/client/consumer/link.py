"""`CoreLink`: how the application's half of a consumer asks its half on the I/O thread.

The application posts; the core answers through a `Waiter`, exactly once, also when it fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from millstream.client.consumer.core import ConsumerCore
    from millstream.client.futures import Waiter
    from millstream.client.runtime import ClientRuntime

T = TypeVar("T")

Answer: TypeAlias = Callable[[Any], None]
"""Takes a result or a MillstreamError."""


class CoreLink:
    """Posts to the I/O thread."""

    def __init__(self, runtime: ClientRuntime, core: ConsumerCore) -> None:
        self._runtime = runtime
        self.core = core

    def now_ms(self) -> int:
        """The monotonic time that the core is told."""
        return self._runtime.now_ms()

    def deadline_ms(self, timeout_s: float) -> int:
        """When so many seconds are over."""
        return self.now_ms() + round(timeout_s * 1000)

    def left_s(self, deadline_ms: int) -> float:
        """Seconds until then; negative afterwards."""
        return (deadline_ms - self.now_ms()) / 1000

    def retrying(self, call: Callable[[], T]) -> T:
        """What a call gives; if it raises, the core shall try again what has failed."""
        try:
            return call()
        except MillstreamError:
            self.post(lambda core, _now_ms: core.retry_failed())
            raise

    def post(self, action: Callable[[ConsumerCore, int], None]) -> None:
        """Have the core do something, soon."""
        self._runtime.post(lambda now_ms: action(self.core, now_ms))

    def ask(self, what: str, question: Callable[[ConsumerCore, int, Answer], None]) -> Waiter[Any]:
        """Have the core answer something; `what` is named when it takes too long."""
        waiter: Waiter[Any] = self._runtime.waiter(what)

        def answer(outcome: Any) -> None:
            if isinstance(outcome, MillstreamError):
                waiter.set_error(outcome)
            else:
                waiter.set_result(outcome)

        def run(now_ms: int) -> None:
            try:
                question(self.core, now_ms, answer)
            except MillstreamError as error:
                waiter.set_error(error)

        self._runtime.post(run)
        return waiter
