"""`SharePartitionManager`: the share partitions whose partitions this broker leads.

`ShareFetchService` and the handler of ShareAcknowledge ask for them; `node` gives it the time and
tells it of connections that are gone. It loads a share partition from the share coordinator when
somebody first wants it, keeps there what `SharePartition` decides, and lets locks end in time.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import Decision, Moment
from millstream.coordinator.gathering import gather
from millstream.coordinator.share.delivery import ShareLimits
from millstream.coordinator.share.partition import SharePartition
from millstream.coordinator.share.sessions import ShareSessionCache
from millstream.coordinator.share.state import (
    UNINITIALIZED_OFFSET,
    ShareKey,
    StateChange,
)
from millstream.coordinator.timers import TimerQueue
from millstream.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    InvalidRecordState,
    InvalidRequest,
    NotCoordinator,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownTopicOrPartition,
)
from millstream.server.share_reader import start_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from millstream.clock import Clock
    from millstream.coordinator.group.share.config import ShareGroupSettings
    from millstream.coordinator.share.delivery import Acknowledgement
    from millstream.coordinator.share.ports import ShareStateStore
    from millstream.coordinator.share.runs import StateUpdate
    from millstream.coordinator.share.sessions import SessionKey
    from millstream.coordinator.share.state import ShareState
    from millstream.replica.partition import Partition
    from millstream.replica.replica_manager import ReplicaManager
    from millstream.types import Uuid

_logger = logging.getLogger(__name__)

_NOT_NOW: Final = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
_LOST: Final = (
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    InvalidRequest,
    UnknownTopicOrPartition,
)
"""What the coordinator says when what is here is not true any more."""


class LedShare:
    """A share partition at its leader."""

    __slots__ = ("key", "leader_epoch", "partition", "records", "state_epoch", "waiting")

    def __init__(self, key: ShareKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state_epoch = 0
        self.records: SharePartition | None = None
        """None while it is being loaded."""
        self.waiting: list[Callable[[LedShare | ApiError], None]] = []

    def is_of(self, partition: Partition) -> bool:
        """Whether it belongs to this leadership."""
        return self.partition is partition and self.leader_epoch == partition.leader_epoch


class SharePartitionManager:
    """Share partitions by key, loaded when they are wanted."""

    def __init__(
        self,
        replicas: ReplicaManager,
        states: ShareStateStore,
        settings: Callable[[str], ShareGroupSettings],
        clock: Clock,
        arm: Callable[[int], object],
        *,
        sessions_max: int,
    ) -> None:
        """`settings` gives what holds for a group; `arm` asks for a `tick`."""
        self._replicas = replicas
        self._states = states
        self.settings = settings
        self._clock = clock
        self._arm = arm
        self.sessions = ShareSessionCache(sessions_max)
        self._led: dict[ShareKey, LedShare] = {}
        self._timers = TimerQueue()

    # Finding.

    def find(self, key: ShareKey, done: Callable[[LedShare | ApiError], None]) -> None:
        """A share partition that can be used, perhaps before the return; or why there is none."""
        try:
            partition = self._leader(key)
        except ApiError as error:
            self._drop(key)
            done(error)
            return
        led = self._led.get(key)
        if led is not None and not led.is_of(partition):
            self._drop(key)
            led = None
        if led is None:
            led = self._led[key] = LedShare(key, partition)
            led.waiting.append(done)
            self._states.read(key, led.leader_epoch, partial(self._loaded, led))
        elif led.records is None:
            led.waiting.append(done)
        else:
            self._refresh(led)
            done(led)

    def known(self, key: ShareKey) -> LedShare | None:
        """A share partition if it is loaded and still led here."""
        led = self._led.get(key)
        if led is None or led.records is None or not led.is_of(led.partition):
            return None
        if not led.partition.is_leader:
            return None
        self._refresh(led)
        return led

    def _leader(self, key: ShareKey) -> Partition:
        partition = self._replicas.partition(key.topic_id, key.partition)
        partition.require_role(needs_leader=True)
        return partition

    def _loaded(self, led: LedShare, state: ShareState | ApiError) -> None:
        outcome: LedShare | ApiError = led
        if isinstance(state, ApiError):
            outcome = _for_member(state)
        else:
            try:
                self._begin(led, state)
            except ApiError as error:
                outcome = error
        if isinstance(outcome, ApiError) and self._led.get(led.key) is led:
            del self._led[led.key]
        waiting, led.waiting = led.waiting, []
        for done in waiting:
            done(outcome)

    def _begin(self, led: LedShare, state: ShareState) -> None:
        settings = self.settings(led.key.group_id)
        begin = state.start_offset
        if begin == UNINITIALIZED_OFFSET:
            begin = start_offset(led.partition, settings, self._clock.wall_ms())
            # Kept at once: another leader must not begin somewhere else.
            change = StateChange(state.state_epoch, led.leader_epoch, begin, 0, ())
            self._states.write(led.key, change, lambda error: self._note_failure(led, error))
        led.state_epoch = state.state_epoch
        led.records = SharePartition(begin, state.batches, _limits(settings))
        self._refresh(led)

    def _refresh(self, led: LedShare) -> None:
        """What the log and the settings say now."""
        assert led.records is not None
        led.records.limits = _limits(self.settings(led.key.group_id))
        led.records.move_start(led.partition.log.log_start_offset)

    def topics_deleted(self, topics: Iterable[Uuid]) -> None:
        """Topics are gone, with all that groups had of them."""
        gone = set(topics)
        for key in [each for each in self._led if each.topic_id in gone]:
            self._drop(key)

    def _drop(self, key: ShareKey) -> None:
        self._led.pop(key, None)
        self._timers.cancel(key)

    # What members say.

    def acknowledge(
        self,
        key: ShareKey,
        member_id: str,
        said: Sequence[Acknowledgement],
        done: Callable[[ApiError | None], None],
    ) -> None:
        """Take what a member says about its records; all of it, or an error."""
        try:
            self._leader(key)
            led = self.known(key)
            if led is None or led.records is None:
                raise InvalidRecordState(f"nobody has records of {key.text}")
            update = led.records.acknowledge(member_id, said, self._clock.monotonic_ms())
        except ApiError as error:
            done(error)
            return
        if update is None:
            self.watch(led)
            done(None)
        else:
            self._keep(led, update, done, must_happen=False)

    def release(self, session: SessionKey, done: Callable[[], None] = lambda: None) -> None:
        """A member is gone: what it had is available again; `done` is called when that is kept."""
        updates = []
        for key, led in list(self._led.items()):
            if key.group_id == session.group_id and led.records is not None:
                update = led.records.release_member(session.member_id)
                if update is not None:
                    updates.append((led, update))

        def ask(
            change: tuple[LedShare, StateUpdate], answered: Callable[[ApiError | None], None]
        ) -> None:
            self._keep(*change, answered, must_happen=True)

        gather(updates, ask, lambda _: done())

    def close_session(self, session: SessionKey, done: Callable[[], None] = lambda: None) -> None:
        """A member's session ends; with the last of a group, so does what is known of it here.

        Whoever administers the group may change its state then.
        """

        def released() -> None:
            if not self.sessions.has_group(session.group_id):
                for key in [each for each in self._led if each.group_id == session.group_id]:
                    self._drop(key)
            done()

        closed = self.sessions.close(session)
        if closed is not None:
            # A fetch that waits must not take records for somebody who is gone.
            self._replicas.purgatory.check(closed)
        self.release(session, released)

    def connection_closed(self, connection: Hashable) -> None:
        """The members on a connection are gone."""
        for session in self.sessions.of_connection(connection):
            self.close_session(session)

    def _keep(
        self,
        led: LedShare,
        update: StateUpdate,
        done: Callable[[ApiError | None], None],
        *,
        must_happen: bool,
    ) -> None:
        """Let the coordinator keep a change; then it is true, or not.

        What `must_happen` does not depend on that: nobody has the records any more.
        """
        records = led.records
        assert records is not None
        change = StateChange(
            led.state_epoch,
            led.leader_epoch,
            update.start_offset,
            update.complete_count,
            update.batches,
        )

        def kept(error: ApiError | None) -> None:
            if error is None or must_happen:
                records.commit(update)
            else:
                records.rollback(update)
            self._note_failure(led, error)
            self.watch(led)
            self._replicas.purgatory.check(led.key)
            done(None if error is None else _for_member(error))

        self._states.write(led.key, change, kept)

    def _note_failure(self, led: LedShare, error: ApiError | None) -> None:
        if error is None:
            return
        _logger.warning("the state of %s could not be kept: %s", led.key.text, error)
        if isinstance(error, _LOST) and self._led.get(led.key) is led:
            self._drop(led.key)

    # Time.

    def watch(self, led: LedShare) -> None:
        """Let the locks of a share partition end in time."""
        deadline_ms = None if led.records is None else led.records.next_deadline_ms
        if deadline_ms is None or self._led.get(led.key) is not led:
            self._timers.cancel(led.key)
            return
        if self._timers.deadline_ms(led.key) != deadline_ms:
            self._timers.set(led.key, deadline_ms, lambda now: self._expire(led, now))
            self._arm(deadline_ms)

    def _expire(self, led: LedShare, now: Moment) -> Decision[None]:
        if led.records is not None and self._led.get(led.key) is led:
            update = led.records.expire(now.now_ms)
            if update is None:
                self.watch(led)
            else:
                self._keep(led, update, lambda _: None, must_happen=True)
        return Decision(None)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None if never."""
        return self._timers.next_deadline_ms

    def tick(self) -> None:
        """Let locks end."""
        now = Moment(self._clock.monotonic_ms(), self._clock.wall_ms())
        while (due := self._timers.pop_due(now.now_ms)) is not None:
            due[1](now)


def _limits(settings: ShareGroupSettings) -> ShareLimits:
    return ShareLimits(
        settings.record_lock_duration_ms,
        settings.delivery_count_limit,
        settings.partition_max_record_locks,
    )


def _for_member(error: ApiError) -> ApiError:
    """A coordinator's error in words that members of share groups understand."""
    if isinstance(error, _NOT_NOW):
        return OffsetNotAvailable(f"the state is not available now: {error}")
    if isinstance(error, FencedLeaderEpoch | FencedStateEpoch):
        return NotLeaderOrFollower(str(error))
    if isinstance(error, InvalidRequest | GroupIdNotFound):
        return UnknownTopicOrPartition(str(error))
    return error
