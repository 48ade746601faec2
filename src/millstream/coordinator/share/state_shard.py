"""`ShareStateShard`: the share partitions of one partition of `__share_group_state`.

The runtime asks it for decisions and replays their records into it. Most changes are written as
they come; after so many of them all of the state is written, so that the log can be shortened.
Rule 9 of section 6.10 of the facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.coordinator.decision import CoordinatorRecord, Decision
from millstream.coordinator.share.state import (
    UNINITIALIZED_OFFSET,
    UNKNOWN_EPOCH,
    ShareKey,
    ShareState,
    StateSummary,
    merged,
    read_batches,
)
from millstream.coordinator.timers import TimerQueue
from millstream.errors import (
    ApiError,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareSnapshotValueStateBatch,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
)

if TYPE_CHECKING:
    from millstream.coordinator.decision import Moment, ProducerStamp
    from millstream.coordinator.share.config import ShareCoordinatorConfig
    from millstream.coordinator.share.ports import ShareTopics, StateLog
    from millstream.coordinator.share.state import StateBatch, StateChange
    from millstream.protocol.message import Message

_PRUNE: Final = "prune"
"""The key of the timer that looks for records that nobody needs."""


class ShareStateShard:
    """A `CoordinatorShard` of share partitions."""

    def __init__(
        self, partition: int, config: ShareCoordinatorConfig, topics: ShareTopics, log: StateLog
    ) -> None:
        self.timers = TimerQueue()
        """What it wants to decide when."""
        self.states: dict[ShareKey, ShareState] = {}
        self._partition = partition
        self._config = config
        self._topics = topics
        self._log = log
        self._update_counts: dict[ShareKey, int] = {}
        self._record_count = 0
        """How many records there are that a snapshot of everything would replace."""

    # Decisions.

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int, now: Moment
    ) -> Decision[None]:
        """Begin a share partition; what was known of it is forgotten."""
        self._require_partition(key)
        known = self.states.get(key)
        if known is not None and state_epoch < known.state_epoch:
            raise FencedStateEpoch(
                f"{key.text} is in state epoch {known.state_epoch}, not {state_epoch}"
            )
        begun = ShareState(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0 if known is None else known.leader_epoch,
            start_offset=start_offset,
            created_ms=now.wall_ms,
            written_ms=now.wall_ms,
        )
        self._watch(now)
        return Decision(None, [snapshot_record(key, begun)])

    def read(self, key: ShareKey, leader_epoch: int, now: Moment) -> Decision[ShareState]:
        """The state, for a leader; leaders of earlier epochs may not write any more."""
        self._require_partition(key)
        known = self.states.get(key)
        if known is None:
            raise InvalidRequest(f"{key.text} was never initialized")
        self._require_leader(key, known, leader_epoch)
        if leader_epoch <= known.leader_epoch:
            return Decision(known)
        taken = known._replace(leader_epoch=leader_epoch)
        return Decision(taken, [self._record(key, taken, (), now)])

    def write(self, key: ShareKey, change: StateChange, now: Moment) -> Decision[None]:
        """Keep what a leader says."""
        self._require_partition(key)
        known = self.states.get(key)
        if known is None:
            raise InvalidRequest(f"{key.text} was never initialized")
        self._require_leader(key, known, change.leader_epoch)
        if change.state_epoch != UNKNOWN_EPOCH and change.state_epoch < known.state_epoch:
            raise FencedStateEpoch(
                f"{key.text} is in state epoch {known.state_epoch}, not {change.state_epoch}"
            )
        start_offset = max(change.start_offset, known.start_offset)
        after = known._replace(
            leader_epoch=max(change.leader_epoch, known.leader_epoch),
            start_offset=start_offset,
            complete_count=change.complete_count,
            batches=merged(known.batches, change.batches, start_offset),
        )
        return Decision(None, [self._record(key, after, change.batches, now)])

    def delete(self, key: ShareKey) -> Decision[None]:
        """Forget a share partition; one that is not known is forgotten already."""
        if key not in self.states:
            return Decision(None)
        return Decision(None, [CoordinatorRecord(_snapshot_key(key), None)])

    def summarize(self, key: ShareKey, leader_epoch: int) -> StateSummary:
        """How far a share partition has come; one that is not known has not begun."""
        self._require_partition(key)
        known = self.states.get(key)
        if known is None:
            return StateSummary(0, 0, UNINITIALIZED_OFFSET, -1)
        self._require_leader(key, known, leader_epoch)
        return StateSummary(
            known.state_epoch, known.leader_epoch, known.start_offset, known.complete_count
        )

    def _require_partition(self, key: ShareKey) -> None:
        name = self._topics.topic_name(key.topic_id)
        count = None if name is None else self._topics.partition_count(name)
        if count is None or not 0 <= key.partition < count:
            raise UnknownTopicOrPartition(f"{key.topic_id} has no partition {key.partition}")

    def _require_leader(self, key: ShareKey, known: ShareState, leader_epoch: int) -> None:
        if UNKNOWN_EPOCH != leader_epoch < known.leader_epoch:
            raise FencedLeaderEpoch(
                f"{key.text} is led in epoch {known.leader_epoch}, not {leader_epoch}"
            )

    def _record(
        self, key: ShareKey, after: ShareState, batches: tuple[StateBatch, ...], now: Moment
    ) -> CoordinatorRecord:
        """A change, or all of the state if there were many changes."""
        self._watch(now)
        if self._update_counts.get(key, 0) < self._config.updates_per_snapshot:
            return _update_record(key, after, batches)
        return snapshot_record(key, _next_snapshot(after, now))

    # Shortening the log.

    def _watch(self, now: Moment) -> None:
        due_ms = now.now_ms + self._config.prune_interval_ms
        self.timers.set_if_absent(_PRUNE, due_ms, self._prune)

    def _prune(self, now: Moment) -> Decision[None]:
        """Write all of the state once more if that frees more than it costs.

        What is before these records is needed by nobody when they are committed.
        """
        self._watch(now)
        if self._record_count < 2 * len(self.states) + 1:
            return Decision(None)
        end_offset = self._log.end_offset(self._partition)

        def on_committed(error: ApiError | None) -> None:
            if error is None:
                self._record_count = len(self.states)
                self._log.delete_before(self._partition, end_offset)

        records = [
            snapshot_record(key, _next_snapshot(state, now)) for key, state in self.states.items()
        ]
        return Decision(None, records, on_committed=on_committed, is_atomic=False)

    # Replay.

    def replay(self, key: Message, value: Message | None, stamp: ProducerStamp | None) -> None:
        """A share partition has another state."""
        assert isinstance(key, ShareSnapshotKey | ShareUpdateKey)
        name = ShareKey(key.group_id, key.topic_id, key.partition)
        self._record_count += 1
        if value is None:
            self.states.pop(name, None)
            self._update_counts.pop(name, None)
        elif isinstance(value, ShareSnapshotValue):
            self.states[name] = _state_of(value)
            self._update_counts[name] = 0
        else:
            assert isinstance(value, ShareUpdateValue)
            self._replay_update(name, value)

    def _replay_update(self, name: ShareKey, value: ShareUpdateValue) -> None:
        known = self.states.get(name)
        if known is None:
            # Its snapshot is deleted: so is the share partition.
            return
        start_offset = max(value.start_offset, known.start_offset)
        self.states[name] = known._replace(
            leader_epoch=value.leader_epoch,
            start_offset=start_offset,
            complete_count=value.delivery_complete_count,
            batches=merged(known.batches, read_batches(value.state_batches), start_offset),
        )
        self._update_counts[name] = self._update_counts.get(name, 0) + 1

    def replay_end_of_transaction(self, stamp: ProducerStamp, *, is_committed: bool) -> None:
        """No transaction writes to the topic of the states."""

    def loaded(self, now_ms: int) -> None:
        """Shorten the log in due time."""
        if self.states:
            self.timers.set(_PRUNE, now_ms + self._config.prune_interval_ms, self._prune)

    def unloaded(self, error: ApiError) -> None:
        """Nobody waits here."""
        self.timers.clear()


def snapshot_record(key: ShareKey, state: ShareState) -> CoordinatorRecord:
    """All of a state."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=[
            ShareSnapshotValueStateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=each.state,
                delivery_count=each.delivery_count,
            )
            for each in state.batches
        ],
    )
    return CoordinatorRecord(_snapshot_key(key), value)


def _update_record(
    key: ShareKey, after: ShareState, batches: tuple[StateBatch, ...]
) -> CoordinatorRecord:
    value = ShareUpdateValue(
        snapshot_epoch=after.snapshot_epoch,
        leader_epoch=after.leader_epoch,
        start_offset=after.start_offset,
        delivery_complete_count=after.complete_count,
        state_batches=[
            ShareUpdateValueStateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=each.state,
                delivery_count=each.delivery_count,
            )
            for each in batches
        ],
    )
    update_key = ShareUpdateKey(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    return CoordinatorRecord(update_key, value)


def _next_snapshot(state: ShareState, now: Moment) -> ShareState:
    return state._replace(snapshot_epoch=state.snapshot_epoch + 1, written_ms=now.wall_ms)


def _snapshot_key(key: ShareKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def _state_of(value: ShareSnapshotValue) -> ShareState:
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        read_batches(value.state_batches),
        value.create_timestamp,
        value.write_timestamp,
    )
