"""`Sender`: takes batches that are due from the accumulator to the leaders of their partitions.

An actor of the client's runtime: it is told the time, never waits, and touches nothing that other
threads do but the accumulator. It keeps to the brokers' limits, asks for a producer id when batches
are numbered, and leaves to `Settlement` what an answer means for a batch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from millstream.client.producer.lane import NO_NODE, Lane, ProducerIdentity
from millstream.client.producer.produce_exchange import (
    ZSTD_FROM,
    Outcome,
    Sent,
    build_request,
    choose_version,
    learn_leaders,
    read_outcomes,
    topic_ids,
)
from millstream.client.producer.settlement import Settlement
from millstream.client.targets import ANY
from millstream.errors import (
    ClientClosed,
    FatalProducerError,
    MillstreamError,
    OperationTimeout,
    UnsupportedVersion,
    error_for_code,
    is_retriable,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from millstream.protocol.messages.produce import ProduceResponse
from millstream.records.compression import Compression

if TYPE_CHECKING:
    from random import Random

    from millstream.client.metadata import Metadata, MetadataSnapshot
    from millstream.client.namespace import Namespace
    from millstream.client.producer.express import Express
    from millstream.client.producer.numbering import Numbering
    from millstream.client.producer.partition_queues import PartitionQueue
    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.client.producer.record_accumulator import RecordAccumulator
    from millstream.client.producer.sender_config import SenderConfig
    from millstream.client.producer.topics import TopicRegistry
    from millstream.client.router import RequestRouter
    from millstream.network.network_client import NetworkClient
    from millstream.protocol.message import Message
    from millstream.types import Uuid

_logger = logging.getLogger(__name__)

REQUEST_OVERHEAD: Final = 512
"""What a request has besides its batches, with the names of a few topics."""


class Transactions(Protocol):
    """What the Sender asks the transaction manager."""

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called again at the latest."""
        ...

    def may_send(self, lane: Lane) -> bool:
        """Whether a partition is part of the transaction, so that batches may go there."""
        ...

    @property
    def is_implicit(self) -> bool:
        """Whether leaders add partitions to the transaction by themselves (KIP-890)."""
        ...

    def on_batch_failed(self, error: MillstreamError) -> None:
        """A batch of the open transaction was lost."""
        ...


class _Drained(NamedTuple):
    batches: list[Sent]
    due_ms: int | None
    """When a batch that must wait may be sent."""


class Sender:
    """Sends batches. An actor of `ClientRuntime`."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        network: NetworkClient,
        metadata: Metadata,
        router: RequestRouter,
        topics: TopicRegistry,
        names: Namespace,
        config: SenderConfig,
        random: Random,
        numbering: Numbering | None,
    ) -> None:
        self._accumulator = accumulator
        self._network = network
        self._metadata = metadata
        self._router = router
        self._topics = topics
        self._names = names
        self._config = config
        self._numbering = numbering
        self._transactions: Transactions | None = None
        self.settlement = Settlement(accumulator, config, random, numbering, self._make_ready)
        self._lanes: list[Lane] = []
        self._ready: dict[int, dict[Lane, None]] = {}
        self._blocked_since_ms: dict[int, int] = {}
        self._is_asking_identity = False
        self.fatal_error: MillstreamError | None = None
        self.express: Express | None = None
        metadata.subscribe(self._on_metadata)

    def use(self, transactions: Transactions) -> None:
        """Have a transaction manager decide what may be sent."""
        self._transactions = transactions
        self.settlement.transaction = transactions

    def poll(self, now_ms: int) -> int | None:
        """Send what is due, give up what is late; when to be called again at the latest."""
        if self.fatal_error is not None:
            self.settlement.fail_all(self.fatal_error)
            return None
        if self.express is not None:
            self.express.check(now_ms)
        times = [self.settlement.expire(now_ms)]
        self._settle_numbers(now_ms)
        queues, lingering_ms = self._accumulator.collect(now_ms)
        times.append(lingering_ms)
        for queue in queues:
            self._make_ready(queue.lane or self._new_lane(queue))
        times += [self._serve(node_id, now_ms) for node_id in list(self._ready)]
        if self._transactions is not None:
            # Last: what could not be sent yet has told which partitions it wants added.
            times.append(self._transactions.poll(now_ms))
        return min((each for each in times if each is not None), default=None)

    def fail(self, error: MillstreamError) -> None:
        """The producer cannot go on: everything that is not done is lost."""
        if self.fatal_error is None:
            self.fatal_error = error
        self._accumulator.close(self.fatal_error)
        self.settlement.fail_all(self.fatal_error)

    # ---- lanes ----

    def _new_lane(self, queue: PartitionQueue) -> Lane:
        lane = queue.lane = Lane(queue, self._names.to_wire(queue.topic.name))
        self._lanes.append(lane)
        self._find_leader(lane, self._metadata.snapshot)
        return lane

    def _make_ready(self, lane: Lane) -> None:
        self._ready.setdefault(lane.node_id, {})[lane] = None

    def _find_leader(self, lane: Lane, snapshot: MetadataSnapshot) -> None:
        leader = snapshot.leader(lane.wire_topic, lane.partition)
        lane.node_id = NO_NODE if leader is None else leader.leader_id
        if leader is not None:
            lane.leader_epoch = leader.leader_epoch

    def _on_metadata(self, old: MetadataSnapshot, new: MetadataSnapshot, now_ms: int) -> None:
        for lane in self._lanes:
            before = lane.node_id
            self._find_leader(lane, new)
            if self.express is not None and lane.node_id != before:
                self.express.close(lane)
            if lane.node_id != before and lane in self._ready.get(before, ()):
                del self._ready[before][lane]
                self._make_ready(lane)

    # ---- numbers ----

    def _settle_numbers(self, now_ms: int) -> None:
        if self._numbering is None:
            return
        self._numbering.resolve()
        if self._transactions is not None:
            return  # Identities come from the coordinator.
        if self._numbering.has_identity and self._numbering.wants_new_epoch:
            if self.express is not None:
                self.express.close_all()
            self._numbering.raise_epoch()
        if not self._numbering.has_identity and not self._is_asking_identity:
            self._ask_identity(now_ms)

    def _ask_identity(self, now_ms: int) -> None:
        if not self._accumulator.incomplete_count:
            return  # It is for who sends.
        self._is_asking_identity = True
        self._router.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=(1 << 31) - 1),
            ANY,
            self._on_identity,
            deadline_ms=now_ms + self._config.delivery_timeout_ms,
            now_ms=now_ms,
        )

    def _on_identity(self, answer: Message | MillstreamError, now_ms: int) -> None:
        self._is_asking_identity = False
        error = answer if isinstance(answer, MillstreamError) else None
        if isinstance(answer, InitProducerIdResponse) and answer.error_code:
            error = error_for_code(answer.error_code)
        if error is None:
            assert isinstance(answer, InitProducerIdResponse)
            assert self._numbering is not None
            self._numbering.become(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        elif not is_retriable(error) and not isinstance(error, OperationTimeout | ClientClosed):
            self.fail(
                FatalProducerError(
                    f"no producer id to be had: {error}. A producer without one needs "
                    "enable_idempotence=False"
                )
            )

    # ---- sending ----

    def _serve(self, node_id: int, now_ms: int) -> int | None:
        """Send what is ready for one broker; when something will be that is not yet."""
        lanes = self._ready[node_id]
        if not lanes:
            return None
        if node_id == NO_NODE:
            self._metadata.request_update()
            return None
        due_ms: int | None = None
        while lanes and self._network.is_ready(node_id, now_ms):
            drained = self._drain(lanes, now_ms)
            due_ms = drained.due_ms
            if not drained.batches:
                break
            self._send(node_id, drained.batches, now_ms)
        self._watch(node_id, bool(lanes), now_ms)
        if lanes:
            delay_ms = self._network.connection_delay_ms(node_id, now_ms)
            if delay_ms:
                due_ms = min(due_ms or now_ms + delay_ms, now_ms + delay_ms)
        return due_ms

    def _watch(self, node_id: int, is_behind: bool, now_ms: int) -> None:
        """Note brokers that take nothing, so that other partitions are chosen."""
        limit_ms = self._config.availability_timeout_ms
        if not limit_ms:
            return
        if is_behind and not self._network.is_ready(node_id, now_ms):
            self._blocked_since_ms.setdefault(node_id, now_ms)
        else:
            self._blocked_since_ms.pop(node_id, None)
        self._topics.set_aside(
            frozenset(
                each
                for each, since_ms in self._blocked_since_ms.items()
                if now_ms - since_ms > limit_ms
            )
        )

    def _drain(self, lanes: dict[Lane, None], now_ms: int) -> _Drained:
        """At most one batch of each lane, within the size of a request."""
        batches: list[Sent] = []
        room = self._config.request_size_max - REQUEST_OVERHEAD
        due_ms: int | None = None
        for lane in list(lanes):
            # A batch that alone is too large for a request goes alone.
            limit = room if batches else 1 << 31
            retry_ms = self._waits_until(lane, now_ms)
            if retry_ms is not None:
                due_ms = retry_ms if due_ms is None else min(due_ms, retry_ms)
                continue
            batch = self._next_batch(lane, limit, now_ms)
            if batch is not None:
                batches.append(Sent(lane, batch))
                room -= batch.size
                # Next time it is the last in line.
                del lanes[lane]
                lanes[lane] = None
            if not lane.retries and not self._accumulator.has_sendable(lane.queue, now_ms):
                del lanes[lane]
            if room <= 0:
                break
        return _Drained(batches, due_ms)

    def _waits_until(self, lane: Lane, now_ms: int) -> int | None:
        if not lane.retries:
            return None
        batch = lane.retries[0]
        has_new_leader = lane.leader_epoch > batch.last_leader_epoch >= 0
        return None if has_new_leader or now_ms >= batch.retry_at_ms else batch.retry_at_ms

    def _next_batch(self, lane: Lane, size_max: int, now_ms: int) -> ProducerBatch | None:
        """The batch of a lane whose turn it is, numbered and sealed; None if none may go now."""
        if self._config.keeps_order and lane.sent_count:
            return None
        if self._transactions is not None and not self._transactions.may_send(lane):
            return None
        if lane.retries:
            batch: ProducerBatch | None = lane.retries[0]
            assert batch is not None
            if batch.size > size_max:
                return None
            if self._numbering is not None and not self._numbering.may_repeat(lane, batch):
                return None
            del lane.retries[0]
        else:
            if self._numbering is not None and not self._numbering.may_begin(lane):
                return None
            if self.express is not None and self.express.holds(lane, now_ms):
                return None
            batch = self._accumulator.take(lane.queue, size_max, now_ms)
            if batch is None:
                return None
            batch.lane = lane
            if self._numbering is not None:
                self._numbering.assign(lane, batch)
        self._seal(batch)
        return batch

    def _seal(self, batch: ProducerBatch) -> None:
        writer = batch.seal(
            self._config.compression,
            self._config.compression_level,
            is_transactional=self._config.transactional_id is not None,
        )
        if writer is not None:
            self._accumulator.recycle(batch, writer)

    def _send(self, node_id: int, batches: list[Sent], now_ms: int) -> None:
        for lane, batch in batches:
            lane.sent_count += 1
            batch.note_sending(lane.leader_epoch)
            self._topics.keep(lane.wire_topic)
        topics = topic_ids(batches, self._metadata.snapshot)
        offered = self._network.version_of(node_id, ApiKey.PRODUCE)
        is_too_old = offered is not None and (
            self._config.compression is Compression.ZSTD and offered < ZSTD_FROM
        )
        if offered is None or is_too_old:
            error = UnsupportedVersion(f"broker {node_id} is too old for these settings")
            self._settle(batches, [Outcome(error)] * len(batches), now_ms)
            return
        version = choose_version(
            offered,
            topics,
            is_transactional=self._transactions is not None,
            is_implicit=self._transactions is not None and self._transactions.is_implicit,
        )
        self._network.send(
            node_id,
            build_request(batches, topics, self._config),
            now_ms,
            lambda answer, done_ms: self.on_answer(batches, topics, answer, done_ms),
            timeout_ms=self._config.request_timeout_ms,
            version=version,
            expects_response=self._config.acks != 0,
        )

    def on_answer(
        self,
        batches: list[Sent],
        topics: dict[str, Uuid],
        answer: Message | MillstreamError,
        now_ms: int,
    ) -> None:
        """What came of a request with these batches; a broker's answer, or why there is none."""
        if isinstance(answer, MillstreamError):
            self._metadata.request_update()
            outcomes = [Outcome(answer)] * len(batches)
        elif self._config.acks == 0:
            outcomes = [Outcome(None)] * len(batches)
        else:
            assert isinstance(answer, ProduceResponse)
            learn_leaders(topics, answer, self._metadata, now_ms)
            outcomes = read_outcomes(batches, topics, answer)
        self._settle(batches, outcomes, now_ms)

    def _settle(self, batches: list[Sent], outcomes: list[Outcome], now_ms: int) -> None:
        for (lane, batch), outcome in zip(batches, outcomes, strict=True):
            if getattr(outcome.error, "refreshes_metadata", False):
                self._metadata.request_update()
            if self.express is not None and outcome.error is not None:
                self.express.close(lane)
            self.settlement.settle(lane, batch, outcome, now_ms)
            if self.express is not None:
                self.express.settled(lane, now_ms)
