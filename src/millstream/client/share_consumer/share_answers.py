"""What the answers of brokers mean: records that are ours now, gaps among them, errors, hints."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from millstream.client.consumer.membership.reconciliation import TopicIdPartition
from millstream.client.share_consumer.acknowledgements import GAP, AcknowledgeType
from millstream.client.share_consumer.share_buffer import Acquired
from millstream.client.snapshot import Broker
from millstream.errors import (
    NO_ERROR,
    MillstreamError,
    class_for_code,
    error_for_code,
)
from millstream.records.fetched import fetched_batches
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from millstream.client.consumer.membership.group_view import GroupView
    from millstream.client.metadata import Metadata
    from millstream.client.share_consumer.config import ShareConsumerConfig
    from millstream.client.share_consumer.node_session import NodeSession
    from millstream.client.share_consumer.share_buffer import ShareBuffer
    from millstream.protocol.messages import (
        ShareAcknowledgeResponse,
        ShareFetchResponse,
        share_acknowledge,
        share_fetch,
    )
    from millstream.records.kernel import ConsumerRecord

_logger = logging.getLogger(__name__)
_ALL: Final = (1 << 31) - 1


class ShareAnswers:
    """Takes answers apart. On the I/O thread."""

    def __init__(
        self,
        config: ShareConsumerConfig,
        metadata: Metadata,
        view: GroupView,
        buffer: ShareBuffer,
    ) -> None:
        self._config = config
        self._namespace = config.names
        self._metadata = metadata
        self._view = view
        self._buffer = buffer
        # Names that were known once: topics that are gone still have answers under way.
        self._names: dict[TopicIdPartition, TopicPartition] = {}
        self._ids: dict[TopicPartition, TopicIdPartition] = {}
        self.lock_timeout_ms: int | None = None
        """How long a record that was given stays with us; None while no broker has said."""

    def partition_of(self, which: TopicIdPartition) -> TopicPartition | None:
        """A partition by name, if it is known."""
        found = self._names.get(which)
        if found is None:
            name = self._view.name_of(which.topic_id)
            if name is None:
                return None
            found = TopicPartition(name, which.partition)
            self._names[which] = found
            self._ids[found] = which
        return found

    def id_of(self, partition: TopicPartition) -> TopicIdPartition | None:
        """A partition that we had records of, as brokers name it."""
        return self._ids.get(partition)

    def learn_lock(self, timeout_ms: int) -> None:
        """A broker says how long it locks records."""
        if timeout_ms > 0:
            self.lock_timeout_ms = timeout_ms

    def acknowledged(
        self, answer: ShareFetchResponse | ShareAcknowledgeResponse, now_ms: int
    ) -> dict[TopicIdPartition, MillstreamError]:
        """Which acknowledgements failed."""
        found: dict[TopicIdPartition, MillstreamError] = {}
        for topic in answer.responses:
            for data in topic.partitions:
                code = getattr(data, "acknowledge_error_code", None)
                text = getattr(data, "acknowledge_error_message", None)
                if code is None:
                    code, text = data.error_code, data.error_message
                if code != NO_ERROR:
                    which = TopicIdPartition(topic.topic_id, data.partition_index)
                    found[which] = error_for_code(code, text)
                    self._learn_leader(which, data, answer, now_ms)
        return found

    def take_records(self, session: NodeSession, answer: ShareFetchResponse, now_ms: int) -> bool:
        """Hand records to the application; whether there were any, or an error instead."""
        has_something = False
        for topic in answer.responses:
            for data in topic.partitions:
                which = TopicIdPartition(topic.topic_id, data.partition_index)
                partition = self.partition_of(which)
                if data.error_code != NO_ERROR:
                    has_something |= self._on_error(which, data, answer, now_ms)
                elif partition is not None and data.acquired_records:
                    has_something |= self._on_data(session, which, partition, data)
        return has_something

    def _on_data(
        self,
        session: NodeSession,
        which: TopicIdPartition,
        partition: TopicPartition,
        data: share_fetch.PartitionData,
    ) -> bool:
        counts = {
            offset: each.delivery_count
            for each in data.acquired_records
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        try:
            records = self._decoded(partition, data, min(counts))
        except MillstreamError as error:
            # Nobody can read it: it must not come again and again.
            session.add(which, dict.fromkeys(counts, int(AcknowledgeType.REJECT)))
            self._buffer.put_error(error)
            return True
        ours = [each for each in records if each.offset in counts]
        gaps = counts.keys() - {each.offset for each in ours}
        if gaps:
            session.add(which, dict.fromkeys(gaps, GAP))
        if ours:
            delivered = [counts[each.offset] for each in ours]
            self._buffer.put(Acquired(session, partition, ours, delivered))
        return bool(ours)

    def _decoded(
        self, partition: TopicPartition, data: share_fetch.PartitionData, first_offset: int
    ) -> list[ConsumerRecord[Any, Any]]:
        if not data.records:
            return []
        batches = fetched_batches(
            data.records,
            self._namespace.shown(partition.topic),
            partition.partition,
            first_offset,
            check_crc=self._config.check_crcs,
        )
        return batches.take(_ALL)

    def _on_error(
        self,
        which: TopicIdPartition,
        data: share_fetch.PartitionData,
        answer: ShareFetchResponse,
        now_ms: int,
    ) -> bool:
        if class_for_code(data.error_code).retriable or data.error_code == -1:
            _logger.debug("%s: %s, trying again", which, data.error_message)
            self._learn_leader(which, data, answer, now_ms)
            self._metadata.request_update()
            return False
        self._buffer.put_error(error_for_code(data.error_code, data.error_message))
        return True

    def _learn_leader(
        self,
        which: TopicIdPartition,
        data: share_fetch.PartitionData | share_acknowledge.PartitionData,
        answer: ShareFetchResponse | ShareAcknowledgeResponse,
        now_ms: int,
    ) -> None:
        partition = self.partition_of(which)
        leader = data.current_leader
        if partition is None:
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
            partition.topic,
            partition.partition,
            leader.leader_id,
            leader.leader_epoch,
            endpoint,
            now_ms,
        )
