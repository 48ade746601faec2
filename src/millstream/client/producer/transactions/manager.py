"""`TransactionManager`: where a transactional producer is in its transaction.

A state machine on the I/O thread. The clients call `initialize`, `begin`, `send_offsets`, `commit`
and `abort` there and wait for what comes; the Sender asks whether a partition may send, and tells
of batches that were lost. A lost record makes the transaction one that can only be aborted; being
shut out by a newer producer is the end. Names are those of the wire; it never waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.client.futures import Waiter
from millstream.client.producer.produce_sink import NOBODY, ProducerIdentity
from millstream.client.producer.transactions import requests
from millstream.client.producer.transactions.state import OPEN, TRANSITIONS, Ending, State
from millstream.client.targets import Coordinator
from millstream.errors import (
    ClientClosed,
    ClientError,
    FatalProducerError,
    MillstreamError,
    TransactionAborted,
)
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import EndTxnResponse, InitProducerIdResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.client.groups import ConsumerGroupMetadata, OffsetAndMetadata
    from millstream.client.producer.partition_state import PartitionState
    from millstream.client.producer.record_accumulator import RecordAccumulator
    from millstream.client.producer.sender import Sender
    from millstream.client.producer.sequences import Sequences
    from millstream.client.router import Call, RequestRouter
    from millstream.client.targets import Target
    from millstream.network.client.network_client import NetworkClient, VersionedRequest
    from millstream.protocol.message import Message
    from millstream.types import TopicPartition

_WITHOUT_LIMIT_MS: Final = 1 << 40
"""Calls go on until they have an answer: how long callers wait is their own limit."""


_SENDING: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING, State.ABORTING})
"""When batches may be sent."""


class TransactionManager:
    """One transactional id's transactions, one after the other."""

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        sequences: Sequences,
        accumulator: RecordAccumulator,
        sender: Sender,
        router: RequestRouter,
        network: NetworkClient,
    ) -> None:
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._sequences = sequences
        self._accumulator = accumulator
        self._sender = sender
        self._router = router
        self._network = network
        self.state = State.UNINITIALIZED
        self.error: MillstreamError | None = None
        """Why the transaction, or the producer, cannot go on."""
        self.is_implicit = False
        """Whether partitions and groups are added by themselves (KIP-890)."""
        self.ending = Ending()
        self._waiter: Waiter[None] = Waiter("the transaction")
        self._added: set[tuple[str, int]] = set()
        self._to_add: dict[tuple[str, int], None] = {}
        self._adding: dict[tuple[str, int], None] = {}
        self._is_started = False
        self._is_ending = False
        self._needs_new_epoch = False
        self._offsets_call: Call | None = None
        self._offsets_waiter: Waiter[None] | None = None

    # ---- what the clients call, on the I/O thread ----

    def initialize(self, now_ms: int) -> Waiter[None]:
        """Get an identity, and shut out older producers of the same id."""
        if self.state is State.UNINITIALIZED:
            self._begin_initializing("init_transactions", NOBODY, now_ms)
        elif self.state is not State.INITIALIZING:
            self._require(State.UNINITIALIZED, "init_transactions")
        return self._waiter

    def begin(self) -> None:
        """Begin a transaction; nothing is sent for that."""
        self._require(State.READY, "begin_transaction")
        self._is_implicit_now()
        self.ending.begin(None)
        self._move_to(State.IN_TRANSACTION)

    def commit(self, now_ms: int) -> Waiter[None]:
        """Commit once every record is acknowledged. Asked again, it is the same commit."""
        if not self.ending.is_asked_again(State.COMMITTING, self.state):
            self._require(State.IN_TRANSACTION, "commit_transaction")
            self._begin_ending(State.COMMITTING, "commit_transaction")
        return self._waiter

    def abort(self, now_ms: int) -> Waiter[None]:
        """Abort; records that were not sent yet are not sent. Asked again, it is the same abort."""
        if not self.ending.is_asked_again(State.ABORTING, self.state):
            if self.state is not State.ABORTABLE:
                self._require(State.IN_TRANSACTION, "abort_transaction")
            self._begin_ending(State.ABORTING, "abort_transaction")
            self._end_offsets(TransactionAborted("the transaction was aborted"))
            self._to_add.clear()
            self._drop_unsent()
        return self._waiter

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        now_ms: int,
    ) -> Waiter[None]:
        """Make a group's offsets part of the transaction."""
        self._require(State.IN_TRANSACTION, "send_offsets_to_transaction")
        waiter: Waiter[None] = Waiter("send_offsets_to_transaction")
        if not offsets:
            waiter.set_result(None)
            return waiter
        self._offsets_waiter = waiter

        def commit(answer: Message | None, at_ms: int) -> None:
            self._is_started = True
            request = requests.commit_offsets(
                self._id, self._sequences.identity, offsets, group, is_implicit=self.is_implicit
            )
            target = Coordinator("group", group.group_id)
            self._offsets_call = self._call(request, self._on_offsets, at_ms, target)

        if self.is_implicit:
            commit(None, now_ms)
        else:
            add = requests.add_offsets(self._id, self._sequences.identity, group.group_id)
            self._offsets_call = self._call(add, commit, now_ms)
        return waiter

    # ---- what any thread may ask ----

    def require_open(self) -> None:
        """Raise unless records may be sent now."""
        self._require(State.IN_TRANSACTION, "send")

    # ---- what the Sender calls ----

    def may_send(self, state: PartitionState) -> bool:
        """Whether batches of a partition may go: only inside of a transaction it is part of."""
        if self.state not in _SENDING:
            return False
        place = (state.wire_topic, state.partition)
        if self.is_implicit or place in self._added:
            return True
        if place not in self._adding:
            self._to_add[place] = None
        return False

    def on_sent(self) -> None:
        """A batch was sent: where partitions are added by themselves, the transaction has begun."""
        self._is_started = True

    def on_batch_failed(self, error: MillstreamError) -> None:
        """A batch was lost: so is the transaction."""
        if isinstance(error, TransactionAborted | ClientClosed):
            return
        self._fail(error)

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called again at the latest."""
        self._sequences.resolve()
        if self._sequences.lost_numbers is not None:
            # The batch that was lost has made it one to be aborted already.
            self._needs_new_epoch = True
        if self._to_add and not self._adding and self.state in OPEN:
            self._add_partitions(now_ms)
        is_ending = self.state in (State.COMMITTING, State.ABORTING) and not self._is_ending
        if is_ending and not self._adding and not self._accumulator.incomplete_count:
            self._end(now_ms)
        return None

    # ---- identities ----

    def _begin_initializing(self, what: str, identity: ProducerIdentity, now_ms: int) -> None:
        if self.state is State.UNINITIALIZED:
            self._waiter = Waiter(what)
        self._move_to(State.INITIALIZING)
        request = requests.init_producer_id(self._id, self._timeout_ms, identity)
        self._call(request, self._on_identity, now_ms)

    def _on_identity(self, answer: Message, now_ms: int) -> None:
        assert isinstance(answer, InitProducerIdResponse)
        self._sender.become(ProducerIdentity(answer.producer_id, answer.producer_epoch))
        self._is_implicit_now()
        self._finish()

    def _is_implicit_now(self) -> None:
        node_id = self._router.coordinator("transaction", self._id)
        if node_id is not None and self._network.is_connected(node_id):
            self.is_implicit = any(
                each.name == requests.FEATURE and each.level >= requests.IMPLICIT_LEVEL
                for each in self._network.features_of(node_id)
            )

    # ---- partitions ----

    def _add_partitions(self, now_ms: int) -> None:
        self._adding, self._to_add = self._to_add, {}

        def on_added(answer: Message, at_ms: int) -> None:
            self._is_started = True
            self._added.update(self._adding)
            self._adding = {}

        request = requests.add_partitions(self._id, self._sequences.identity, self._adding)
        self._call(request, on_added, now_ms)

    def _on_offsets(self, answer: Message, now_ms: int) -> None:
        waiter, self._offsets_waiter = self._offsets_waiter, None
        self._offsets_call = None
        if waiter is not None:
            waiter.set_result(None)

    def _end_offsets(self, error: MillstreamError) -> None:
        if self._offsets_call is not None:
            self._offsets_call.cancel()
            self._offsets_call = None
        waiter, self._offsets_waiter = self._offsets_waiter, None
        if waiter is not None:
            waiter.set_error(error)

    # ---- the end ----

    def _begin_ending(self, state: State, what: str) -> None:
        self._waiter = Waiter(what)
        self.ending.begin(state)
        self._move_to(state)
        self._accumulator.begin_flush()

    def _drop_unsent(self) -> None:
        self._sender.completion.fail_all(
            TransactionAborted("the transaction was aborted before the record was sent"),
            unsent_only=True,
        )

    def _end(self, now_ms: int) -> None:
        if not self._is_started:
            self._on_ended(None, now_ms)
            return
        self._is_ending = True
        request = requests.end_transaction(
            self._id,
            self._sequences.identity,
            commits=self.state is State.COMMITTING,
            is_implicit=self.is_implicit,
        )
        self._call(request, self._on_ended, now_ms)

    def _on_ended(self, answer: Message | None, now_ms: int) -> None:
        self._is_ending = False
        if isinstance(answer, EndTxnResponse) and answer.producer_id >= 0:
            self._sender.become(ProducerIdentity(answer.producer_id, answer.producer_epoch))
            self._needs_new_epoch = False
        if self._needs_new_epoch and not self.is_implicit:
            self._raise_epoch(now_ms)
        else:
            self._finish()

    def _raise_epoch(self, now_ms: int) -> None:
        node_id = self._router.coordinator("transaction", self._id)
        version = (
            None if node_id is None else self._network.version_of(node_id, ApiKey.INIT_PRODUCER_ID)
        )
        if version is not None and version < requests.BUMPS_FROM:
            self._die(
                FatalProducerError(
                    f"{self.error}; the broker is too old to go on after that: close the producer"
                )
            )
            return
        self._begin_initializing("abort_transaction", self._sequences.identity, now_ms)

    def _finish(self) -> None:
        """Ready for the next transaction."""
        was_open = self.state is not State.INITIALIZING or self._needs_new_epoch
        self._move_to(State.READY)
        if was_open:
            self._accumulator.end_flush()
        self._needs_new_epoch = False
        self._forget_transaction()
        self.error = None
        self._waiter.set_result(None)

    def _forget_transaction(self) -> None:
        self._added.clear()
        self._to_add.clear()
        self._adding = {}
        self._is_started = False

    # ---- errors ----

    def _fail(self, error: MillstreamError) -> None:
        if requests.is_fatal(error):
            self._die(error)
        elif self.state in (State.IN_TRANSACTION, State.COMMITTING):
            self._needs_new_epoch = self._needs_new_epoch or requests.needs_new_epoch(error)
            was_committing = self.state is State.COMMITTING
            self.error = error
            self._move_to(State.ABORTABLE)
            if was_committing:
                self._accumulator.end_flush()
                self._waiter.set_error(self._abortable_error())
            self._is_ending = False
            self._end_offsets(error)
            self._drop_unsent()

    def _die(self, error: MillstreamError) -> None:
        if self.state is State.FATAL:
            return
        self.error = error
        self.state = State.FATAL
        self._end_offsets(error)
        self._sender.fail(error)
        self._waiter.set_error(error)

    def _abortable_error(self) -> TransactionAborted:
        failure = TransactionAborted(
            f"the transaction cannot be committed and must be aborted: {self.error}"
        )
        failure.__cause__ = self.error
        return failure

    def _require(self, state: State, what: str) -> None:
        if self.state is state:
            return
        if self.state is State.FATAL:
            assert self.error is not None
            raise self.error
        if self.state is State.ABORTABLE:
            raise self._abortable_error()
        raise self.ending.refusal(what, self.state, state)

    def _move_to(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} to {state}"
        self.state = state
        if state not in _SENDING:
            self._sender.revoke_all()

    def _call(
        self,
        request: VersionedRequest,
        on_success: Callable[[Message, int], None],
        now_ms: int,
        target: Target | None = None,
    ) -> Call:

        def on_done(answer: Message | MillstreamError, at_ms: int) -> None:
            error = answer if isinstance(answer, MillstreamError) else requests.error_in(answer)
            if error is None:
                assert not isinstance(answer, MillstreamError)
                on_success(answer, at_ms)
            else:
                self._on_call_failed(error)

        return self._router.call(
            request,
            target or Coordinator("transaction", self._id),
            on_done,
            deadline_ms=now_ms + _WITHOUT_LIMIT_MS,
            now_ms=now_ms,
            error_of=requests.code_of,
        )

    def _on_call_failed(self, error: MillstreamError) -> None:
        self._adding = {}
        if self.state in (State.INITIALIZING, State.ABORTING) and not isinstance(
            error, ClientClosed
        ):
            # Without an identity, or without knowing how the transaction ended, nothing is left.
            self._die(error if requests.is_fatal(error) else _fatal(error))
        elif isinstance(error, ClientClosed):
            self._die(error)
        else:
            self._fail(error)


def _fatal(error: MillstreamError) -> ClientError:
    failure = FatalProducerError(f"{error}. Close this producer and make a new one")
    failure.__cause__ = error
    return failure
