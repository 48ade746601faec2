"""`TransactionShard`: the transactions of one partition of `__transaction_state`.

The runtime asks it for decisions and replays their records into it. The rules are in
`initialization`, `membership` and `ending`; here they are applied to the ids that this partition
has, and the time is watched: transactions that are open too long, ids that nobody uses.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from millstream.coordinator.decision import Decision, ProducerStamp
from millstream.coordinator.timers import TimerQueue
from millstream.coordinator.transaction import ending, initialization, membership
from millstream.coordinator.transaction.metadata import (
    TransactionMetadata,
    TransactionState,
    from_record,
)
from millstream.coordinator.transaction.ports import EndedTransaction
from millstream.errors import ConcurrentTransactions, InvalidProducerIdMapping
from millstream.protocol.messages.transaction_records import (
    TransactionLogKey,
    TransactionLogValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.coordinator.decision import CoordinatorRecord, Moment
    from millstream.coordinator.transaction.config import TransactionConfig
    from millstream.coordinator.transaction.ending import EndRequest
    from millstream.coordinator.transaction.ports import MarkerSender
    from millstream.errors import ApiError
    from millstream.protocol.message import Message
    from millstream.types import TopicPartition

_RESUME: Final = "resume"
_EXPIRE_IDS: Final = "expire ids"
_SEND_ENDS: Final = "send ends"


class Missing(Enum):
    """Why a decision cannot be taken yet."""

    PRODUCER_ID = "a producer id"


NEEDS_PRODUCER_ID: Final = Missing.PRODUCER_ID
"""The answer of a decision that must be asked again with a new producer id."""

ProducerAnswer: TypeAlias = "ProducerStamp | ApiError | Literal[Missing.PRODUCER_ID]"


class TransactionShard:
    """Transactional ids, what they are doing, and until when."""

    def __init__(
        self, partition: int, epoch: int, config: TransactionConfig, markers: MarkerSender
    ) -> None:
        self.timers = TimerQueue()
        self.transactions: dict[str, TransactionMetadata] = {}
        self._decided: tuple[object, TransactionMetadata] | None = None
        """The last record that was made, and its state, which has more than the record keeps."""
        self._partition = partition
        self._epoch = epoch
        self._config = config
        self._markers = markers

    # Decisions.

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerStamp | None,
        new_id: int | None,
        now: Moment,
    ) -> Decision[ProducerAnswer]:
        """A producer begins to use a transactional id; all before it are fenced."""
        known = self.transactions.get(transactional_id)
        if known is None:
            if new_id is None:
                return Decision(NEEDS_PRODUCER_ID)
            known = TransactionMetadata(transactional_id, new_id)
            new_id = None
        initialization.require_valid_producer(known, expected)
        if known.state is TransactionState.ONGOING:
            answer = ConcurrentTransactions("an open transaction is aborted first; try again")
            return self._end(ending.fenced(known, now.wall_ms), answer, now)
        if not initialization.needs_new_id(known, expected):
            new_id = None
        elif new_id is None:
            return Decision(NEEDS_PRODUCER_ID)
        begun = initialization.initialized(known, expected, timeout_ms, new_id, now.wall_ms)
        self.timers.set_if_absent(_EXPIRE_IDS, self._next_expiry_ms(now), self._expire_ids)
        answer_now = ProducerStamp(begun.producer_id, begun.producer_epoch)
        return Decision(answer_now, [self._record(begun)])

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerStamp,
        partitions: Iterable[TopicPartition],
        client_version: int,
        now: Moment,
    ) -> Decision[None]:
        """Partitions will be written to: they must hear of the end."""
        known = self._known(transactional_id)
        membership.require_producer(known, producer)
        added = membership.with_partitions(known, partitions, client_version, now.wall_ms)
        if added is None:
            return Decision(None)
        if known.state is not TransactionState.ONGOING:
            self._watch(transactional_id, now.now_ms + known.timeout_ms)
        return Decision(None, [self._record(added)])

    def missing_partitions(
        self,
        transactional_id: str,
        producer: ProducerStamp,
        partitions: Iterable[TopicPartition],
    ) -> set[TopicPartition]:
        """Those that do not belong to the open transaction."""
        known = self._known(transactional_id)
        membership.require_producer(known, producer)
        return set(partitions) - known.partitions

    def end(
        self, transactional_id: str, request: EndRequest, new_id: int | None, now: Moment
    ) -> Decision[ProducerAnswer]:
        """Commit or abort; the answer is the producer to go on with."""
        known = self._known(transactional_id)
        if not ending.is_end_wanted(known, request):
            return Decision(ProducerStamp(*known.producer_after_end))
        if ending.needs_new_id(known, request):
            if new_id is None:
                return Decision(NEEDS_PRODUCER_ID)
        else:
            new_id = None
        decided = ending.prepared(known, request, new_id, now.wall_ms)
        return self._end(decided, ProducerStamp(*decided.producer_after_end), now)

    def markers_written(self, ended: EndedTransaction, now: Moment) -> Decision[None]:
        """Every partition knows the end."""
        known = self.transactions.get(ended.transactional_id)
        if known is None or not known.state.is_ending or _stamp(known) != ended.producer:
            return Decision(None)

        def on_committed(error: ApiError | None) -> None:
            if error is not None:
                self._look_again(now)

        record = self._record(ending.completed(known, now.wall_ms))
        return Decision(None, [record], on_committed=on_committed)

    def _end(
        self, decided: TransactionMetadata, answer: ProducerStamp | ApiError, now: Moment
    ) -> Decision[ProducerAnswer]:
        def on_committed(error: ApiError | None) -> None:
            if error is None:
                self._markers.send(self._ended(decided))
            else:
                # It may be in the log all the same, and be committed later.
                self._look_again(now)

        return Decision(answer, [self._record(decided)], on_committed=on_committed)

    def _look_again(self, now: Moment) -> None:
        self.timers.set_if_absent(_SEND_ENDS, now.now_ms, self._send_ends)

    def _send_ends(self, now: Moment) -> Decision[None]:
        """Bring every end that is decided to its partitions, once that is committed."""

        def on_committed(error: ApiError | None) -> None:
            if error is None:
                for known in list(self.transactions.values()):
                    if known.state.is_ending:
                        self._markers.send(self._ended(known))

        return Decision(None, on_committed=on_committed)

    # Time.

    def loaded(self, now_ms: int) -> None:
        """Go on with what the coordinator before has begun."""
        self.timers.set(_RESUME, now_ms, self._resume)

    def unloaded(self, error: ApiError) -> None:
        """Nobody waits here; another broker goes on with the transactions."""
        self.timers.clear()
        self._markers.forget(self._partition)

    def _resume(self, now: Moment) -> Decision[None]:
        for known in self.transactions.values():
            if known.state is TransactionState.ONGOING:
                left_ms = known.start_ms + known.timeout_ms - now.wall_ms
                self._watch(known.transactional_id, now.now_ms + max(left_ms, 0))
        if self.transactions:
            self.timers.set_if_absent(_EXPIRE_IDS, self._next_expiry_ms(now), self._expire_ids)
        return self._send_ends(now)

    def _watch(self, transactional_id: str, deadline_ms: int) -> None:
        self.timers.set(
            (transactional_id,), deadline_ms, lambda now: self._time_out(transactional_id, now)
        )

    def _time_out(self, transactional_id: str, now: Moment) -> Decision[None]:
        known = self.transactions.get(transactional_id)
        if known is None or known.state is not TransactionState.ONGOING:
            return Decision(None)
        decision = self._end(ending.fenced(known, now.wall_ms), _stamp(known), now)
        return Decision(None, decision.records, on_committed=decision.on_committed)

    def _expire_ids(self, now: Moment) -> Decision[None]:
        oldest_ms = now.wall_ms - self._config.id_expiration_ms
        expired = [
            known
            for known in self.transactions.values()
            if known.state.is_idle and known.last_update_ms <= oldest_ms
        ]
        if len(expired) < len(self.transactions):
            self.timers.set(_EXPIRE_IDS, self._next_expiry_ms(now), self._expire_ids)
        return Decision(None, [known.tombstone() for known in expired], is_atomic=False)

    def _next_expiry_ms(self, now: Moment) -> int:
        return now.now_ms + self._config.id_cleanup_interval_ms

    # Replay.

    def replay(self, key: Message, value: Message | None, stamp: ProducerStamp | None) -> None:
        """A transactional id has a new state, or is forgotten."""
        assert isinstance(key, TransactionLogKey)
        if value is None:
            self.transactions.pop(key.transactional_id, None)
            self.timers.cancel((key.transactional_id,))
            return
        assert isinstance(value, TransactionLogValue)
        decided = self._decided
        if decided is not None and decided[0] is value:
            replayed = decided[1]
        else:
            replayed = from_record(key, value)
        self.transactions[key.transactional_id] = replayed
        if replayed.state is not TransactionState.ONGOING:
            self.timers.cancel((key.transactional_id,))

    def replay_end_of_transaction(self, stamp: ProducerStamp, *, is_committed: bool) -> None:
        """No transaction writes to the topic of the transactions."""

    def _record(self, decided: TransactionMetadata) -> CoordinatorRecord:
        """The record of a state, which is the one that its replay brings about."""
        record = decided.record()
        self._decided = (record.value, decided)
        return record

    # What there is.

    def _known(self, transactional_id: str) -> TransactionMetadata:
        known = self.transactions.get(transactional_id)
        if known is None:
            raise InvalidProducerIdMapping(f"{transactional_id!r} has no producer")
        return known

    def _ended(self, decided: TransactionMetadata) -> EndedTransaction:
        return EndedTransaction(
            decided.transactional_id,
            _stamp(decided),
            self._partition,
            self._epoch,
            decided.partitions,
            decided.state is TransactionState.PREPARE_COMMIT,
            decided.client_version,
        )


def _stamp(known: TransactionMetadata) -> ProducerStamp:
    return ProducerStamp(known.producer_id, known.producer_epoch)
