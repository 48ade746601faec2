"""The core of a client: network, metadata, router and actors, turned by one thread.

`IoThread` calls `run_once` again and again; a simulator does the same with its own selector and
clock. Everything but `post` belongs to that one thread.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from millstream.client.futures import Waiter
from millstream.client.metadata import Metadata
from millstream.client.metrics import ClientMeters, MeasuredNetwork
from millstream.client.router import RequestRouter, RouterConfig
from millstream.errors import ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from millstream.client.config import ClientConfig
    from millstream.client.metadata import MetadataConfig
    from millstream.clock import Clock
    from millstream.network.client.selector import ClientSelector

T = TypeVar("T")

_logger: Final = logging.getLogger(__name__)

QUIET_MS_MAX: Final = 50
"""How long the actors may be left alone while nothing happens that they would act on."""


class Actor(Protocol):
    """A part of a client that acts by itself."""

    def poll(self, now_ms: int) -> int | None:
        """Do what is due now; say when to be called next at the latest (None: after events)."""
        ...


class ClientRuntime:
    """One client's network, metadata, router and actors."""

    def __init__(
        self,
        selector: ClientSelector,
        clock: Clock,
        config: ClientConfig,
        random: Random,
        *,
        metadata_config: MetadataConfig | None = None,
        max_in_flight: int = 5,
        separate_coordinators: bool = True,
    ) -> None:
        self._selector = selector
        self._clock = clock
        self.config = config
        self.random = random
        self.meters = ClientMeters()
        self.network = MeasuredNetwork(selector, config.network(max_in_flight), random, self.meters)
        self.metadata = Metadata(
            self.network, config.bootstrap, metadata_config or config.metadata(), random
        )
        self.router = RequestRouter(
            self.network,
            self.metadata,
            RouterConfig(
                retry_backoff_ms=config.retry_backoff_ms,
                retry_backoff_max_ms=config.retry_backoff_max_ms,
                separate_coordinators=separate_coordinators,
            ),
            random,
            self.meters,
        )
        self._actors: list[Actor] = []
        self._has_newcomer = False
        self._is_woken = False
        self._is_quiet = False
        """Whether all that happened since the actors were polled was seen to by the network."""
        self._polled_ms = 0
        self._due_ms: int | None = None
        self._closing: list[Callable[[ClientClosed], None]] = []
        self._waiting: set[Waiter[Any]] = set()
        self._posted: deque[Callable[[int], None]] = deque()
        # Held for an instant: it keeps the selector from being shut down under a `wake`.
        self._lock = threading.Lock()
        self._closed_error: ClientClosed | None = None

    def add(self, actor: Actor) -> None:
        """Have an actor polled, after those that were added before."""
        self._actors.append(actor)
        self._has_newcomer = True

    def remove(self, actor: Actor) -> None:
        """Poll an actor no longer."""
        self._actors.remove(actor)

    def on_close(self, action: Callable[[ClientClosed], None]) -> None:
        """Have something done at the very end, on the I/O thread, which is told why it ends."""
        self._closing.append(action)

    def waiter(self, what: str) -> Waiter[T]:
        """A waiter for what the I/O thread will do. It ends at the latest with the client."""
        made: Waiter[T] = Waiter(what)
        self._waiting.add(made)
        made.add_done_callback(self._waiting.discard)
        return made

    def post(self, action: Callable[[int], None]) -> None:
        """Run `action(now_ms)` on the I/O thread, soon. From any thread.

        What was taken is run, even if the client is closed meanwhile; afterwards ClientClosed.
        """
        with self._lock:
            if self._closed_error is not None:
                raise self._closed_error.with_traceback(None)
            self._posted.append(action)
            self._is_woken = True
            self._selector.wake()

    def wake(self) -> None:
        """Have the actors polled soon. From any thread; harmless after the end."""
        with self._lock:
            if self._closed_error is None:
                self._is_woken = True
                self._selector.wake()

    def now_ms(self) -> int:
        """The monotonic time that actors are told."""
        return self._clock.monotonic_ms()

    def run_once(self, timeout_ms_max: int | None = None) -> None:
        """One turn: posted actions, actors, then wait for events until somebody is due.

        The actors are passed over if they were polled a moment ago and nothing has happened since
        that they would act on.
        """
        now_ms = self._clock.monotonic_ms()
        is_due = self._due_ms is not None and now_ms >= self._due_ms
        if is_due or self._is_woken or self._has_newcomer or not self._is_quiet:
            self._is_woken = False
            self._run_posted(now_ms)
            self._has_newcomer = False
            self._due_ms = self._poll_actors(now_ms)
            self._polled_ms = now_ms
        due_ms, timeout_ms = self._due_ms, timeout_ms_max
        if due_ms is not None:
            wait_ms = max(0, due_ms - now_ms)
            timeout_ms = wait_ms if timeout_ms is None else min(timeout_ms, wait_ms)
        # An actor that came while the others were polled has not been asked yet when it is due.
        is_urgent = self._has_newcomer or bool(self._posted)
        events = self._selector.poll(0 if is_urgent else timeout_ms)
        self._is_quiet = False
        if events:
            self._is_quiet = self.network.handle(events, self._clock.monotonic_ms())
            # What is under way now may be due before what was.
            limit_ms = self._polled_ms + QUIET_MS_MAX
            self._due_ms = limit_ms if due_ms is None else min(due_ms, limit_ms)

    def close(self, error: ClientClosed | None = None) -> None:
        """End everything under way with an error and close the connections.

        Whatever a part does at its end, the others are ended too: nobody may wait for ever.
        """
        error = error or ClientClosed("the client was closed; make a new one")
        with self._lock:
            if self._closed_error is not None:
                return
            self._closed_error = error
        now_ms = self._clock.monotonic_ms()
        while self._posted:
            _quietly(self._posted.popleft(), now_ms)
        _quietly(self.router.close, now_ms, error)
        _quietly(self.network.close, now_ms, error)
        _quietly(self._selector.shutdown)
        for action in self._closing:
            _quietly(action, error)
        for waiter in list(self._waiting):
            _quietly(waiter.set_error, error)

    def _run_posted(self, now_ms: int) -> None:
        # Only what is there now: an action that posts another must not keep us here.
        for _ in range(len(self._posted)):
            self._posted.popleft()(now_ms)

    def _poll_actors(self, now_ms: int) -> int | None:
        self.network.expire(now_ms)
        times = [each.poll(now_ms) for each in list(self._actors)]
        # The router after those who call, the metadata after those who find it stale: what one
        # asks of another is done in the same turn, and nobody sleeps over it.
        times.append(self.router.poll(now_ms))
        times.append(self.metadata.poll(now_ms))
        times.append(self.network.next_due_ms(now_ms))
        return min((each for each in times if each is not None), default=None)


def _quietly(action: Callable[..., object], *arguments: object) -> None:
    try:
        action(*arguments)
    except Exception:
        _logger.exception("A part of a client has failed while the client was closed")
