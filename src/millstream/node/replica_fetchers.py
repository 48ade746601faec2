"""Carries the requests of a broker's followers to their leaders, and the answers back.

Each index of `num.replica.fetchers` is a purpose with connections of its own, one to each leader,
and one request at a time on each: an answer may take `replica.fetch.wait.max.ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import BrokerUnreachable
from millstream.network.client.config import NetworkClientConfig
from millstream.node.peer_client import PeerClient

if TYPE_CHECKING:
    from millstream.errors import MillstreamError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.node.environment import Environment
    from millstream.node.timers import Timers
    from millstream.protocol.message import Message
    from millstream.replica.config import ReplicaConfig
    from millstream.replica.replica_fetcher import ReplicaFetcher
    from millstream.replica.replica_fetchers import ReplicaFetchers

RECONNECT_MS = 50


class FetcherDriver:
    """Between the fetchers of a broker and the network."""

    def __init__(
        self,
        config: ReplicaConfig,
        fetchers: ReplicaFetchers,
        metadata: KRaftMetadataCache,
        environment: Environment,
        timers: Timers,
        *,
        broker_id: int,
        listener: str,
    ) -> None:
        """`listener` is the one by which brokers reach each other."""
        self._fetchers = fetchers
        self._metadata = metadata
        self._clock = environment.clock
        self._listener = listener
        self._timeout_ms = config.replica_socket_timeout_ms
        self._is_closed = False
        self._alarm = timers.alarm(self._pump)
        self._clients = [
            PeerClient(
                environment,
                NetworkClientConfig(
                    client_id=f"broker-{broker_id}-fetcher-{index}",
                    reconnect_backoff_ms=RECONNECT_MS,
                    max_in_flight=1,
                ),
                timers,
            )
            for index in range(config.num_replica_fetchers)
        ]
        fetchers.on_ready = self._soon

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        for client in self._clients:
            client.close()

    def _soon(self) -> None:
        """A change of the metadata may concern a thousand partitions: ask when it is done."""
        if not self._is_closed:
            self._alarm.advance(self._clock.monotonic_ms())

    def _pump(self) -> None:
        """Send what there is to send; wake up when there is more."""
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        deadlines = []
        for key, fetcher in self._fetchers.by_key:
            self._send(fetcher, key[1], now_ms)
            if self._fetchers.drop_idle(key):
                continue
            deadline_ms = fetcher.next_deadline_ms()
            if deadline_ms is not None:
                deadlines.append(deadline_ms)
        if deadlines:
            self._alarm.advance(min(deadlines))

    def _send(self, fetcher: ReplicaFetcher, index: int, now_ms: int) -> None:
        request = fetcher.take_request(now_ms)
        if request is None:
            return
        leader = self._metadata.broker(fetcher.leader_id)
        endpoint = None if leader is None else leader.listeners.get(self._listener)
        if endpoint is None:
            problem = f"broker {fetcher.leader_id} has no listener {self._listener}"
            self._answered(fetcher, BrokerUnreachable(problem), now_ms)
            return
        self._clients[index].send(
            fetcher.leader_id,
            endpoint.host,
            endpoint.port,
            request,
            lambda answer, at_ms: self._answered(fetcher, answer, at_ms),
            timeout_ms=self._timeout_ms,
        )

    def _answered(
        self, fetcher: ReplicaFetcher, answer: Message | MillstreamError, now_ms: int
    ) -> None:
        if not self._is_closed:
            fetcher.answered(answer, now_ms)
            self._soon()
