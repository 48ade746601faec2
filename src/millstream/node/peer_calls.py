"""Asks the broker that is responsible, this one or another, with the same answer from both.

The hands of `coordinator.broker_calls`. What is particular to a question is its `PeerApi`: which
broker answers it, how this broker does so itself, and the request and response on the wire.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from millstream.coordinator.broker_calls import BrokerCalls, Call
from millstream.coordinator.routing import partition_for
from millstream.errors import (
    ApiError,
    BrokerUnreachable,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaStorageError,
    LeaderNotAvailable,
    MillstreamError,
    NetworkException,
    NotCoordinator,
    NotLeaderOrFollower,
    UnsupportedVersion,
)
from millstream.network.client.backoff import Backoff
from millstream.network.client.config import NetworkClientConfig
from millstream.node.peer_client import PeerClient

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from random import Random

    from millstream.clock import Clock
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.node.environment import Environment
    from millstream.node.timers import Timers
    from millstream.protocol.message import Message

A = TypeVar("A")
R = TypeVar("R")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

REQUEST_TIMEOUT_MS: Final = 30_000
TRIES_MAX: Final = 9
_PAUSE: Final = Backoff(50, 30_000)
"""With as many tries as that, a question waits for 13 s until somebody answers it."""
_RECONNECT_MS: Final = 50
_PASSING: Final = (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaStorageError,
    LeaderNotAvailable,
    NetworkException,
    NotCoordinator,
    NotLeaderOrFollower,
)
"""Another broker answers soon, or the same one."""


class Peers(Protocol):
    """Other brokers, for requests of one purpose."""

    def send(
        self,
        broker_id: int,
        request: Message,
        done: Callable[[Message | MillstreamError], None],
    ) -> None:
        """`done` gets the response or one error, once."""
        ...

    def close(self) -> None:
        """Give everything up."""
        ...


class BrokerPeers:
    """`Peers` on the network: brokers by the listener that they have for each other."""

    def __init__(
        self,
        node_id: int,
        environment: Environment,
        timers: Timers,
        metadata: KRaftMetadataCache,
        listener: str,
    ) -> None:
        self._metadata = metadata
        self._listener = listener
        config = NetworkClientConfig(client_id=str(node_id), reconnect_backoff_ms=_RECONNECT_MS)
        self._client = PeerClient(environment, config, timers)

    def send(
        self,
        broker_id: int,
        request: Message,
        done: Callable[[Message | MillstreamError], None],
    ) -> None:
        """See `Peers`."""
        endpoint = self._metadata.broker_endpoint(broker_id, self._listener)
        if endpoint is None:
            done(BrokerUnreachable(f"broker {broker_id} has no listener {self._listener} now"))
            return
        self._client.send(
            broker_id,
            endpoint.host,
            endpoint.port,
            request,
            lambda result, _now_ms: done(result),
            timeout_ms=REQUEST_TIMEOUT_MS,
        )

    def close(self) -> None:
        """See `Peers`."""
        self._client.close()


class PeerApi(Protocol[A_contra, R_co]):
    """One kind of question."""

    def broker_of(self, asked: A_contra) -> int | ApiError:
        """The broker that answers, or why there is none now."""
        ...

    def group_of(self, asked: A_contra) -> Hashable:
        """Only questions of one group go together in a request."""
        ...

    def key_of(self, asked: A_contra) -> Hashable:
        """No two questions of one key go together."""
        ...

    def ask_here(self, asked: A_contra, done: Callable[[R_co | ApiError], None]) -> None:
        """This broker is the one."""
        ...

    def request(self, asked: Sequence[A_contra]) -> Message:
        """The questions for another broker."""
        ...

    def outcomes(self, asked: Sequence[A_contra], response: Message) -> Sequence[R_co | ApiError]:
        """Its answers, one for each question."""
        ...


class PeerContext(NamedTuple):
    """What all calls of a broker need."""

    node_id: int
    make_peers: Callable[[], Peers]
    clock: Clock
    random: Random
    arm: Callable[[int], object]
    """Asks for a `tick` at a monotonic time."""


class PeerCalls(Generic[A, R]):
    """The questions of one kind."""

    def __init__(
        self, api: PeerApi[A, R], context: PeerContext, peers: Peers, *, tries_max: int = 1
    ) -> None:
        self._api = api
        self._node_id = context.node_id
        self._clock = context.clock
        self._arm = context.arm
        self._peers = peers
        self._is_ticking = False
        self._is_closed = False
        self._calls: BrokerCalls[A, R] = BrokerCalls(
            api.key_of,
            tries_max=tries_max,
            wait_ms=lambda failures: _PAUSE.after(failures, context.random),
        )

    def ask(self, asked: A, done: Callable[[R | ApiError], None]) -> None:
        """`done` is called exactly once, perhaps before the return."""
        call: Call[A, R] = Call(asked, done, self._clock.monotonic_ms())
        if self._is_closed:
            done(_stopping())
        elif self._api.broker_of(asked) == self._node_id and not self._calls.is_pending(asked):
            # This broker keeps its own calls in order, and collects them too.
            self._api.ask_here(asked, partial(self._answered_here, call))
        else:
            self._calls.add(call)
            self.tick()

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        return self._calls.next_deadline_ms()

    def tick(self) -> None:
        """Ask what is due."""
        if self._is_ticking:
            return  # What an answer has brought about is seen by the turn that it came in.
        self._is_ticking = True
        try:
            while calls := self._calls.take_unrouted(self._clock.monotonic_ms()):
                for call in calls:
                    self._route(call)
        finally:
            self._is_ticking = False
        for destination, batch in self._calls.take_batches():
            self._send(destination, batch)

    def close(self) -> None:
        """Nobody is asked any more."""
        self._is_closed = True
        self._peers.close()
        for call in self._calls.take_all():
            call.done(_stopping())

    def _route(self, call: Call[A, R]) -> None:
        broker_id = self._api.broker_of(call.asked)
        if isinstance(broker_id, ApiError):
            self._finish(call, broker_id)
        elif broker_id == self._node_id:
            self._api.ask_here(call.asked, partial(self._finish, call))
        else:
            self._calls.collect((broker_id, self._api.group_of(call.asked)), call)

    def _send(self, destination: Hashable, batch: list[Call[A, R]]) -> None:
        assert isinstance(destination, tuple)
        broker_id, _ = destination
        request = self._api.request([call.asked for call in batch])
        self._peers.send(broker_id, request, partial(self._answered, destination, batch))

    def _answered(
        self, destination: Hashable, batch: list[Call[A, R]], result: Message | MillstreamError
    ) -> None:
        if self._is_closed:
            return
        self._calls.answered(destination)
        if isinstance(result, MillstreamError):
            problem = _problem(result)
            for call in batch:
                self._finish(call, problem)
        else:
            outcomes = self._api.outcomes([call.asked for call in batch], result)
            for call, outcome in zip(batch, outcomes, strict=True):
                self._finish(call, outcome)
        self.tick()

    def _answered_here(self, call: Call[A, R], outcome: R | ApiError) -> None:
        if not self._is_tried_again(call, outcome, self._calls.add_failed):
            call.done(outcome)

    def _finish(self, call: Call[A, R], outcome: R | ApiError) -> None:
        if self._is_closed:
            return  # It has been told.
        if not self._is_tried_again(call, outcome, self._calls.try_again):
            self._calls.finished(call)
            call.done(outcome)
            self.tick()

    def _is_tried_again(
        self,
        call: Call[A, R],
        outcome: R | ApiError,
        try_again: Callable[[Call[A, R], int], bool],
    ) -> bool:
        if self._is_closed or not isinstance(outcome, _PASSING):
            return False
        is_tried = try_again(call, self._clock.monotonic_ms())
        if is_tried:
            self._arm(call.due_ms)
        return is_tried


def _stopping() -> ApiError:
    return NotCoordinator("this broker is stopping")


def _problem(error: MillstreamError) -> ApiError:
    """Why a broker did not answer, as an answer."""
    if isinstance(error, UnsupportedVersion):
        return error
    return NetworkException(str(error))


def coordinator_of(metadata: KRaftMetadataCache, topic: str, key: str) -> int | ApiError:
    """The broker that coordinates what has this key."""
    count = metadata.partition_count(topic)
    if not count:
        return CoordinatorNotAvailable(f"{topic} does not exist yet")
    leader_id = metadata.leader_of(topic, partition_for(key, count))
    if leader_id is None:
        return CoordinatorNotAvailable(f"the coordinator of {key!r} is not there now")
    return leader_id
