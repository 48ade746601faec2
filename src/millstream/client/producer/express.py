"""`Express`: partitions whose batches the sockets' thread takes and sends by itself.

A batch that is full or has lingered then leaves on time, whatever Python is doing. The Sender sends
the first batch of a partition; once all is well there, the lane is opened, and closed again at
anything unusual: an error, a new leader, a lost connection, a throttled broker, a new producer
epoch. Answers are read by the Sender as ever. Only the I/O thread calls it; the rules are in
`_accel/client/produce_lanes.h`. Transactions, compression and acks=0 are for the Sender alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.client.producer import kernel
from millstream.client.producer.lane import NO_NODE, NOBODY
from millstream.client.producer.native_accumulator import NativeAccumulator
from millstream.client.producer.produce_exchange import (
    Produced,
    Sent,
    build_request,
    choose_version,
    topic_ids,
)
from millstream.network.express_requests import ExpressRequest
from millstream.protocol.api import ApiKey
from millstream.records.layout import NO_SEQUENCE

if TYPE_CHECKING or kernel.COMPILED:
    from millstream._accel.client.partition_queues import read_produced

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.metadata import Metadata
    from millstream.client.producer.lane import Lane
    from millstream.client.producer.numbering import Numbering
    from millstream.client.producer.record_accumulator import RecordAccumulator
    from millstream.client.producer.sender_config import SenderConfig
    from millstream.client.producer.settlement import Settlement
    from millstream.client.producer.topics import TopicRegistry
    from millstream.errors import MillstreamError
    from millstream.network.client_selector import Answered, ClientSelector
    from millstream.network.network_client import NetworkClient
    from millstream.protocol.message import Message
    from millstream.types import ReadableBuffer, Uuid

_FLEXIBLE_FROM: Final = 9
_END_BYTES: Final = 4
"""How a request ends whose only topic has no partitions: with their number, as 32 bits."""
_FLEXIBLE_END_BYTES: Final = 3
"""The same with tagged fields: their number in one byte, no tags of the topic, none at all."""


class _Claimed(NamedTuple):
    """A request that the sockets' thread has sent."""

    version: int
    batches: list[Sent]
    connection_id: int


class Express:
    """The open lanes of a producer."""

    class Parts(NamedTuple):
        """What it shares with the Sender, whose `on_answer` reads the answers."""

        network: NetworkClient
        metadata: Metadata
        topics: TopicRegistry
        config: SenderConfig
        numbering: Numbering | None
        settlement: Settlement
        on_answer: Callable[[list[Sent], dict[str, Uuid], Message | MillstreamError, int], None]

    def __init__(self, accumulator: NativeAccumulator, parts: Parts) -> None:
        self._accumulator = accumulator
        self._network = parts.network
        self._metadata = parts.metadata
        self._topics = parts.topics
        self._config = parts.config
        self._numbering = parts.numbering
        self._settlement = parts.settlement
        self._on_answer = parts.on_answer
        self._open: dict[Lane, int] = {}
        """The connection of each lane that is open."""
        self._claimed: dict[int, _Claimed] = {}
        """Requests that were sent and whose event has not been seen, by correlation id."""
        self._topic_numbers: dict[tuple[str, int, Uuid], int] = {}
        parts.network.express.find = self._take
        parts.network.express.settle = self._settle_all

    # ---- which lanes are open ----

    def holds(self, lane: Lane, now_ms: int) -> bool:
        """Whether the Sender must not take the lane's batches: it is open, or will be soon."""
        return lane in self._open or (
            lane.sent_count > 0 and not lane.retries and self._connection_for(lane, now_ms) != 0
        )

    def settled(self, lane: Lane, now_ms: int) -> None:
        """A batch of the lane is done: open it, if there is nothing else to wait for."""
        if lane not in self._open and lane.sent_count == 0:
            connection_id = self._connection_for(lane, now_ms)
            if connection_id:
                self._open_lane(lane, connection_id)

    def check(self, now_ms: int) -> None:
        """Close lanes whose connection is lost, or whose broker wants to be left alone."""
        for lane, connection_id in list(self._open.items()):
            if self._network.express_connection(lane.node_id, now_ms) != connection_id:
                self.close(lane)

    def close(self, lane: Lane) -> None:
        """The Sender goes on with this lane. Fine if it is not open."""
        if lane in self._open:
            self._accumulator.close_lane(lane.queue)
            self._claim()
            del self._open[lane]

    def close_all(self) -> None:
        """The Sender goes on with all lanes."""
        for lane in list(self._open):
            self.close(lane)

    def _close_connection(self, connection_id: int) -> None:
        """Something was unusual: the sockets' thread has shut all lanes that were opened there.

        Their leaders may have changed since: what counts is the connection.
        """
        for each in [each for each, opened_on in self._open.items() if opened_on == connection_id]:
            self.close(each)

    def _connection_for(self, lane: Lane, now_ms: int) -> int:
        """The connection that a lane could be opened on; 0 if it cannot."""
        if lane.retries or lane.is_unresolved or lane.node_id == NO_NODE:
            return 0
        numbering = self._numbering
        if numbering is not None and (
            lane.identity != numbering.identity or not numbering.may_begin(lane)
        ):
            return 0
        return self._network.express_connection(lane.node_id, now_ms)

    def _open_lane(self, lane: Lane, connection_id: int) -> None:
        topics = topic_ids([Sent(lane, None)], self._metadata.snapshot)  # type: ignore[arg-type]  # Only the lane's topic is asked.
        offered = self._network.version_of(lane.node_id, ApiKey.PRODUCE)
        if offered is None:
            return
        version = choose_version(offered, topics, is_transactional=False, is_implicit=False)
        number = self._topic_numbers.setdefault(
            (lane.wire_topic, version, topics[lane.wire_topic]), len(self._topic_numbers)
        )
        identity = lane.identity if self._numbering is not None else NOBODY
        if self._accumulator.open_lane(
            lane.queue,
            connection_id,
            version,
            number,
            self._head(lane, version, topics),
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            sequence=NO_SEQUENCE if self._numbering is None else lane.next_sequence,
        ):
            self._open[lane] = connection_id

    def _head(self, lane: Lane, version: int, topics: dict[str, Uuid]) -> bytes:
        request = build_request([], topics, self._config, empty=lane.wire_topic)
        body = b"".join(request.encode_parts(version))
        end = _FLEXIBLE_END_BYTES if version >= _FLEXIBLE_FROM else _END_BYTES
        return self._network.express.head(ApiKey.PRODUCE, version, body[:-end])

    # ---- what was sent ----

    def _take(self, correlation_id: int) -> ExpressRequest | None:
        """A request was sent: who waits for its answer; None if nobody does."""
        claimed = self._claimed_as(correlation_id)
        if claimed is None:
            return None
        del self._claimed[correlation_id]
        version, batches, connection_id = claimed
        topics = topic_ids(batches[:1], self._metadata.snapshot)  # They are of one topic.

        def on_done(answer: Message | MillstreamError, now_ms: int) -> None:
            self._close_connection(connection_id)
            self._on_answer(batches, topics, answer, now_ms)

        def take(frame: ReadableBuffer, now_ms: int) -> bool | None:
            produced = _matched(batches, read_produced(frame, version))
            return None if produced is None else self._settle(produced, now_ms)

        timeout_ms = self._config.request_timeout_ms
        return ExpressRequest(ApiKey.PRODUCE, version, timeout_ms, on_done, take)

    def _settle_all(self, answered: list[Answered], now_ms: int) -> tuple[int, bool]:
        """Settle what is as it should be, up to the first answer that is not."""
        produced: list[Produced] = []
        count = 0
        for event in answered:
            claimed = self._claimed_as(event.correlation_id)
            if claimed is None:
                break
            version, batches, _ = claimed
            matched = _matched(batches, read_produced(event.frame, version))
            if matched is None:
                break
            del self._claimed[event.correlation_id]
            produced += matched
            count += 1
        return count, self._settle(produced, now_ms)

    def _settle(self, produced: list[Produced], now_ms: int) -> bool:
        """Batches are where they should be. Whether the Sender can be left alone."""
        self._settlement.acknowledge_all(produced)
        is_all = True
        for lane, *_ in produced:
            if lane not in self._open:
                is_all = False
                self.settled(lane, now_ms)
        return is_all

    def _claimed_as(self, correlation_id: int) -> _Claimed | None:
        """What a request was; None if there is none."""
        if correlation_id not in self._claimed:
            self._claim()
            if correlation_id not in self._claimed:
                self._accumulator.note_dispatched()
                self._claim()
        return self._claimed.get(correlation_id)

    def _claim(self) -> None:
        """Make every batch that was taken the Sender's, as if it had sent it."""
        for correlation_id, version, taken in self._accumulator.take_dispatched():
            batches = []
            for queue, batch, sequence in taken:
                lane: Lane = queue.lane
                batch.lane = lane
                if self._numbering is not None:
                    assert sequence == lane.next_sequence
                    self._numbering.assign(lane, batch)
                lane.sent_count += 1
                batch.note_sending(lane.leader_epoch)
                self._topics.keep(lane.wire_topic)
                if batch.is_done and self._numbering is not None:
                    # It timed out in the moment when it was taken.
                    self._numbering.on_failed(lane, batch, is_refused=False)
                batches.append(Sent(lane, batch))
            connection_id = self._open[batches[0].lane]
            self._claimed[correlation_id] = _Claimed(version, batches, connection_id)


def _matched(
    batches: list[Sent], answer: list[tuple[int, int, int]] | None
) -> list[Produced] | None:
    """Where each batch is; None if the answer does not tell of all of them, and of no other."""
    if answer is None or len(answer) != len(batches):
        return None
    produced: list[Produced] = []
    for (lane, batch), (partition, base_offset, log_append_time) in zip(
        batches, answer, strict=True
    ):
        if partition != lane.partition:
            return None
        produced.append(Produced(lane, batch, base_offset, log_append_time))
    return produced


def open_express(
    accumulator: RecordAccumulator,
    selector: ClientSelector,
    parts: Express.Parts,
    max_in_flight: int,
) -> Express | None:
    """Express lanes, if accumulator and selector are the compiled ones and the settings allow."""
    config = parts.config
    if config.compression or config.transactional_id is not None or config.acks == 0:
        return None
    if not isinstance(accumulator, NativeAccumulator):
        return None
    from millstream._accel.client.client_selector import SelectorCore

    if not isinstance(selector, SelectorCore) or not accumulator.attach(
        selector, request_size_max=config.request_size_max, max_in_flight=max_in_flight
    ):
        return None
    return Express(accumulator, parts)
