"""Asks brokers before Fetch v12 whether a log still has what was read: OffsetForLeaderEpoch.

An actor of the client's runtime. When a partition has a new leader, its records up to our position
may have been replaced; newer brokers compare at each fetch, older ones are asked here, one request
to each leader. What follows from a difference, `Positions` decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.client.consumer.subscription_state import Phase
from millstream.protocol.messages import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from millstream.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.client.consumer.positions import Positions
    from millstream.client.consumer.subscription_state import PartitionState, SubscriptionState
    from millstream.client.runtime import ClientRuntime
    from millstream.errors import MillstreamError
    from millstream.protocol.message import Message
    from millstream.protocol.messages.offset_for_leader_epoch import EpochEndOffset


class EpochValidation:
    """Validates the positions that wait for it."""

    def __init__(
        self,
        runtime: ClientRuntime,
        state: SubscriptionState,
        positions: Positions,
        refresh: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        self._metadata = runtime.metadata
        self._network = runtime.network
        self._state = state
        self._positions = positions
        self._refresh = refresh
        self._waiting: dict[TopicPartition, None] = {}  # In order: a run can be repeated.

    def validate(self, state: PartitionState) -> None:
        """Fetch no more of a partition until its leader has said that the log is the same."""
        state.phase = Phase.VALIDATING
        self._waiting[state.partition] = None

    def poll(self, now_ms: int) -> int | None:
        """Ask about whatever is to be validated; when to look again."""
        if not self._waiting:
            return None
        found = [self._state.get(each) for each in self._waiting]
        states = [e for e in found if e is not None and e.phase is Phase.VALIDATING]
        self._waiting = {each.partition: None for each in states}
        waiting = [each for each in states if not each.is_asked]
        by_leader: dict[int, list[PartitionState]] = {}
        for each in waiting:
            leader = self._metadata.snapshot.leader(each.partition.topic, each.partition.partition)
            if each.not_before_ms <= now_ms and leader is not None:
                by_leader.setdefault(leader.leader_id, []).append(each)
        for node_id, states in by_leader.items():
            self._ask(node_id, states, now_ms)
        return min(
            (each.not_before_ms for each in waiting if each.not_before_ms > now_ms), default=None
        )

    def _ask(self, node_id: int, states: list[PartitionState], now_ms: int) -> None:
        runs = {each.partition: (each.run, self._leader_epoch(each)) for each in states}
        for each in states:
            each.is_asked = True

        def on_done(answer: Message | MillstreamError, done_ms: int) -> None:
            answers: dict[TopicPartition, EpochEndOffset] = {}
            if isinstance(answer, OffsetForLeaderEpochResponse):
                answers = {
                    TopicPartition(topic.topic, each.partition): each
                    for topic in answer.topics
                    for each in topic.partitions
                }
            for partition, (run, epoch) in runs.items():
                state = self._state.current(partition, run)
                if state is not None and state.phase is Phase.VALIDATING:
                    state.is_asked = False
                    self._take(state, answers.get(partition), epoch, done_ms)
            self._refresh(runs)

        self._network.send(node_id, self._request(states), now_ms, on_done)

    def _leader_epoch(self, state: PartitionState) -> int:
        known = self._metadata.snapshot.partition(state.partition.topic, state.partition.partition)
        return -1 if known is None else known.leader_epoch

    def _request(self, states: list[PartitionState]) -> OffsetForLeaderEpochRequest:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for state in states:
            name = state.partition.topic
            topics.setdefault(name, OffsetForLeaderTopic(topic=name)).partitions.append(
                OffsetForLeaderPartition(
                    partition=state.partition.partition,
                    current_leader_epoch=self._leader_epoch(state),
                    leader_epoch=state.last_epoch,
                )
            )
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values()))

    def _take(
        self, state: PartitionState, answer: EpochEndOffset | None, epoch: int, now_ms: int
    ) -> None:
        if answer is None or answer.error_code:
            state.failures += 1
            state.not_before_ms = now_ms + self._positions.backoff_ms(state.failures)
            self._metadata.request_update()
            return
        state.failures = 0
        state.phase = Phase.FETCHING
        state.validated_epoch = epoch
        if answer.end_offset >= 0:
            self._positions.on_diverged(state, answer.leader_epoch, answer.end_offset, now_ms)
