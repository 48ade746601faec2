"""`QuorumController`: the state machine that owns the cluster's metadata.

On the node that leads the quorum it is active: it decides about requests, appends the records to
the metadata log and answers when they are committed. On the others it replays what is committed
and refuses requests. `node` drives it: requests, raft's news and the time come in as calls, all on
one thread. No sockets, no files, no clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.controller.controls import ControllerSeams, Controls
from millstream.controller.decision import RECORDS_PER_BATCH_MAX, Decision, RequestContext
from millstream.controller.failures import error_response
from millstream.controller.image_history import ImageHistory
from millstream.controller.partition_index import PartitionIndex
from millstream.controller.periodic import PeriodicTasks
from millstream.controller.replication_control import ControllerState
from millstream.errors import (
    ApiError,
    KafkaStorageError,
    MillstreamError,
    NotController,
    PolicyViolation,
    UnknownServerError,
)
from millstream.metadata.features import METADATA_VERSION, TRANSACTIONS_SINCE
from millstream.metadata.image import MetadataProvenance
from millstream.metadata.records import versioned
from millstream.protocol.messages.broker_records import RegisterBrokerRecord
from millstream.protocol.messages.config_records import FeatureLevelRecord
from millstream.protocol.messages.log_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    NoOpRecord,
)
from millstream.storage.log.config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from random import Random

    from millstream.controller.config import ControllerConfig
    from millstream.controller.ports import MetadataLog
    from millstream.metadata.bootstrap import BootstrapMetadata
    from millstream.metadata.image import MetadataImage
    from millstream.metadata.records import MetadataBatch
    from millstream.protocol.message import Message

_NO_OP: Final = "write a record when idle"
_REBALANCE: Final = "move leaderships to preferred replicas"
_UNCLEAN: Final = "elect unclean leaders"
_TOKENS: Final = "remove expired delegation tokens"
_STALL_PAUSE_MS: Final = 500
"""How long the controller leaves what is due alone while its log cannot be written."""


class _Deferred(NamedTuple):
    """An answer that waits until an offset is committed."""

    offset: int
    request: Message
    response: Message
    reply: Callable[[Message], None]


class _Term:
    """What exists only while this controller is active."""

    __slots__ = ("controls", "deferred", "epoch", "last_offset", "state", "tasks")

    def __init__(self, epoch: int, controls: Controls, tasks: PeriodicTasks) -> None:
        self.epoch = epoch
        self.controls = controls
        self.state = controls.state
        self.tasks = tasks
        self.deferred: deque[_Deferred] = deque()
        self.last_offset = -1
        """The last offset that this term appended."""


class QuorumController:
    """Decides, records, replays."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        config: ControllerConfig,
        log: MetadataLog,
        bootstrap: BootstrapMetadata,
        random: Random,
        topic_defaults: LogConfig | None = None,
        seams: ControllerSeams | None = None,
        on_fault: Callable[[str, Exception], None] = lambda problem, error: None,
    ) -> None:
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._config = config
        self._log = log
        self._bootstrap = bootstrap
        self._random = random
        self._topic_defaults = topic_defaults or LogConfig()
        self._seams = seams or ControllerSeams()
        self._on_fault = on_fault
        self._history = ImageHistory()
        self._high_watermark = 0
        self._paused_until_ms = 0
        self._registered_at: dict[int, tuple[int, int]] = {}
        self._term: _Term | None = None

    @property
    def is_active(self) -> bool:
        """Whether this controller decides."""
        return self._term is not None

    @property
    def epoch(self) -> int:
        """The epoch it is active in; -1 when it is not."""
        return -1 if self._term is None else self._term.epoch

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self._history.committed

    @property
    def uncommitted_image(self) -> MetadataImage:
        """What decisions are made on."""
        return self._history.current

    # What raft has to tell.

    def on_leader(self, epoch: int, now_ms: int, wall_ms: int) -> None:
        """This node leads the quorum: become active.

        Everything committed before this epoch must have been replayed. In an empty log the
        bootstrap records are written; a transaction that the last controller left open is undone.
        """
        self.on_not_leader()
        image = self._history.current
        index = PartitionIndex(image.topics)
        state = ControllerState(image, index, self._topic_defaults, self._random)
        state.registered_at = self._registered_at
        controls = Controls(
            state,
            self._config,
            self._seams,
            node_id=self._node_id,
            cluster_id=self._cluster_id,
            upgrade_kraft_version=self._upgrade_kraft_version,
        )
        self._term = _Term(epoch, controls, self._periodic_tasks(now_ms))
        for broker in image.cluster.brokers.values():
            if not broker.is_fenced:
                seen = image.provenance.last_offset if broker.in_controlled_shutdown else None
                controls.sessions.assume(broker.id, broker.epoch, now_ms, seen)
        activation = Decision(None, self._activation_records())
        if not self._write_internally(activation, now_ms, wall_ms):
            # Without its first records it must not decide: to be elected again is to try again.
            self._log.resign(epoch)
        if self._term is not None:
            # Undoing a transaction may have changed more than a delta tells.
            self._term.state.index = PartitionIndex(self._history.current.topics)

    def on_not_leader(self) -> None:
        """Another node leads, or nobody: what is not committed may never be."""
        term, self._term = self._term, None
        self._history.revert()
        if term is not None:
            for waiting in term.deferred:
                self._answer(waiting, error_response(waiting.request, NotController()))

    def on_stalled(self) -> None:
        """The log cannot be written for now: callers hear of it, and may find it done later."""
        term = self._term
        while term is not None and term.deferred:
            self._refuse_for_now(term.deferred.popleft())

    def on_committed(self, last_offset: int) -> None:
        """Everything up to this offset is committed: answers may go out."""
        # A log that commits at once says so before the records it was given are counted.
        self._high_watermark = max(self._high_watermark, last_offset + 1)
        self._history.commit(last_offset)
        term = self._term
        while term is not None and term.deferred and term.deferred[0].offset <= last_offset:
            waiting = term.deferred.popleft()
            self._answer(waiting, waiting.response)

    def on_batch(self, batch: MetadataBatch) -> None:
        """A committed batch of the log. While active, the batches are our own and known."""
        if self._term is not None:
            self.on_committed(batch.last_offset)
        else:
            self._high_watermark = max(self._high_watermark, batch.last_offset + 1)
            self._history.replay_committed(batch)
            self._note_registrations(batch.records, batch.base_offset)

    def on_snapshot(self, batches: Iterable[MetadataBatch], provenance: MetadataProvenance) -> None:
        """The log begins with this snapshot now. Never happens while active."""
        self._high_watermark = max(self._high_watermark, provenance.last_offset + 1)
        self._history.load_snapshot(batches, provenance)

    # What clients and brokers ask.

    def handle(
        self, request: Message, context: RequestContext, reply: Callable[[Message], None]
    ) -> None:
        """Decide about a request; `reply` is called once, when the answer holds.

        That is when the records behind it, and behind everything it was decided on, are committed.
        """
        term = self._term
        if term is None:
            reply(error_response(request, NotController()))
            return
        try:
            decision = term.controls.decide(request, context, self._log.next_offset())
            offset = self._write(decision, context.now_ms, context.wall_ms)
        except NotController as error:
            self.on_not_leader()
            reply(error_response(request, error))
        except ApiError as error:
            reply(error_response(request, error))
        except Exception as error:
            self._on_fault(f"{type(request).__name__} could not be decided", error)
            problem = "the controller failed to decide; its log has the reason"
            reply(error_response(request, UnknownServerError(problem)))
        else:
            waiting = _Deferred(offset, request, decision.response, reply)
            if offset < self._high_watermark:
                self._answer(waiting, decision.response)
            elif self._log.obstacle is not None:
                self._refuse_for_now(waiting)
            else:
                term.deferred.append(waiting)

    # What time brings.

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` must be called next; None when there is nothing to wait for."""
        if self._term is None:
            return None
        deadlines = (
            self._term.tasks.next_deadline_ms,
            self._term.controls.sessions.next_expiry_ms(self._unfenced_ids()),
        )
        earliest_ms = min((each for each in deadlines if each is not None), default=None)
        return None if earliest_ms is None else max(earliest_ms, self._paused_until_ms)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Do what is due: fence silent brokers, keep house."""
        term = self._term
        if term is None:
            return
        if self._log.obstacle is not None:
            self._paused_until_ms = now_ms + _STALL_PAUSE_MS
            return
        for broker_id in term.controls.sessions.expired(self._unfenced_ids(), now_ms):
            if self._term is term:
                decision = term.controls.cluster.fence_expired(broker_id)
                self._write_internally(decision, now_ms, wall_ms)
        for task in term.tasks.take_due(now_ms):
            if self._term is term:
                self._run(term, task, now_ms, wall_ms)

    def _periodic_tasks(self, now_ms: int) -> PeriodicTasks:
        config = self._config
        rebalance_ms = config.leader_imbalance_check_interval_seconds * 1000
        has_tokens = config.delegation_token_secret_key is not None
        return PeriodicTasks(
            {
                _REBALANCE: rebalance_ms if config.auto_leader_rebalance_enable else 0,
                _UNCLEAN: config.unclean_leader_election_interval_ms,
                _TOKENS: config.delegation_token_expiry_check_interval_ms if has_tokens else 0,
                _NO_OP: config.metadata_max_idle_interval_ms,
            },
            now_ms,
        )

    def _run(self, term: _Term, task: str, now_ms: int, wall_ms: int) -> None:
        decision: Decision[bool] | Decision[None]
        if task == _NO_OP:
            decision = Decision(None, [NoOpRecord()])
        elif task == _TOKENS:
            decision = term.controls.tokens.sweep(wall_ms)
        else:
            elections = term.controls.elections
            passed = elections.rebalance() if task == _REBALANCE else elections.elect_unclean()
            if passed.response:
                term.tasks.run_soon(task, now_ms)
            decision = passed
        self._write_internally(decision, now_ms, wall_ms)

    def _unfenced_ids(self) -> list[int]:
        brokers = self._history.current.cluster.brokers
        return [broker_id for broker_id, each in brokers.items() if not each.is_fenced]

    def _activation_records(self) -> list[Message]:
        if METADATA_VERSION not in self._history.current.features.levels:
            return self._bootstrap_records()
        if self._history.is_in_transaction:
            return [AbortTransactionRecord(reason="the controller that began it is gone")]
        return []

    def _bootstrap_records(self) -> list[Message]:
        term = self._term
        assert term is not None
        records: list[Message] = [*self._bootstrap.records]
        is_elr_on = any(
            isinstance(each, FeatureLevelRecord)
            and each.name == "eligible.leader.replicas.version"
            and each.feature_level > 0
            for each in records
        )
        if is_elr_on:
            records += term.controls.configuration.elr_safety_records()
        if self._bootstrap.metadata_version < TRANSACTIONS_SINCE:
            return records
        return [BeginTransactionRecord(name="bootstrap"), *records, EndTransactionRecord()]

    def _upgrade_kraft_version(self, level: int, validate_only: bool) -> None:
        self._log.upgrade_kraft_version(self.epoch, level, validate_only=validate_only)

    # How decisions are carried out.

    def _write_internally(self, decision: Decision[object], now_ms: int, wall_ms: int) -> bool:
        """Carry out a decision that nobody waits for; False if the log cannot be written now."""
        try:
            self._write(decision, now_ms, wall_ms)
        except NotController:
            self.on_not_leader()
        except KafkaStorageError:
            # Raft has said so. What is due is due again when there is room.
            self._paused_until_ms = now_ms + _STALL_PAUSE_MS
            return False
        except MillstreamError as error:
            self._on_fault("a decision of the controller itself could not be carried out", error)
        return True

    def _write(self, decision: Decision[object], now_ms: int, wall_ms: int) -> int:
        """Append a decision's records; says which offset its answer must wait for."""
        term = self._term
        assert term is not None
        records = decision.records
        if decision.is_atomic and len(records) > RECORDS_PER_BATCH_MAX:
            raise PolicyViolation(
                f"the request makes {len(records)} records, the limit is {RECORDS_PER_BATCH_MAX}"
            )
        for start in range(0, len(records), RECORDS_PER_BATCH_MAX):
            self._append(term, records[start : start + RECORDS_PER_BATCH_MAX], wall_ms)
        if records:
            term.tasks.postpone(_NO_OP, now_ms)
        return term.last_offset

    def _append(self, term: _Term, records: Sequence[Message], wall_ms: int) -> None:
        """Try the records, append them, and only then let them count."""
        last_offset = self._log.next_offset() + len(records) - 1
        provenance = MetadataProvenance(last_offset, term.epoch, wall_ms)
        point, deltas = self._history.prepare(records, provenance)
        metadata_version = point.image.metadata_version
        appended = self._log.append(
            term.epoch, [versioned(record, metadata_version) for record in records]
        )
        if appended != last_offset:
            # Somebody else appended between our decision and our records.
            self._log.resign(term.epoch)
            raise NotController(f"records are at {appended}, they were decided for {last_offset}")
        if self._term is not term:
            raise NotController("leadership was lost during the append")
        self._note_registrations(records, last_offset - len(records) + 1)
        self._history.push(point)
        self._history.commit(self._high_watermark - 1)
        term.last_offset = last_offset
        term.state.image = point.image
        for delta in deltas:
            if delta.touches("topics"):
                term.state.index.update(delta.topics)

    def _note_registrations(self, records: Sequence[Message], base_offset: int) -> None:
        for offset, record in enumerate(records, base_offset):
            if isinstance(record, RegisterBrokerRecord):
                self._registered_at[record.broker_id] = record.broker_epoch, offset

    def _refuse_for_now(self, waiting: _Deferred) -> None:
        problem = f"{self._log.obstacle}; the request may still be done when there is room"
        self._answer(waiting, error_response(waiting.request, KafkaStorageError(problem)))

    def _answer(self, waiting: _Deferred, response: Message) -> None:
        try:
            waiting.reply(response)
        except Exception as error:
            self._on_fault(f"the answer to {type(waiting.request).__name__} was not taken", error)
