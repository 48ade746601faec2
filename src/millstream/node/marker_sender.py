"""Brings the ends of transactions to their partitions: the hands of `MarkerQueue`.

The transaction coordinator hands in what it has decided, and is told when all partitions know it.
A partition that this broker leads is written to directly; the leaders of others get
WriteTxnMarkers, one request at a time with all that came up meanwhile.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from millstream.coordinator.transaction.markers import MarkerQueue
from millstream.errors import (
    NO_ERROR,
    ApiError,
    LeaderNotAvailable,
    UnknownServerError,
    error_for_code,
)
from millstream.node.peer_calls import PeerCalls
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from millstream.server.txn_markers import Marker
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from millstream.clock import Clock
    from millstream.coordinator.transaction.markers import MarkersDue
    from millstream.coordinator.transaction.ports import EndedTransaction
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.node.peer_calls import PeerContext
    from millstream.protocol.message import Message
    from millstream.server.txn_markers import MarkerWriter

    Results = list[tuple[TopicPartition, ApiError | None]]


class Ending(NamedTuple):
    """The end of a transaction for those of its partitions that one broker leads."""

    leader_id: int
    due: MarkersDue
    partitions: tuple[TopicPartition, ...]


class BrokerMarkerSender:
    """A `coordinator.transaction.ports.MarkerSender`."""

    def __init__(
        self,
        metadata: KRaftMetadataCache,
        writer: MarkerWriter,
        context: PeerContext,
        on_written: Callable[[EndedTransaction], None],
    ) -> None:
        """`on_written` hears of complete ends."""
        self._metadata = metadata
        self._clock: Clock = context.clock
        self._arm = context.arm
        self._on_written = on_written
        self._queue = MarkerQueue()
        self._calls = PeerCalls(_MarkerApi(writer), context, context.make_peers())

    def send(self, ended: EndedTransaction) -> None:
        """Write the markers, as far as that can be done now; the rest later."""
        self._queue.add(ended, self._clock.monotonic_ms())
        self.tick()

    def forget(self, coordinator_partition: int) -> None:
        """Another broker ends these transactions."""
        self._queue.forget(coordinator_partition)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        return self._queue.next_deadline_ms()

    def tick(self) -> None:
        """Write what is due."""
        for due in self._queue.take_due(self._clock.monotonic_ms()):
            self._write(due)

    def close(self) -> None:
        """Tell nobody any more: the next coordinator will."""
        self._calls.close()

    def _write(self, due: MarkersDue) -> None:
        known: Results = []
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in due.partitions:
            leader_id = self._metadata.leader_of(each.topic, each.partition)
            if self._metadata.partition(each.topic, each.partition) is None:
                known.append((each, None))  # The topic is gone, and with it the transaction.
            elif leader_id is None:
                known.append((each, LeaderNotAvailable(f"{each} has no leader now")))
            else:
                by_leader.setdefault(leader_id, []).append(each)
        if known or not due.partitions:
            self._written(due, known)
        for leader_id, partitions in by_leader.items():
            # An answer that comes at once may have ended it for all: somebody newer is at work.
            if self._queue.is_current(due):
                ending = Ending(leader_id, due, tuple(partitions))
                self._calls.ask(ending, partial(self._answered, ending))

    def _answered(self, ending: Ending, outcome: Results | ApiError) -> None:
        if isinstance(outcome, ApiError):
            outcome = [(each, outcome) for each in ending.partitions]
        self._written(ending.due, outcome)

    def _written(self, due: MarkersDue, results: Results) -> None:
        if self._queue.written(due, results, self._clock.monotonic_ms()):
            self._on_written(due.ended)
        deadline_ms = self._queue.next_deadline_ms()
        if deadline_ms is not None:
            self._arm(deadline_ms)


class _MarkerApi:
    """A `PeerApi`: the ends of transactions. Trying again is the queue's, which routes anew."""

    def __init__(self, writer: MarkerWriter) -> None:
        self._writer = writer

    def broker_of(self, asked: Ending) -> int:
        """The leader when the marker became due."""
        return asked.leader_id

    def group_of(self, asked: Ending) -> Hashable:
        """All go together."""
        return None

    def key_of(self, asked: Ending) -> Hashable:
        """A response has results by producer id."""
        return asked.leader_id, asked.due.ended.producer.producer_id

    def ask_here(self, asked: Ending, done: Callable[[Results | ApiError], None]) -> None:
        """Write them to the logs of this broker."""
        ended = asked.due.ended
        marker = Marker(
            ended.producer, ended.coordinator_epoch, ended.is_commit, ended.transaction_version
        )
        self._writer.write(marker, asked.partitions, done)

    def request(self, asked: Sequence[Ending]) -> WriteTxnMarkersRequest:
        """A marker for each."""
        return WriteTxnMarkersRequest(markers=[_marker(each) for each in asked])

    def outcomes(self, asked: Sequence[Ending], response: Message) -> list[Results | ApiError]:
        """What became of each partition."""
        assert isinstance(response, WriteTxnMarkersResponse)
        codes = {
            (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): (
                partition.error_code
            )
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        }
        found: list[Results | ApiError] = []
        for each in asked:
            producer_id = each.due.ended.producer.producer_id
            results = [(name, _error(codes.get((producer_id, name)))) for name in each.partitions]
            found.append(results)
        return found


def _marker(ending: Ending) -> WritableTxnMarker:
    ended = ending.due.ended
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for each in ending.partitions:
        topic = topics.setdefault(each.topic, WritableTxnMarkerTopic(name=each.topic))
        topic.partition_indexes.append(each.partition)
    return WritableTxnMarker(
        producer_id=ended.producer.producer_id,
        producer_epoch=ended.producer.producer_epoch,
        transaction_result=ended.is_commit,
        topics=list(topics.values()),
        coordinator_epoch=ended.coordinator_epoch,
        transaction_version=ended.transaction_version,
    )


def _error(code: int | None) -> ApiError | None:
    if code is None:
        return UnknownServerError("the leader did not answer for the partition")
    return None if code == NO_ERROR else error_for_code(code)
