"""The only module of raft with hands: performs the core's decisions over the ports, in order.

`node` makes one per process and calls it from one thread, usually the event loop: when a request,
an answer or the alarm comes, or the controller has records. It never waits; what takes time (a
flush on a worker thread, the network) is reported back when it is done.

A log that has no room stalls the replica: the decision that could not be performed stays first in
the queue and is tried again every now and then. Until it works the core is not stepped, so that it
never knows more than the disk; requests and submissions are refused, and nothing is acknowledged.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from millstream.errors import InvalidArgument, KafkaStorageError, MillstreamError
from millstream.raft.core import RaftCore
from millstream.raft.effects import (
    AcceptSubmission,
    AdvanceHighWatermark,
    AppendToLog,
    ChangeLeadership,
    CompleteShutdown,
    DeleteBefore,
    FlushLog,
    InstallSnapshot,
    PersistElection,
    RefuseSubmission,
    Respond,
    RespondWithRecords,
    RespondWithSnapshot,
    SendRequest,
    TruncateLog,
    Warn,
    WriteSnapshotChunk,
)
from millstream.raft.events import (
    LogFlushed,
    PruneLog,
    RequestFailed,
    RequestReceived,
    Resign,
    ResponseReceived,
    ShutDown,
    SnapshotCreated,
    SnapshotInstalled,
    Submit,
    Tick,
    UpgradeKRaftVersion,
)
from millstream.raft.leader_state import Leader
from millstream.raft.ports import LogStalled
from millstream.raft.recovery import read_quorum_of_snapshot, recover

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from millstream.clock import Clock
    from millstream.protocol.message import Message
    from millstream.raft.config import QuorumConfig
    from millstream.raft.effects import Effect
    from millstream.raft.events import Event
    from millstream.raft.ports import (
        Alarm,
        NetworkChannel,
        QuorumStateStore,
        RaftListener,
        ReplicatedLog,
    )
    from millstream.raft.replica import LocalNode
    from millstream.types import OffsetAndEpoch, ReadableBuffer

_logger = logging.getLogger(__name__)

STALL_RETRY_MS: Final = 250
"""How long a log that has no room is left alone."""
_STALL_TOLD_EVERY_MS: Final = 10_000
_WARNED_EVERY_MS: Final = 10_000
_WARNINGS_KEPT: Final = 100


class RaftDriver:
    """One replica at work. Not thread-safe: one thread calls everything.

    A QuorumFault out of any call is final: the replica has stopped, and so should the node. So is
    an error of the log or the store, of which `on_failure` hears.
    """

    def __init__(
        self,
        local: LocalNode,
        config: QuorumConfig,
        *,
        random: Random,
        clock: Clock,
        log: ReplicatedLog,
        store: QuorumStateStore,
        network: NetworkChannel,
        alarm: Alarm,
        listener: RaftListener,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._clock = clock
        self._log = log
        self._store = store
        self._network = network
        self._alarm = alarm
        self._listener = listener
        self._on_failure = on_failure
        self._effects: deque[Effect] = deque()
        self._events: deque[Event] = deque()
        self._notices: deque[Callable[[], None]] = deque()
        self._is_stepping = False
        self._is_notifying = False
        self._is_started = False
        self._obstacle: Exception | None = None
        self._has_failed = False
        self._stall_told_ms: int | None = None
        self._is_stall_told = False
        self._warned_ms: dict[str, int] = {}
        self._last_token = 0
        self._respond: dict[object, Callable[[Message], None]] = {}
        self._outcomes: dict[object, AcceptSubmission | RefuseSubmission] = {}
        self.core = RaftCore(local, config, random, recover(log, store, config, local.listener))

    # --- What others call ---

    def start(self) -> None:
        """Begin: a quorum of one has its leader when this returns, if its log flushes at once.

        Raises why the log or the store cannot be written.
        """
        self._effects += self.core.start(self._clock.monotonic_ms(), self._clock.wall_ms())
        self._run()
        if self._obstacle is not None:
            self._has_failed = True
            raise self._obstacle
        self._is_started = True

    def tick(self) -> None:
        """The alarm has gone off."""
        if self._obstacle is not None and not self._has_failed:
            self._obstacle = None
            self._run()
            if self._obstacle is not None:
                return
            if self._is_stall_told:
                self._is_stall_told = False
                _logger.info("the metadata log can be written again")
        self._happen(Tick())

    @property
    def obstacle(self) -> Exception | None:
        """Why nothing can be written at the moment, or any more; None while all is well."""
        return self._obstacle

    def handle(
        self, request: Message, version: int, listener: str, respond: Callable[[Message], None]
    ) -> None:
        """Take a request of another node or a tool; `respond` gets the answer, now or later.

        Raises a KafkaStorageError while the log cannot be written.
        """
        self._require_log()
        self._last_token += 1
        self._respond[self._last_token] = respond
        self._happen(RequestReceived(self._last_token, request, version, listener))

    def response_received(self, request_id: int, response: Message) -> None:
        """The network has an answer."""
        self._happen(ResponseReceived(request_id, response))

    def request_failed(self, request_id: int) -> None:
        """The network will have no answer."""
        self._happen(RequestFailed(request_id))

    def submit(self, epoch: int, records: Sequence[ReadableBuffer]) -> tuple[int, int]:
        """Give records to the log, if we lead `epoch`; their first offset and the one after.

        They are committed when the high watermark passes them. Raises the reason if not accepted.
        """
        self._last_token += 1
        return self._outcome_of(Submit(self._last_token, epoch, records))

    def upgrade_kraft_version(
        self, epoch: int, version: int, *, validates_only: bool = False
    ) -> tuple[int, int]:
        """Make the voters changeable; offsets as with `submit`, both the same if nothing was done.

        Raises the reason if it cannot be.
        """
        self._last_token += 1
        return self._outcome_of(
            UpgradeKRaftVersion(self._last_token, epoch, version, validates_only)
        )

    @property
    def next_offset(self) -> int:
        """The offset that the next submitted record will get, if nothing comes in between."""
        state = self.core.state
        return state.next_offset if isinstance(state, Leader) else self.core.outline.end_offset

    def snapshot_id(self, end_offset: int) -> OffsetAndEpoch:
        """The id for a snapshot of all records below an offset; InvalidArgument if it cannot be.

        What such a snapshot says about the quorum is in `core.history` at `end_offset - 1`.
        """
        return self.core.outline.snapshot_id(end_offset)

    def snapshot_created(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        """The state machine has written a snapshot, completely and durably."""
        self._happen(SnapshotCreated(snapshot_id, size))

    def prune_log(self, snapshot_id: OffsetAndEpoch) -> None:
        """Keep no more than this snapshot and what follows."""
        self._happen(PruneLog(snapshot_id))

    def resign(self, epoch: int) -> None:
        """Give up leadership of an epoch, if we have it."""
        self._happen(Resign(epoch))

    def shut_down(self, timeout_ms: int) -> None:
        """Hand over leadership; the listener hears when it is done."""
        if self._obstacle is None:
            self._happen(ShutDown(timeout_ms))
        else:
            # Nothing can be handed over, and the next start must find what is on disk.
            self._has_failed = True
            self._listener.shutdown_completed()

    # --- How it works ---

    def _outcome_of(self, event: Submit | UpgradeKRaftVersion) -> tuple[int, int]:
        assert not self._is_stepping, "a port must not submit"
        self._require_log()
        self._happen(event)
        outcome = self._outcomes.pop(event.token, None)
        if isinstance(outcome, AcceptSubmission):
            return outcome.base_offset, outcome.end_offset
        if isinstance(outcome, RefuseSubmission):
            raise outcome.error
        raise InvalidArgument("the replica was shut down")

    def _require_log(self) -> None:
        if self._obstacle is not None:
            raise KafkaStorageError(
                f"the controller cannot write its log: {self._obstacle}"
            ) from self._obstacle

    def _happen(self, event: Event) -> None:
        if self._has_failed:
            return
        self._events.append(event)
        if not self._is_stepping:
            self._run()

    def _run(self) -> None:
        """Perform, step while something has happened, and tell the listener in between.

        The listener is told between steps, so it may submit at once; what it is told then comes
        after what it is being told.
        """
        self._perform_all()
        self._step_all()
        if self._is_notifying:
            return
        self._is_notifying = True
        try:
            while self._notices:
                self._notices.popleft()()
        finally:
            self._is_notifying = False
        self._alarm.set(self._next_deadline_ms())

    def _next_deadline_ms(self) -> int | None:
        if self._has_failed:
            return None
        if self._obstacle is not None:
            return self._clock.monotonic_ms() + STALL_RETRY_MS
        return self.core.next_deadline_ms()

    def _step_all(self) -> None:
        while self._events and self._obstacle is None:
            event = self._events.popleft()
            now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
            self._effects += self.core.step(event, now_ms, wall_ms)
            self._perform_all()

    def _perform_all(self) -> None:
        self._is_stepping = True
        try:
            while self._effects and self._obstacle is None:
                self._perform(self._effects.popleft())
        finally:
            self._is_stepping = False

    def _stall(self, effect: Effect, error: LogStalled) -> None:
        """Keep what could not be done: it comes first when there is room again."""
        self._effects.appendleft(effect)
        self._obstacle = error
        self._tell(self._listener.stalled)
        now_ms, told_ms = self._clock.monotonic_ms(), self._stall_told_ms
        if self._is_started and (told_ms is None or now_ms - told_ms >= _STALL_TOLD_EVERY_MS):
            self._stall_told_ms, self._is_stall_told = now_ms, True
            _logger.error("the controller decides nothing until there is room again: %s", error)

    def _fail(self, error: Exception) -> None:
        """The log or the store does not have what the core believes it has: never go on."""
        self._obstacle, self._has_failed = error, True
        if self._is_started:
            self._on_failure(error)

    def _flush_stalled(self, effect: FlushLog, error: LogStalled) -> None:
        if not self._has_failed:
            self._stall(effect, error)
            if not self._is_stepping:
                self._run()

    def _warn(self, text: str) -> None:
        """The same thing once in a while: what is wrong is tried again many times a second."""
        now_ms = self._clock.monotonic_ms()
        told_ms = self._warned_ms.get(text)
        if told_ms is None or now_ms - told_ms >= _WARNED_EVERY_MS:
            if len(self._warned_ms) >= _WARNINGS_KEPT:
                self._warned_ms.clear()
            self._warned_ms[text] = now_ms
            _logger.warning("%s", text)

    def _tell(self, notice: Callable[..., None], *about: object) -> None:
        self._notices.append(partial(notice, *about))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SendRequest(request_id, peer, message):
                self._network.send(request_id, peer, message)
            case AcceptSubmission(token) | RefuseSubmission(token):
                self._outcomes[token] = effect
            case ChangeLeadership(leader_id, epoch):
                self._tell(self._listener.leadership_changed, leader_id, epoch)
            case CompleteShutdown():
                self._tell(self._listener.shutdown_completed)
            case Warn(text):
                self._warn(text)
            case Respond() | RespondWithRecords() | RespondWithSnapshot():
                self._answer(effect)
            case _:
                try:
                    self._perform_on_disk(effect)
                except LogStalled as error:
                    self._stall(effect, error)
                except (OSError, MillstreamError) as error:
                    self._fail(error)

    def _perform_on_disk(
        self,
        effect: PersistElection
        | AppendToLog
        | TruncateLog
        | FlushLog
        | AdvanceHighWatermark
        | WriteSnapshotChunk
        | InstallSnapshot
        | DeleteBefore,
    ) -> None:
        match effect:
            case PersistElection(election, kraft_version, voter_ids):
                self._store.write(election, kraft_version, voter_ids)
            case AppendToLog(batches):
                self._log.append(batches)
            case TruncateLog(offset):
                self._log.truncate_to(offset)
            case FlushLog(flush_id):
                self._log.flush(
                    lambda: self._happen(LogFlushed(flush_id)),
                    partial(self._flush_stalled, effect),
                )
            case AdvanceHighWatermark(offset):
                self._log.set_high_watermark(offset)
                self._tell(self._listener.committed, offset)
            case WriteSnapshotChunk(snapshot_id, position, data):
                self._log.write_snapshot(snapshot_id, position, data)
            case InstallSnapshot(snapshot_id, size):
                self._install(snapshot_id, size)
            case DeleteBefore(snapshot_id):
                self._log.delete_before(snapshot_id)
            case _:
                assert_never(effect)

    def _install(self, snapshot_id: OffsetAndEpoch, size: int) -> None:
        self._log.install_snapshot(snapshot_id)
        kraft_version, voters = read_quorum_of_snapshot(self._log, snapshot_id)
        # Before anything that is waiting: the core does not know its voters until then.
        self._events.appendleft(SnapshotInstalled(snapshot_id, size, kraft_version, voters))
        self._tell(self._listener.snapshot_installed, snapshot_id)

    def _answer(self, effect: Respond | RespondWithRecords | RespondWithSnapshot) -> None:
        try:
            match effect:
                case RespondWithRecords(_, response, offset, bytes_max):
                    records = self._log.read(offset, bytes_max)
                    response.responses[0].partitions[0].records = records
                case RespondWithSnapshot(_, response, snapshot_id, position, bytes_max):
                    piece = self._log.read_snapshot(snapshot_id, position, bytes_max)
                    response.topics[0].partitions[0].unaligned_records = piece
        except (OSError, KafkaStorageError):
            # No descriptor is left, or worse: the asker comes again.
            effect.message.error_code = KafkaStorageError.code  # type: ignore[attr-defined]
        self._respond.pop(effect.token)(effect.message)
