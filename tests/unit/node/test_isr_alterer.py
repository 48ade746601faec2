"""ISR proposals on their way to the controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from millstream.clock import ManualClock
from millstream.errors import ApiError, FencedLeaderEpoch, StaleBrokerEpoch, UnknownServerError
from millstream.node.isr_alterer import RETRY_MS, ControllerIsrAlterer, DecidedIsr
from millstream.node.timers import Timers
from millstream.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from millstream.replica.isr import IsrProposal
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.controller.decision import RequestContext
    from millstream.protocol.message import Message

TOPIC = Uuid(bytes([1]) * 16)


class Loop:
    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        return self

    def cancel(self) -> None:
        pass


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent: list[AlterPartitionRequest] = []
        self.reply: Callable[[Message], None] = lambda response: None
        self.answers: dict[int, object] = {}
        self.timers = Timers(cast("Any", Loop()), self.clock, self._fail)
        self.alterer = ControllerIsrAlterer(
            1, self, broker_epoch=lambda: 8, clock=self.clock, timers=self.timers
        )

    def _fail(self, error: Exception) -> None:
        raise error

    def submit(
        self, request: Message, context: RequestContext, callback: Callable[[Message], None]
    ) -> None:
        assert isinstance(request, AlterPartitionRequest)
        assert context.version >= 3
        self.sent.append(request)
        self.reply = callback

    def propose(self, partition: int) -> None:
        proposal = IsrProposal(TopicPartition("orders", partition), TOPIC, 5, 6, ((1, 8), (2, -1)))
        self.alterer.submit(proposal, lambda answer: self.answers.__setitem__(partition, answer))
        self.timers.fire_due()

    def answer(self, *partitions: AlterPartitionResponsePartitionData, error_code: int = 0) -> None:
        topic = AlterPartitionResponseTopicData(topic_id=TOPIC, partitions=list(partitions))
        self.reply(AlterPartitionResponse(error_code=error_code, topics=[topic]))
        self.timers.fire_due()


def decided(partition: int, error_code: int = 0) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=partition,
        error_code=error_code,
        leader_epoch=5,
        partition_epoch=7,
        isr=[1, 2],
    )


def partitions_of(request: AlterPartitionRequest) -> list[int]:
    return [each.partition_index for topic in request.topics for each in topic.partitions]


def test_a_proposal_is_sent_with_all_it_says() -> None:
    rig = Rig()

    rig.propose(0)

    (request,) = rig.sent
    (data,) = request.topics[0].partitions
    assert (request.broker_id, request.broker_epoch) == (1, 8)
    assert (data.leader_epoch, data.partition_epoch) == (5, 6)
    assert [(each.broker_id, each.broker_epoch) for each in data.new_isr_with_epochs] == [
        (1, 8),
        (2, -1),
    ]
    rig.answer(decided(0))
    assert rig.answers == {0: DecidedIsr(5, 7, (1, 2))}


def test_proposals_that_come_meanwhile_go_together() -> None:
    rig = Rig()
    for partition in range(3):
        rig.propose(partition)
    assert len(rig.sent) == 1

    rig.answer(decided(0))

    assert [partitions_of(request) for request in rig.sent] == [[0], [1, 2]]


def test_each_partition_gets_its_own_error() -> None:
    rig = Rig()
    rig.propose(0)

    rig.answer(decided(0, FencedLeaderEpoch.code))

    assert isinstance(rig.answers[0], FencedLeaderEpoch)


def test_a_partition_that_is_not_answered_for_is_an_error() -> None:
    rig = Rig()
    rig.propose(0)

    rig.answer()

    assert isinstance(rig.answers[0], UnknownServerError)


def test_an_answer_that_failed_as_a_whole_comes_after_a_pause() -> None:
    rig = Rig()
    rig.propose(0)

    rig.answer(error_code=StaleBrokerEpoch.code)

    assert rig.answers == {}
    rig.clock.advance(RETRY_MS)
    rig.timers.fire_due()
    assert isinstance(rig.answers[0], ApiError)
