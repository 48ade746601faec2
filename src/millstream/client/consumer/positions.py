"""Finds where to read each partition: committed offsets, resets, and whether logs were truncated.

An actor of the client's runtime. It looks at the partitions that have no valid position, asks the
group, ListOffsets or OffsetForLeaderEpoch for all of them at once, and places them; the `Fetcher`
goes on from there. What an application has to decide by itself becomes an error in the
`FetchBuffer`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from millstream.client.consumer.completed_fetches import Failed, Placed
from millstream.client.consumer.starting_point import (
    LATEST_TIMESTAMP,
    AtTime,
    BeforeNow,
)
from millstream.client.consumer.subscription_state import Phase
from millstream.errors import (
    LogTruncation,
    MillstreamError,
    NoOffsetForPartition,
    OffsetOutOfRangeWithoutReset,
    is_retriable,
)
from millstream.network.client.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.fetch_buffer import FetchBuffer
    from millstream.client.consumer.offset_lookup import FoundOffset, OffsetLookup
    from millstream.client.consumer.starting_point import StartingPoint
    from millstream.client.consumer.subscription_state import PartitionState, SubscriptionState
    from millstream.client.groups import OffsetAndMetadata
    from millstream.types import TopicPartition

    Committed = dict[TopicPartition, OffsetAndMetadata | None]

_logger: Final = logging.getLogger(__name__)


class CommittedOffsets(Protocol):
    """Who knows what the group has committed."""

    def committed(
        self,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        on_done: Callable[[Committed | MillstreamError], None],
        *,
        deadline_ms: int,
    ) -> None:
        """Look it up; None for partitions of which nothing was committed."""


class Positions:
    """Places the partitions that have no position."""

    def __init__(
        self,
        config: ConsumerConfig,
        state: SubscriptionState,
        buffer: FetchBuffer,
        lookup: OffsetLookup,
        random: Random,
        wall_ms: Callable[[], int],
        refresh: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        """`refresh` tells the fetcher which partitions have changed. `wall_ms` is the time of day,
        for resets by duration."""
        self._config = config
        self._state = state
        self._buffer = buffer
        self._lookup = lookup
        self._random = random
        self._wall_ms = wall_ms
        self._refresh = refresh
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._missing: dict[TopicPartition, None] = {}  # In order: a run can be repeated.
        self.group: CommittedOffsets | None = None
        """Set by the core when the consumer has a group."""

    def poll(self, now_ms: int) -> int | None:
        """Ask for whatever is missing and not yet asked for; when to look again."""
        if not self._missing:
            return None
        found = [self._state.get(each) for each in self._missing]
        states = [each for each in found if each is not None and _is_missing(each)]
        self._missing = {each.partition: None for each in states}
        waiting = [each for each in states if not each.is_asked and not each.is_leaving]
        due = [each for each in waiting if each.not_before_ms <= now_ms]
        self._ask_committed([e for e in due if e.phase is Phase.AWAITING_COMMITTED], now_ms)
        self._ask_offsets([e for e in due if e.phase is Phase.AWAITING_OFFSET], now_ms)
        return self.due_ms()

    def due_ms(self) -> int | None:
        """When a partition that could not be placed is to be tried again."""
        found = [self._state.get(each) for each in self._missing]
        return min(
            [
                each.not_before_ms
                for each in found
                if each is not None
                and _is_missing(each)
                and not each.is_asked
                and not each.is_leaving
            ],
            default=None,
        )

    def begin(self, state: PartitionState, target: StartingPoint, run: int) -> None:
        """Have a partition placed, wherever it was."""
        state.begin(target, run)
        self._missing[state.partition] = None
        self._refresh([state.partition])

    def backoff_ms(self, failures: int) -> int:
        """How long to wait before a partition is tried again."""
        return self._backoff.after(failures, self._random)

    # ---- what the group has committed ----

    def _ask_committed(self, states: list[PartitionState], now_ms: int) -> None:
        if not states:
            return
        if self.group is None:
            for state in states:
                self._reset(state, _no_group(state))
            return  # They wait for their offsets now.
        runs = {each.partition: each.run for each in states}
        for state in states:
            state.is_asked = True

        def on_done(answer: Committed | MillstreamError) -> None:
            for partition, run in runs.items():
                state = self._state.current(partition, run)
                if state is None or state.phase is not Phase.AWAITING_COMMITTED:
                    continue
                if isinstance(answer, MillstreamError):
                    self._retry(state, answer, now_ms)
                else:
                    self._on_committed(state, answer.get(partition))

        deadline_ms = now_ms + self._config.default_api_timeout_ms
        self.group.committed(list(runs), now_ms, on_done, deadline_ms=deadline_ms)

    def _on_committed(self, state: PartitionState, committed: OffsetAndMetadata | None) -> None:
        state.is_asked = False
        if committed is None or committed.offset < 0:
            self._reset(
                state,
                NoOffsetForPartition(
                    f"{state.partition}: the group {self._config.group_id!r} has no committed "
                    "offset and auto_offset_reset is 'none'; seek, or set auto_offset_reset"
                ),
            )
        else:
            epoch = -1 if committed.leader_epoch is None else committed.leader_epoch
            self._place(state, committed.offset, epoch)

    # ---- times and ends ----

    def _ask_offsets(self, states: list[PartitionState], now_ms: int) -> None:
        waiting = [e for e in states if e.phase is Phase.AWAITING_OFFSET and not e.is_asked]
        if not waiting:
            return
        runs = {each.partition: each.run for each in waiting}
        times = {each.partition: self._timestamp(each.target) for each in waiting}
        for state in waiting:
            state.is_asked = True

        def on_done(
            answer: dict[TopicPartition, FoundOffset | None] | MillstreamError, done_ms: int
        ) -> None:
            for partition, run in runs.items():
                state = self._state.current(partition, run)
                if state is None or state.phase is not Phase.AWAITING_OFFSET:
                    continue
                if isinstance(answer, MillstreamError):
                    self._retry(state, answer, done_ms)
                else:
                    self._on_offset(state, answer.get(partition))

        deadline_ms = now_ms + self._config.default_api_timeout_ms
        self._lookup.find(times, on_done, deadline_ms=deadline_ms, now_ms=now_ms)

    def _timestamp(self, target: StartingPoint) -> int:
        if isinstance(target, BeforeNow):
            return max(0, self._wall_ms() - target.duration_ms)
        assert isinstance(target, AtTime)
        return target.timestamp

    def _on_offset(self, state: PartitionState, found: FoundOffset | None) -> None:
        state.is_asked = False
        if found is None:
            # Nothing is as new as that: what comes next will be.
            state.target = AtTime(LATEST_TIMESTAMP)
        else:
            # The epoch is of the record found, not of the one before it.
            self._place(state, found.offset, -1)

    # ---- outcomes ----

    def _place(self, state: PartitionState, offset: int, leader_epoch: int) -> None:
        state.failures = 0
        state.place(offset, leader_epoch)
        self._buffer.put(state.partition, state.run, Placed(offset, leader_epoch))
        self._refresh([state.partition])

    def _retry(self, state: PartitionState, error: MillstreamError, now_ms: int) -> None:
        state.is_asked = False
        if is_retriable(error):
            state.failures += 1
            state.not_before_ms = now_ms + self.backoff_ms(state.failures)
            _logger.debug("%s: no position yet: %s", state.partition, error)
        else:
            self._fail(state, error)

    def _reset(self, state: PartitionState, otherwise: MillstreamError) -> None:
        """Begin where the reset policy says; without one, the error is the application's."""
        target = self._config.reset
        if target is None:
            self._fail(state, otherwise)
        else:
            self.begin(state, target, state.run)

    def _fail(self, state: PartitionState, error: MillstreamError) -> None:
        state.phase = Phase.FAILED
        self._refresh([state.partition])
        self._buffer.put(state.partition, state.run, Failed(error))

    def retry_failed(self, partition: TopicPartition) -> None:
        """The application has seen the error: try again, unless it went elsewhere."""
        state = self._state.get(partition)
        if state is None or state.phase is not Phase.FAILED:
            return
        if state.offset >= 0:
            state.phase = Phase.FETCHING
            state.validated_epoch = -1
        else:
            self.begin(state, state.target, state.run)
        self._refresh([partition])

    # ---- logs that changed ----

    def on_out_of_range(self, state: PartitionState, now_ms: int) -> None:
        """The leader has no such offset: it was deleted, or the log ends before it."""
        _logger.info("%s: offset %d is out of range", state.partition, state.offset)
        self._reset(
            state,
            OffsetOutOfRangeWithoutReset(
                f"{state.partition}: offset {state.offset} is outside the log (deleted by "
                "retention, or the topic was made anew) and auto_offset_reset is 'none'; seek"
            ),
        )

    def on_diverged(self, state: PartitionState, epoch: int, end_offset: int, now_ms: int) -> None:
        """The log was rewritten from `end_offset` on; what we have fetched beyond is not in it."""
        if end_offset >= state.offset:
            return
        at = self._buffer.rewind(state.partition, state.run)
        if at is not None and at[0] <= end_offset:
            # The application has not yet seen any of what is gone.
            state.place(*at)
            return
        position = state.offset if at is None else at[0]
        if self._config.reset is None:
            self._fail(state, _truncated(state, position, epoch, end_offset))
            return
        _logger.warning(
            "%s: the log was truncated to offset %d (epoch %d) below the position %d; "
            "reading on from there",
            state.partition,
            end_offset,
            epoch,
            position,
        )
        self._place(state, end_offset, epoch)


def _is_missing(state: PartitionState) -> bool:
    return state.phase in (Phase.AWAITING_COMMITTED, Phase.AWAITING_OFFSET)


def _no_group(state: PartitionState) -> NoOffsetForPartition:
    return NoOffsetForPartition(
        f"{state.partition}: there is no group to ask for an offset and auto_offset_reset is "
        "'none'; seek, or set auto_offset_reset"
    )


def _truncated(state: PartitionState, position: int, epoch: int, end_offset: int) -> LogTruncation:
    return LogTruncation(
        f"{state.partition}: the log was truncated to offset {end_offset} (epoch {epoch}), below "
        f"the position {position}; records that were read are gone. Seek to {end_offset} to go on",
        divergent_offsets={state.partition: end_offset},
    )
