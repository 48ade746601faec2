"""Calls to whoever is responsible: any broker, the controller, a leader, a coordinator.

Producers, consumers and admins say what they want answered by which `Target` and until when;
`RequestRouter` finds the broker, tries again with backoff what may succeed later, and ends each
call exactly once with the response or one error, never after its deadline. A state machine over
`NetworkClient` and `Metadata`; it never waits. Names are those of the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.client.coordinators import Coordinators
from millstream.client.targets import (
    ANY,
    CONTROLLER,
    Coordinator,
    CoordinatorKind,
    Leader,
    Node,
    Target,
)
from millstream.errors import (
    BrokerUnreachable,
    ClientClosed,
    CoordinatorNotAvailable,
    MillstreamError,
    NotController,
    NotCoordinator,
    OperationTimeout,
    UnknownTopicOrPartition,
    class_for_code,
    error_for_code,
    is_retriable,
)
from millstream.network.client.backoff import Backoff
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import API_BY_KEY
from millstream.protocol.message import Message

if TYPE_CHECKING:
    from random import Random

    from millstream.client.metadata import Metadata
    from millstream.client.metrics import ClientMeters
    from millstream.network.client.network_client import NetworkClient, OnDone, RequestSource

__all__ = [
    "ANY",
    "CONTROLLER",
    "Call",
    "Coordinator",
    "Leader",
    "Node",
    "Place",
    "RequestRouter",
    "RouterConfig",
    "Target",
]

ErrorOf: TypeAlias = Callable[[Message], int]
"""The error code in a response that decides whether the call is to be tried again."""

UNKNOWN_TOPIC_MS: Final = 2_000
"""How long a topic that nobody knows is believed to be just being made."""
_COORDINATOR_CODES: Final = frozenset({NotCoordinator.code, CoordinatorNotAvailable.code})


def top_level_error(response: Message) -> int:
    """The response's own error code; 0 if it has none."""
    return getattr(response, "error_code", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """How calls are tried again; the defaults are Kafka's."""

    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    separate_coordinators: bool = True
    """Whether coordinators have connections of their own: no heartbeat waits behind a fetch."""


class Call:
    """A call under way. `cancel` ends it without a word to whoever asked."""

    __slots__ = (
        "_on_done",
        "deadline_ms",
        "error_of",
        "failures",
        "is_under_way",
        "last_error",
        "needs_updates",
        "not_before_ms",
        "request",
        "started_ms",
        "target",
    )

    def __init__(
        self,
        request: RequestSource,
        target: Target,
        on_done: OnDone,
        error_of: ErrorOf,
        deadline_ms: int,
        now_ms: int,
    ) -> None:
        self.request = request
        self.target = target
        self._on_done: OnDone | None = on_done
        self.error_of = error_of
        self.deadline_ms = deadline_ms
        self.started_ms = now_ms
        self.not_before_ms = now_ms
        self.failures = 0
        self.needs_updates = 0
        """It is not tried again before there were so many updates of the metadata."""
        self.is_under_way = False
        self.last_error: MillstreamError | None = None

    @property
    def is_done(self) -> bool:
        """Whether it has ended or was cancelled."""
        return self._on_done is None

    @property
    def name(self) -> str:
        """What is asked, for messages."""
        request = self.request
        api = request.api if isinstance(request, VersionedRequest) else API_BY_KEY[request.KEY]
        return api.api_name

    def cancel(self) -> None:
        """Forget it; the callback is not called."""
        self._on_done = None

    def finish(self, outcome: Message | MillstreamError, now_ms: int) -> None:
        """End it; only the first end counts."""
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(outcome, now_ms)


class Place(NamedTuple):
    """Where a request can go now: to a broker, or nowhere yet, or nowhere ever."""

    node_id: int | None = None
    error: MillstreamError | None = None


class RequestRouter:
    """Calls with retries. An actor of `ClientRuntime`, after `Metadata`."""

    def __init__(
        self,
        network: NetworkClient,
        metadata: Metadata,
        config: RouterConfig,
        random: Random,
        meters: ClientMeters,
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._random = random
        self._meters = meters
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._coordinators = Coordinators(
            network, self._backoff, random, is_separate=config.separate_coordinators
        )
        self._calls: list[Call] = []

    def call(
        self,
        request: RequestSource,
        target: Target,
        on_done: OnDone,
        *,
        deadline_ms: int,
        now_ms: int,
        error_of: ErrorOf = top_level_error,
    ) -> Call:
        """Ask until there is an answer, an error that stays, or the deadline.

        A response whose `error_of` is a code that may go away is not an answer yet; every other
        response is, with whatever error it has inside.
        """
        call = Call(request, target, on_done, error_of, deadline_ms, now_ms)
        self._calls.append(call)
        self._advance(call, now_ms)
        return call

    def coordinator(self, kind: CoordinatorKind, key: str) -> int | None:
        """The node to send a group's or transaction's requests to, if known by now."""
        return self._coordinators.node_of(kind, key)

    def find_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Have the coordinator looked up, unless it is known."""
        self._coordinators.want(kind, key)

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """It has moved or gone: look it up anew when needed."""
        self._coordinators.forget(kind, key)

    def poll(self, now_ms: int) -> int | None:
        """Send what can be sent now, end what is over; when to look again."""
        for call in list(self._calls):
            self._advance(call, now_ms)
        self._calls = [each for each in self._calls if not each.is_done]
        # Afterwards: calls have just said whom they are looking for.
        next_ms = self._coordinators.poll(now_ms)
        for call in self._calls:
            due_ms = call.deadline_ms
            if not call.is_under_way and call.not_before_ms > now_ms:
                due_ms = min(due_ms, call.not_before_ms)
            next_ms = due_ms if next_ms is None else min(next_ms, due_ms)
        return next_ms

    def close(self, now_ms: int, error: ClientClosed) -> None:
        """End every call with an error."""
        calls, self._calls = self._calls, []
        for call in calls:
            call.finish(error, now_ms)

    def _advance(self, call: Call, now_ms: int) -> None:
        if call.is_done:
            return
        if now_ms >= call.deadline_ms:
            call.finish(self._timeout(call), now_ms)
            return
        if call.is_under_way or now_ms < call.not_before_ms:
            return
        if self._metadata.updates < call.needs_updates:
            return
        place = self.locate(call.target, now_ms, since_ms=call.started_ms)
        if place.error is not None:
            call.finish(place.error, now_ms)
        elif place.node_id is not None:
            self._send(call, place.node_id, now_ms)

    def locate(self, target: Target, now_ms: int, *, since_ms: int) -> Place:
        """Where a request can go now; sees to it that what is not known will be.

        `since_ms` is when the asking began: a topic or broker may be just being made.
        """
        match target:
            case Node(node_id):
                return self._locate_node(node_id)
            case Leader(topic, partition):
                return self._locate_leader(topic, partition, now_ms, since_ms)
            case Coordinator(kind, key):
                error = self._coordinators.error_of(kind, key)
                self._coordinators.want(kind, key)
                return Place(self._coordinators.node_of(kind, key), error)
            case _ if target is CONTROLLER:
                return self._locate_controller()
            case _:
                return Place(self._network.least_loaded(now_ms))

    def _locate_controller(self) -> Place:
        snapshot = self._metadata.snapshot
        if snapshot.controller_id in snapshot.brokers and self._network.knows(
            snapshot.controller_id
        ):
            return Place(snapshot.controller_id)
        self._metadata.request_update()
        return Place()

    def _locate_node(self, node_id: int) -> Place:
        if self._network.knows(node_id):
            return Place(node_id)
        known = self._metadata.snapshot.brokers
        if node_id in known or not known:
            self._metadata.request_update()  # The brokers are being looked for.
            return Place()
        listed = ", ".join(map(str, sorted(known)))
        problem = f"there is no broker {node_id}; the cluster has {listed}"
        return Place(error=BrokerUnreachable(problem))

    def _locate_leader(self, topic: str, partition: int, now_ms: int, since_ms: int) -> Place:
        self._metadata.borrow([topic])
        snapshot = self._metadata.snapshot
        leader = snapshot.leader(topic, partition)
        if leader is not None and self._network.knows(leader.leader_id):
            return Place(leader.leader_id)
        self._metadata.request_update()
        found = snapshot.topics.get(topic)
        if found is None:
            return Place()
        if found.error is not None and not found.error.retriable:
            return Place(error=found.error)
        is_unknown = isinstance(found.error, UnknownTopicOrPartition) or (
            found.error is None and partition >= len(found.partitions)
        )
        if is_unknown and now_ms - since_ms >= UNKNOWN_TOPIC_MS:
            return Place(error=UnknownTopicOrPartition(f"there is no {topic}-{partition}"))
        return Place()

    def _send(self, call: Call, node_id: int, now_ms: int) -> None:
        call.is_under_way = True

        def on_done(outcome: Message | MillstreamError, done_ms: int) -> None:
            call.is_under_way = False
            if call.is_done:
                return  # Its deadline passed, or nobody wants it any more.
            if isinstance(outcome, MillstreamError):
                self._on_error(call, outcome, done_ms)
                return
            code = call.error_of(outcome)
            if code and class_for_code(code).retriable:
                self._on_error(call, error_for_code(code), done_ms)
            else:
                call.finish(outcome, done_ms)

        self._network.send(node_id, call.request, now_ms, on_done)

    def _on_error(self, call: Call, error: MillstreamError, now_ms: int) -> None:
        if not is_retriable(error):
            call.finish(error, now_ms)
            return
        call.last_error = error
        call.failures += 1
        self._meters.retries += 1
        call.not_before_ms = now_ms + self._backoff.after(call.failures, self._random)
        call.needs_updates = self.note_failure(call.target, error)

    def note_failure(self, target: Target, error: MillstreamError) -> int:
        """See to it that the next try goes to the right broker.

        Gives the number of metadata updates that the next try should wait for.
        """
        is_lost = isinstance(error, BrokerUnreachable)
        if isinstance(target, Coordinator):
            if is_lost or getattr(error, "code", 0) in _COORDINATOR_CODES:
                self._coordinators.forget(target.kind, target.key)
            return 0
        if isinstance(error, NotController) or getattr(error, "refreshes_metadata", False):
            return self._metadata.request_update()
        if is_lost:
            self._metadata.request_update()
        return 0

    def _timeout(self, call: Call) -> MillstreamError:
        failure = self._metadata.failure()
        if failure is not None:
            return failure
        seconds = (call.deadline_ms - call.started_ms) / 1000
        reason = f": {call.last_error}" if call.last_error is not None else ""
        return OperationTimeout(f"{call.name}: no answer within {seconds:g} s{reason}")
