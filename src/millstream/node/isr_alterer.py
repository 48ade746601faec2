"""Carries ISR proposals of this broker's partitions to the controller, and its answers back.

An `IsrAlterer` of `replica.ports`. Proposals that come while a request is under way go together in
the next one. An answer that fails as a whole is handed on after a pause, so that those who propose
again at once do not keep the controller busy.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.controller.decision import RequestContext
from millstream.errors import NO_ERROR, UnknownServerError, error_for_code
from millstream.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.clock import Clock
    from millstream.errors import ApiError
    from millstream.node.timers import Timers
    from millstream.protocol.message import Message
    from millstream.protocol.messages.alter_partition import AlterPartitionResponsePartitionData
    from millstream.replica.isr import IsrProposal
    from millstream.replica.ports import IsrAnswered
    from millstream.server.ports import ControllerChannel
    from millstream.types import Uuid

RETRY_MS: Final = 50
_VERSION: Final = 3


class DecidedIsr(NamedTuple):
    """The controller's word on a partition."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class _Proposed(NamedTuple):
    proposal: IsrProposal
    done: IsrAnswered


class ControllerIsrAlterer:
    """Between the replica manager and the controller's channel."""

    def __init__(
        self,
        broker_id: int,
        channel: ControllerChannel,
        *,
        broker_epoch: Callable[[], int],
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._broker_id = broker_id
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._waiting: deque[_Proposed] = deque()
        self._is_in_flight = False
        self._failed: list[tuple[_Proposed, ApiError]] = []
        self._soon = timers.alarm(self._send)
        self._later = timers.alarm(self._hand_on_failures)

    def submit(self, proposal: IsrProposal, done: IsrAnswered) -> None:
        """Ask for another ISR; `done` is called later."""
        self._waiting.append(_Proposed(proposal, done))
        self._send_soon()

    def _send_soon(self) -> None:
        if self._waiting and not self._is_in_flight:
            self._soon.set(self._clock.monotonic_ms())

    def _send(self) -> None:
        if self._is_in_flight or not self._waiting:
            return
        self._is_in_flight = True
        sent, self._waiting = list(self._waiting), deque()
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        context = RequestContext("User:ANONYMOUS", now_ms, wall_ms, _VERSION)
        self._channel.submit(
            self._request(sent), context, lambda response: self._answered(sent, response)
        )

    def _request(self, sent: list[_Proposed]) -> AlterPartitionRequest:
        topics: dict[Uuid, AlterPartitionRequestTopicData] = {}
        for proposal, _ in sent:
            topic = topics.setdefault(
                proposal.topic_id, AlterPartitionRequestTopicData(topic_id=proposal.topic_id)
            )
            topic.partitions.append(
                AlterPartitionRequestPartitionData(
                    partition_index=proposal.partition.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch)
                        for broker_id, epoch in proposal.isr
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=list(topics.values()),
        )

    def _answered(self, sent: list[_Proposed], response: Message) -> None:
        assert isinstance(response, AlterPartitionResponse)
        self._is_in_flight = False
        self._send_soon()
        if response.error_code != NO_ERROR:
            error = error_for_code(response.error_code)
            self._failed += [(each, error) for each in sent]
            self._later.set(self._clock.monotonic_ms() + RETRY_MS)
            return
        answers = {
            (topic.topic_id, partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        for proposal, done in sent:
            done(_outcome(answers.get((proposal.topic_id, proposal.partition.partition))))

    def _hand_on_failures(self) -> None:
        failed, self._failed = self._failed, []
        for each, error in failed:
            each.done(error)


def _outcome(answer: AlterPartitionResponsePartitionData | None) -> DecidedIsr | ApiError:
    if answer is None:
        return UnknownServerError("the controller did not answer for the partition")
    if answer.error_code != NO_ERROR:
        return error_for_code(answer.error_code)
    return DecidedIsr(answer.leader_epoch, answer.partition_epoch, tuple(answer.isr))
