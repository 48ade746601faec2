"""Many items, few requests: each item to the broker that is responsible, tried again by itself.

`Operations` makes one per batch. Items are grouped by broker; what a response says of one item
(done, failed for good, try again) does not touch the others. A state machine and an actor of the
runtime while it lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from millstream.client.admin.outcomes import Outcomes
from millstream.client.router import CONTROLLER, UNKNOWN_TOPIC_MS, Leader
from millstream.errors import (
    BrokerUnreachable,
    InvalidArgument,
    MillstreamError,
    NotController,
    OperationTimeout,
    ThrottlingQuotaExceeded,
    UnknownServerError,
    UnknownTopicOrPartition,
    is_retriable,
)
from millstream.network.client.backoff import Backoff

if TYPE_CHECKING:
    from millstream.client.router import Target
    from millstream.client.runtime import ClientRuntime
    from millstream.network.client.network_client import RequestSource
    from millstream.protocol.api import ApiKey
    from millstream.protocol.message import Message

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

ITEMS_PER_REQUEST_MAX: Final = 10_000
"""Above this a request is cut into several."""
_LOOK_AGAIN_MS: Final = 50
_WRONG_KIND: Final = (TypeError, AttributeError, ValueError, LookupError)
"""What a value of a wrong kind leads to when a request is made of it."""


@dataclass(frozen=True, slots=True)
class ItemPlan(Generic[K, V]):
    """What to ask, whom, and how to read the answer."""

    items: Sequence[K]
    """Each once."""
    target: Callable[[K], Target]
    request: Callable[[Sequence[K]], RequestSource]
    read: Callable[[Message, Sequence[K]], Mapping[K, V | MillstreamError]]
    """What the response says of each item; raises if it says the same of all of them."""
    per_request: int = ITEMS_PER_REQUEST_MAX
    batched_from: tuple[ApiKey, int] | None = None
    """The version from which on one request takes several items; None: every version does."""


class _Item:
    """How far one item is."""

    __slots__ = ("failures", "is_under_way", "last_error", "needs_updates", "not_before_ms")

    def __init__(self) -> None:
        self.failures = 0
        self.is_under_way = False
        self.last_error: MillstreamError | None = None
        self.needs_updates = 0
        self.not_before_ms = 0


class ItemCalls(Generic[K, V]):
    """One batch under way."""

    def __init__(
        self,
        runtime: ClientRuntime,
        plan: ItemPlan[K, V],
        *,
        until_ms: int,
        on_done: Callable[[Outcomes[K, V]], None],
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._random = runtime.random
        config = runtime.config
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._since_ms = runtime.now_ms()
        self._until_ms = until_ms
        self._on_done = on_done
        self._open: dict[K, _Item] = {item: _Item() for item in plan.items}
        self._targets = {item: _target_of(item, plan) for item in plan.items}
        self._results: dict[K, V] = {}
        self._errors: dict[K, MillstreamError] = {}
        self._is_finished = False

    def start(self) -> None:
        """Begin; ends by itself."""
        self._runtime.add(self)
        self._finish_if_done()

    def poll(self, now_ms: int) -> int | None:
        """Send what can be sent, end what is over; when to look again."""
        if now_ms >= self._until_ms:
            for item in list(self._open):
                self._fail(item, self._timeout(self._open[item]))
        else:
            for node_id, items in self._placed(now_ms).items():
                size = self._batch_size(node_id, now_ms)
                for start in range(0, len(items), size) if size else ():
                    self._send(node_id, items[start : start + size], now_ms)
        self._finish_if_done()
        if self._is_finished:
            return None
        waits = [
            # Also when it is due and could not be sent: a broker is being waited for.
            each.not_before_ms if each.not_before_ms > now_ms else now_ms + _LOOK_AGAIN_MS
            for each in self._open.values()
            if not each.is_under_way
        ]
        return min([self._until_ms, *waits])

    def _placed(self, now_ms: int) -> dict[int, list[K]]:
        placed: dict[int, list[K]] = {}
        for item, state in list(self._open.items()):
            if state.is_under_way or state.not_before_ms > now_ms:
                continue
            if self._runtime.metadata.updates < state.needs_updates:
                continue
            place = self._runtime.router.locate(
                self._targets[item], now_ms, since_ms=self._since_ms
            )
            if place.error is not None:
                self._fail(item, place.error)
            elif place.node_id is not None:
                placed.setdefault(place.node_id, []).append(item)
        return placed

    def _batch_size(self, node_id: int, now_ms: int) -> int:
        """How many items a request to a broker takes; 0 while its versions are not known."""
        if self._plan.batched_from is None:
            return self._plan.per_request
        api, first = self._plan.batched_from
        network = self._runtime.network
        if not network.is_ready(node_id, now_ms) and not network.is_connected(node_id):
            return 0  # It is being connected to, and an event will tell.
        version = network.version_of(node_id, api)
        return 1 if version is None or version < first else self._plan.per_request

    def _send(self, node_id: int, items: list[K], now_ms: int) -> None:
        try:
            request = self._plan.request(items)
        except (MillstreamError, *_WRONG_KIND) as error:
            for item in items:
                self._fail(item, _told(item, error))
            return
        for item in items:
            self._open[item].is_under_way = True

        def on_done(outcome: Message | MillstreamError, done_ms: int) -> None:
            self._take(items, outcome, done_ms)

        self._runtime.network.send(node_id, request, now_ms, on_done)

    def _take(self, items: list[K], outcome: Message | MillstreamError, now_ms: int) -> None:
        told: Mapping[K, V | MillstreamError] = {}
        error: MillstreamError = UnknownServerError("the broker's answer does not mention it")
        if isinstance(outcome, MillstreamError):
            error = outcome
        else:
            try:
                told = self._plan.read(outcome, items)
            except MillstreamError as raised:
                error = raised
        for item in items:
            if item in self._open:
                self._open[item].is_under_way = False
                self._settle(item, told.get(item, error), now_ms)
        self._finish_if_done()

    def _settle(self, item: K, outcome: V | MillstreamError, now_ms: int) -> None:
        if not isinstance(outcome, MillstreamError):
            del self._open[item]
            self._results[item] = outcome
        elif self._may_go_away(item, outcome, now_ms):
            state = self._open[item]
            state.last_error = outcome
            state.failures += 1
            state.not_before_ms = now_ms + self._backoff.after(state.failures, self._random)
            state.needs_updates = self._runtime.router.note_failure(self._targets[item], outcome)
        else:
            self._fail(item, outcome)

    def _may_go_away(self, item: K, error: MillstreamError, now_ms: int) -> bool:
        target = self._targets[item]
        if target is CONTROLLER:
            # It knows: what it says of an item holds, whatever asking elsewhere might bring.
            return isinstance(error, BrokerUnreachable | NotController | ThrottlingQuotaExceeded)
        if isinstance(error, UnknownTopicOrPartition):
            # A leader may not have heard of its topic yet.
            return isinstance(target, Leader) and now_ms - self._since_ms < UNKNOWN_TOPIC_MS
        return is_retriable(error)

    def _fail(self, item: K, error: MillstreamError) -> None:
        del self._open[item]
        self._errors[item] = error

    def _timeout(self, state: _Item) -> MillstreamError:
        failure = self._runtime.metadata.failure()
        if failure is not None:
            return failure
        seconds = (self._until_ms - self._since_ms) / 1000
        if isinstance(state.last_error, BrokerUnreachable):
            return state.last_error
        reason = f": {state.last_error}" if state.last_error is not None else ""
        return OperationTimeout(f"no answer within {seconds:g} s{reason}")

    def _finish_if_done(self) -> None:
        if self._open or self._is_finished:
            return
        self._is_finished = True
        self._runtime.remove(self)
        items = self._plan.items
        self._on_done(
            Outcomes(
                {each: self._results[each] for each in items if each in self._results},
                {each: self._errors[each] for each in items if each in self._errors},
            )
        )


def _target_of(item: K, plan: ItemPlan[K, V]) -> Target:
    try:
        return plan.target(item)
    except _WRONG_KIND as error:
        raise _told(item, error) from error


def _told(item: object, error: Exception) -> MillstreamError:
    """The error of an item: its own, or that it is nothing that can be asked about."""
    if isinstance(error, MillstreamError):
        return error
    told = InvalidArgument(f"{item!r}, or what was given for it, is of a wrong kind: {error}")
    told.__cause__ = error
    return told
