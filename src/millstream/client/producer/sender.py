"""`Sender`: has the batches of partitions sent to their leaders, and reads what comes back.

An actor of the client's runtime: it is told the time, never waits, and touches nothing that other
threads do but the accumulator. It grants each partition how many batches it may send, and on which
connection; what is due and granted leaves through the accumulator's sink, sent by the selector's
thread, or taken and sent here where there is no such thread or the batches are compressed first. It
keeps to the brokers' limits, asks for a producer id when batches are numbered, and leaves to
`BatchCompletion` what an answer means for a batch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from millstream.client.producer import kernel
from millstream.client.producer.batch_completion import BatchCompletion
from millstream.client.producer.partition_state import NO_NODE, PartitionState
from millstream.client.producer.produce_exchange import (
    ZSTD_FROM,
    Outcome,
    Produced,
    Sent,
    build_request,
    choose_version,
    learn_leaders,
    read_outcomes,
    request_head,
    topic_ids,
)
from millstream.client.producer.produce_sink import NOBODY, UNLIMITED, ProducerIdentity, Route
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
from millstream.network.client.network_client import SentRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from millstream.protocol.messages.produce import ProduceResponse
from millstream.records.compression import Compression
from millstream.records.layout import TRANSACTIONAL_BIT

if TYPE_CHECKING or kernel.COMPILED:
    from millstream._accel.client.produce_sink import read_produced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from millstream.client.metadata import Metadata, MetadataSnapshot
    from millstream.client.metrics import ClientMeters
    from millstream.client.producer.config import ProducerConfig
    from millstream.client.producer.partition_queues import PartitionQueue
    from millstream.client.producer.producer_batch import ProducerBatch
    from millstream.client.producer.record_accumulator import RecordAccumulator
    from millstream.client.producer.sequences import Sequences
    from millstream.client.producer.topics import TopicRegistry
    from millstream.client.router import RequestRouter
    from millstream.network.client.network_client import NetworkClient
    from millstream.protocol.message import Message
    from millstream.types import ReadableBuffer, Uuid

_logger = logging.getLogger(__name__)

REQUEST_OVERHEAD: Final = 512
"""What a request has besides its batches, with the names of a few topics."""


class Transactions(Protocol):
    """What the Sender asks the transaction manager."""

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called again at the latest."""
        ...

    def may_send(self, state: PartitionState) -> bool:
        """Whether a partition is part of the transaction, so that batches may go there."""
        ...

    @property
    def is_implicit(self) -> bool:
        """Whether leaders add partitions to the transaction by themselves (KIP-890)."""
        ...

    def on_sent(self) -> None:
        """A batch of the open transaction was sent."""
        ...

    def on_batch_failed(self, error: MillstreamError) -> None:
        """A batch of the open transaction was lost."""
        ...


class _InFlight(NamedTuple):
    """A request that the sink has sent and whose event has not been seen."""

    version: int
    batches: list[Sent]


class Sender:
    """Grants partitions to send, and completes their batches. An actor of `ClientRuntime`."""

    def __init__(
        self,
        accumulator: RecordAccumulator,
        network: NetworkClient,
        metadata: Metadata,
        router: RequestRouter,
        topics: TopicRegistry,
        config: ProducerConfig,
        random: Random,
        sequences: Sequences | None,
        meters: ClientMeters,
    ) -> None:
        self._accumulator = accumulator
        self._sink = accumulator.sink
        self._network = network
        self._metadata = metadata
        self._router = router
        self._topics = topics
        self._names = config.names
        self._config = config
        self._expects_answers = config.required_acks != 0
        self._compression = config.compression
        self._keeps_order = config.max_in_flight_requests_per_connection == 1
        """Whether a partition has one batch under way at a time, for want of numbers."""
        self._sequences = sequences
        self._meters = meters
        self._transactions: Transactions | None = None
        self.completion = BatchCompletion(accumulator, config, random, sequences, self._wait)
        self._partitions: list[PartitionState] = []
        self._waiting: dict[PartitionState, None] = {}
        """Partitions that have batches, as far as is known, and are not granted to send them."""
        self._granted: dict[PartitionState, None] = {}
        """Partitions that may send on their `connection_id`."""
        self._in_flight: dict[int, _InFlight] = {}
        """What the sink has sent, by correlation id, until the network tells of it."""
        self._heads: dict[tuple[str, int, Uuid], tuple[int, bytes]] = {}
        """How requests to a topic begin, each with a number for the sink."""
        self._is_asking_identity = False
        self.fatal_error: MillstreamError | None = None
        metadata.subscribe(self._on_metadata)
        network.find_sent = self._take_sent

    def use(self, transactions: Transactions) -> None:
        """Have a transaction manager decide what may be sent."""
        self._transactions = transactions
        self.completion.transaction = transactions

    def poll(self, now_ms: int) -> int | None:
        """Have sent what may be, give up what is late; when to be called again at the latest."""
        if self.fatal_error is not None:
            self.completion.fail_all(self.fatal_error)
            return None
        self._check_connections(now_ms)
        times = [self.completion.expire(now_ms)]
        self._update_identity(now_ms)
        for queue in self._sink.take_ungranted():
            self._wait(queue.state or self._new_state(queue))
        times += [self._try_to_grant(state, now_ms) for state in list(self._waiting)]
        if not self._sink.is_attached:
            times.append(self._send_due(now_ms))
        times.append(self._watch(now_ms))
        if self._transactions is not None:
            # Last: what could not be sent yet has told which partitions it wants added.
            times.append(self._transactions.poll(now_ms))
        return min((each for each in times if each is not None), default=None)

    def fail(self, error: MillstreamError) -> None:
        """The producer cannot go on: everything that is not done is lost."""
        if self.fatal_error is None:
            self.fatal_error = error
        self._accumulator.close(self.fatal_error)
        self.completion.fail_all(self.fatal_error)

    # ---- partitions ----

    def _new_state(self, queue: PartitionQueue) -> PartitionState:
        state = queue.state = PartitionState(queue, self._names.to_wire(queue.topic.name))
        self._partitions.append(state)
        self._find_leader(state, self._metadata.snapshot)
        return state

    def _find_leader(self, state: PartitionState, snapshot: MetadataSnapshot) -> None:
        leader = snapshot.leader(state.wire_topic, state.partition)
        state.node_id = NO_NODE if leader is None else leader.leader_id
        if leader is not None:
            state.leader_epoch = leader.leader_epoch

    def _on_metadata(self, old: MetadataSnapshot, new: MetadataSnapshot, now_ms: int) -> None:
        for state in self._partitions:
            before = state.node_id
            self._find_leader(state, new)
            if state.node_id != before:
                self._revoke(state)

    # ---- who numbers ----

    def become(self, identity: ProducerIdentity) -> None:
        """Number what is sent from now on as somebody else, or in a later epoch."""
        assert self._sequences is not None
        self.revoke_all()
        self._sequences.become(identity)

    def _update_identity(self, now_ms: int) -> None:
        if self._sequences is None:
            return
        self._sequences.resolve()
        if self._transactions is not None:
            return  # Identities come from the coordinator.
        if self._sequences.has_identity and self._sequences.wants_new_epoch:
            self.become(self._sequences.next_identity())
        if not self._sequences.has_identity and not self._is_asking_identity:
            self._ask_identity(now_ms)

    def _ask_identity(self, now_ms: int) -> None:
        if not self._accumulator.incomplete_count:
            return  # Only a producer that sends needs one.
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
            self.become(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        elif not is_retriable(error) and not isinstance(error, OperationTimeout | ClientClosed):
            self.fail(
                FatalProducerError(
                    f"no producer id to be had: {error}. A producer without one needs "
                    "enable_idempotence=False"
                )
            )

    # ---- grants ----

    def revoke_all(self) -> None:
        """Let no partition send until it is granted again."""
        self._revoke_some(list(self._granted))

    def _revoke_some(self, states: Iterable[PartitionState]) -> None:
        for state in states:
            self._revoke(state)

    def _revoke(self, state: PartitionState) -> None:
        """Let a partition send nothing; what it has sent is known then. Fine if it may not."""
        if state in self._granted:
            self._accumulator.revoke(state.queue)
            self._claim()
            self._wait(state)

    def _wait(self, state: PartitionState) -> None:
        """A partition may have batches, and is to be looked at."""
        self._granted.pop(state, None)
        state.connection_id = 0
        self._waiting[state] = None

    def _check_connections(self, now_ms: int) -> None:
        """Revoke what goes over a connection that is lost, or whose broker asked for silence."""
        self._revoke_some(
            [
                state
                for state in self._granted
                if self._network.sending_connection(state.node_id, now_ms) != state.connection_id
                # The sink itself stops where it finds a connection lost, or an answer unusual.
                or not state.queue.is_granted
            ]
        )

    def _try_to_grant(self, state: PartitionState, now_ms: int) -> int | None:
        """Let a partition send, if it may now; when to look again, if that is known."""
        if not len(state.queue):
            del self._waiting[state]
            return None
        if state.node_id == NO_NODE:
            self._metadata.request_update()
            return None
        connection_id = self._network.sending_connection(state.node_id, now_ms)
        if not connection_id:
            self._network.is_ready(state.node_id, now_ms)  # Connects.
            delay_ms = self._network.connection_delay_ms(state.node_id, now_ms)
            return now_ms + delay_ms if delay_ms else None
        allowance = self._allowance(state)
        if not allowance:
            return None
        route = self._route(state, connection_id)
        if route is None:
            self._refuse(state, now_ms)
            return None
        self._skip_backoff(state)
        identity = NOBODY if self._sequences is None else self._sequences.begin(state)
        if self._accumulator.grant(state.queue, route, allowance, identity):
            state.connection_id = connection_id
            self._granted[state] = None
            del self._waiting[state]
        return None

    def _allowance(self, state: PartitionState) -> int:
        """How many batches a partition may send until it is looked at again."""
        if self._transactions is not None and not self._transactions.may_send(state):
            return 0
        if self._keeps_order:
            if state.in_flight_count:
                return 0
            return 1 if self._sequences is None else min(1, self._sequences.allowance(state))
        return UNLIMITED if self._sequences is None else self._sequences.allowance(state)

    def _skip_backoff(self, state: PartitionState) -> None:
        """A new leader is not one that refused."""
        first = state.queue.first
        if first is not None and state.leader_epoch > first.last_leader_epoch >= 0:
            first.retry_at_ms = 0

    def _route(self, state: PartitionState, connection_id: int) -> Route | None:
        """How to reach a partition's leader; None if it is too old for these settings."""
        offered = self._network.version_of(state.node_id, ApiKey.PRODUCE)
        is_zstd = self._compression is Compression.ZSTD
        if offered is None or (is_zstd and offered < ZSTD_FROM):
            return None
        topics = topic_ids([state.wire_topic], self._metadata.snapshot)
        version = self._version(offered, topics)
        number, head = 0, b""
        if self._sink.is_attached:
            key = (state.wire_topic, version, topics[state.wire_topic])
            if key not in self._heads:
                body = request_head(state.wire_topic, topics, self._config, version)
                framed = self._network.request_head(ApiKey.PRODUCE, version, body)
                self._heads[key] = (len(self._heads), framed)
            number, head = self._heads[key]
        attributes = TRANSACTIONAL_BIT if self._config.transactional_id is not None else 0
        return Route(connection_id, version, attributes, number, head)

    def _version(self, offered: int, topics: dict[str, Uuid]) -> int:
        return choose_version(
            offered,
            topics,
            is_transactional=self._transactions is not None,
            is_implicit=self._transactions is not None and self._transactions.is_implicit,
        )

    def _refuse(self, state: PartitionState, now_ms: int) -> None:
        """Give up what waits for a broker that is too old."""
        error = UnsupportedVersion(f"broker {state.node_id} is too old for these settings")
        while (batch := state.queue.first) is not None:
            self._accumulator.remove(batch)
            self.completion.fail(state, batch, error)

    def _watch(self, now_ms: int) -> int | None:
        """Note brokers that take nothing, so that other partitions are chosen (KIP-794)."""
        limit_ms = self._config.partitioner_availability_timeout_ms
        if not limit_ms:
            return None
        late: set[int] = set()
        times: list[int] = []
        for state in (*self._waiting, *self._granted):
            first = state.queue.first
            if first is not None:
                due_ms = first.created_ms + self._config.linger_ms + limit_ms
                if now_ms > due_ms:
                    late.add(state.node_id)
                else:
                    times.append(due_ms + 1)
        self._topics.set_aside(frozenset(late))
        return min(times, default=None)

    # ---- sending, where no other thread does ----

    def _send_due(self, now_ms: int) -> int | None:
        """Take and send what is due; when the next batch will be."""
        times: list[int] = []
        nodes = {state.connection_id: state.node_id for state in self._granted}
        for connection_id, node_id in nodes.items():
            while self._network.is_ready(node_id, now_ms):
                taken, due_ms = self._accumulator.take(connection_id, now_ms)
                times += [] if due_ms is None else [due_ms]
                if not taken:
                    break
                self._send(node_id, self._note_sent(taken), now_ms)
        return min(times, default=None)

    def _send(self, node_id: int, batches: list[Sent], now_ms: int) -> None:
        for _, batch in batches:
            self._seal(batch)
        topics = topic_ids({state.wire_topic for state, _ in batches}, self._metadata.snapshot)
        offered = self._network.version_of(node_id, ApiKey.PRODUCE)
        assert offered is not None  # Else it was not granted.
        self._network.send(
            node_id,
            build_request(batches, topics, self._config),
            now_ms,
            lambda answer, done_ms: self._on_answer(batches, topics, answer, done_ms),
            timeout_ms=self._config.request_timeout_ms,
            version=self._version(offered, topics),
            expects_response=self._expects_answers,
        )

    def _seal(self, batch: ProducerBatch) -> None:
        writer = batch.seal(
            self._compression,
            self._config.compression_level,
            is_transactional=self._config.transactional_id is not None,
        )
        if writer is not None:
            self._accumulator.recycle(batch, writer)

    # ---- what was sent ----

    def _note_sent(self, taken: Sequence[tuple[PartitionQueue, ProducerBatch]]) -> list[Sent]:
        """Batches have left their queues, for one request."""
        batches = []
        for queue, batch in taken:
            state: PartitionState = queue.state
            batch.state = state
            state.in_flight_count += 1
            if self._sequences is not None and not batch.is_repeat:
                self._sequences.on_sent(state, batch)
            batch.note_sending(state.leader_epoch)
            if batch.is_done and self._sequences is not None:
                # It timed out in the moment when it was taken.
                self._sequences.on_failed(state, batch, is_refused=False)
            if not queue.is_granted:
                self._wait(state)
            self._topics.keep(state.wire_topic)
            batches.append(Sent(state, batch))
        if self._transactions is not None:
            self._transactions.on_sent()
        return batches

    def _claim(self) -> None:
        """Learn of all that the sink has sent by now."""
        for correlation_id, version, taken in self._sink.take_sent():
            self._in_flight[correlation_id] = _InFlight(version, self._note_sent(taken))

    def _take_sent(self, correlation_id: int, now_ms: int) -> SentRequest | None:
        """The network has seen a request of the sink: who waits for its answer, if one comes."""
        self._claim()
        in_flight = self._in_flight.pop(correlation_id, None)
        if in_flight is None:
            return None
        version, batches = in_flight
        # They are of one topic.
        topics = topic_ids([batches[0].state.wire_topic], self._metadata.snapshot)
        if not self._expects_answers:
            self._on_answer(batches, topics, ProduceResponse(), now_ms)
            return None

        def on_done(answer: Message | MillstreamError, done_ms: int) -> None:
            is_answered = not isinstance(answer, MillstreamError)
            self._meters.on_done(ApiKey.PRODUCE, now_ms, done_ms, is_answered=is_answered)
            self._on_answer(batches, topics, answer, done_ms)

        def take(frame: ReadableBuffer, done_ms: int) -> bool | None:
            produced = _matched(batches, read_produced(frame, version))
            if produced is None:
                return None
            self._meters.on_done(ApiKey.PRODUCE, now_ms, done_ms, is_answered=True)
            return self._acknowledge(produced, done_ms)

        timeout_ms = self._config.request_timeout_ms
        return SentRequest(ApiKey.PRODUCE, version, timeout_ms, on_done, take)

    # ---- answers ----

    def _acknowledge(self, produced: list[Produced], now_ms: int) -> bool:
        """All batches of a request are where they should be. Whether that is all there is to do."""
        self.completion.acknowledge_all(produced, now_ms)
        return all(state in self._granted for state, *_ in produced)

    def _on_answer(
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
        elif not self._expects_answers:
            outcomes = [Outcome(None)] * len(batches)
        else:
            assert isinstance(answer, ProduceResponse)
            learn_leaders(topics, answer, self._metadata, now_ms)
            outcomes = read_outcomes(batches, topics, answer)
        for (state, batch), outcome in zip(batches, outcomes, strict=True):
            if getattr(outcome.error, "refreshes_metadata", False):
                self._metadata.request_update()
            if outcome.error is not None:
                # Nothing new is numbered until it is clear what becomes of this one.
                self._revoke(state)
            self.completion.complete(state, batch, outcome, now_ms)


def _matched(
    batches: list[Sent], answer: list[tuple[int, int, int]] | None
) -> list[Produced] | None:
    """Where each batch is; None if the answer does not tell of all of them, and of no other."""
    if answer is None or len(answer) != len(batches):
        return None
    produced: list[Produced] = []
    for (state, batch), (partition, base_offset, log_append_time) in zip(
        batches, answer, strict=True
    ):
        if partition != state.partition:
            return None
        produced.append(Produced(state, batch, base_offset, log_append_time))
    return produced
