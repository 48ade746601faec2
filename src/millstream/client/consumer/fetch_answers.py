"""What the answer to a fetch means for each partition: batches, jumps, errors, other replicas.

`Fetcher` hands answers over; batches go to the `FetchBuffer`, positions move on in the
`SubscriptionState`. Which error leads to what is decided here and nowhere else.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.client.consumer.completed_fetches import Failed
from millstream.client.consumer.subscription_state import Phase
from millstream.client.metadata import Broker
from millstream.client.metrics import Meter
from millstream.errors import (
    ApiError,
    MessageTooLarge,
    MillstreamError,
    OffsetOutOfRange,
    TopicAuthorizationFailed,
    UnknownServerError,
    class_for_code,
    error_for_code,
)
from millstream.records.fetched import fetched_batches
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.fetch_buffer import FetchBuffer
    from millstream.client.consumer.fetcher import Wanted
    from millstream.client.consumer.positions import Positions
    from millstream.client.consumer.subscription_state import PartitionState, SubscriptionState
    from millstream.client.metadata import Metadata
    from millstream.protocol.messages import FetchResponse
    from millstream.protocol.messages.fetch import PartitionData
    from millstream.records.kernel import FetchedBatches
    from millstream.types import Headers

    Deserialize = Callable[[str, bytes, Headers], object]

_logger: Final = logging.getLogger(__name__)


class FetchAnswers:
    """Takes answers apart."""

    def __init__(
        self,
        config: ConsumerConfig,
        metadata: Metadata,
        state: SubscriptionState,
        buffer: FetchBuffer,
        positions: Positions,
        *,
        key_deserializer: Deserialize | None = None,
        value_deserializer: Deserialize | None = None,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._state = state
        self._buffer = buffer
        self._positions = positions
        self._namespace = config.names
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self.fetched = Meter()
        """Bytes of records that have come."""

    def take(
        self,
        node_id: int,
        answer: FetchResponse,
        asked: Mapping[TopicPartition, Wanted],
        now_ms: int,
    ) -> list[TopicPartition]:
        """Use an answer; the partitions about which the fetcher has to think again."""
        seen = self._take_all(node_id, answer, asked, now_ms)
        if seen:
            self._buffer.announce()
        return seen

    def _take_all(
        self,
        node_id: int,
        answer: FetchResponse,
        asked: Mapping[TopicPartition, Wanted],
        now_ms: int,
    ) -> list[TopicPartition]:
        seen: list[TopicPartition] = []
        for topic in answer.responses:
            name = topic.topic or self._name_of(topic.topic_id)
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                what = asked.get(partition)
                state = None if what is None else self._state.current(partition, what.run)
                if what is None or state is None or state.offset != what.offset:
                    continue  # The application has moved on since.
                seen.append(partition)
                if data.error_code:
                    self._learn_leader(answer, state, data, now_ms)
                    self._on_error(node_id, state, data.error_code, now_ms)
                else:
                    self._on_data(node_id, state, data, now_ms)
        return seen

    def _name_of(self, topic_id: object) -> str:
        topic = self._metadata.snapshot.topic_by_id(topic_id)  # type: ignore[arg-type]
        return "" if topic is None else topic.name

    # ---- records ----

    def _on_data(
        self, node_id: int, state: PartitionState, data: PartitionData, now_ms: int
    ) -> None:
        state.failures = 0
        end = data.last_stable_offset if self._config.reads_committed else data.high_watermark
        if end >= 0:
            self._buffer.learn_end(state.partition, state.run, end)
        if data.preferred_read_replica >= 0:
            state.preferred_replica = data.preferred_read_replica
            state.preferred_until_ms = now_ms + self._config.metadata_max_age_ms
            return
        if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            diverging = data.diverging_epoch
            self._positions.on_diverged(state, diverging.epoch, diverging.end_offset, now_ms)
        elif data.records:
            self._on_records(state, data, now_ms)

    def _on_records(self, state: PartitionState, data: PartitionData, now_ms: int) -> None:
        try:
            batches = self._batches(state, data)
        except MillstreamError as error:
            self._fail(state, error)
            return
        if batches.is_cut_off:
            self._fail(state, self._too_large(state))
            return
        self.fetched.add(batches.size, now_ms)
        state.offset = batches.end_offset
        state.last_epoch = batches.end_epoch
        self._buffer.put(state.partition, state.run, batches, announces=False)

    def _batches(self, state: PartitionState, data: PartitionData) -> FetchedBatches:
        assert data.records is not None
        topic = state.partition.topic
        aborted = None
        if self._config.reads_committed and data.aborted_transactions:
            aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions]
        return fetched_batches(
            data.records,
            self._namespace.shown(topic),
            state.partition.partition,
            state.offset,
            check_crc=self._config.check_crcs,
            aborted=aborted,
            key_deserializer=self._key_deserializer,
            value_deserializer=self._value_deserializer,
        )

    def _too_large(self, state: PartitionState) -> MessageTooLarge:
        return MessageTooLarge(
            f"{state.partition}: the batch at offset {state.offset} is larger than "
            f"max_partition_fetch_bytes={self._config.max_partition_fetch_bytes} and the broker "
            "sends no larger one; raise the setting"
        )

    # ---- errors ----

    def _learn_leader(
        self, answer: FetchResponse, state: PartitionState, data: PartitionData, now_ms: int
    ) -> None:
        """Newer brokers say with the error who leads instead (KIP-951)."""
        leader = data.current_leader
        if leader is None or leader.leader_id < 0 or leader.leader_epoch < 0:
            return
        endpoint = next(
            (
                Broker(each.node_id, each.host, each.port, each.rack)
                for each in answer.node_endpoints
                if each.node_id == leader.leader_id
            ),
            None,
        )
        self._metadata.learn_leader(
            state.partition.topic,
            state.partition.partition,
            leader.leader_id,
            leader.leader_epoch,
            endpoint,
            now_ms,
        )

    def _on_error(self, node_id: int, state: PartitionState, code: int, now_ms: int) -> None:
        leader = self._metadata.snapshot.leader(state.partition.topic, state.partition.partition)
        if state.preferred_replica >= 0:
            # Whatever a follower cannot do, the leader is asked to do.
            state.preferred_replica = -1
            if leader is not None and leader.leader_id != node_id:
                return
        kind = class_for_code(code)
        if code == OffsetOutOfRange.code:
            self._positions.on_out_of_range(state, now_ms)
        elif kind.refreshes_metadata or kind.retriable or code == UnknownServerError.code:
            self._retry_later(state, kind, now_ms)
        else:
            self._fail(state, _explained(state, code))

    def _retry_later(self, state: PartitionState, kind: type[ApiError], now_ms: int) -> None:
        _logger.debug("%s: %s, trying again", state.partition, kind.wire_name)
        state.failures += 1
        state.not_before_ms = now_ms + self._positions.backoff_ms(state.failures)
        self._metadata.request_update()

    def _fail(self, state: PartitionState, error: MillstreamError) -> None:
        state.phase = Phase.FAILED
        self._buffer.put(state.partition, state.run, Failed(error))


def _explained(state: PartitionState, code: int) -> ApiError:
    if code == TopicAuthorizationFailed.code:
        return TopicAuthorizationFailed(f"not allowed to read topic {state.partition.topic!r}")
    return error_for_code(code, f"{state.partition}: {error_for_code(code)}")
