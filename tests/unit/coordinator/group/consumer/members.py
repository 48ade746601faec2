"""Members of consumer groups that a test lets speak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.coordinator.decision import Caller
from millstream.coordinator.group.consumer.group import ConsumerGroup
from millstream.errors import ApiError
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from tests.unit.coordinator.group.world import GROUP, World

if TYPE_CHECKING:
    from millstream.types import Uuid

CALLER = Caller("tests", "/127.0.0.1", 1)
REBALANCE_MS = 10_000


class Consumer:
    """One member: it owns what it was given, and lets go when it is told to and obeys."""

    def __init__(self, world: World, name: str, *topics: str, **fields: Any) -> None:
        self.world = world
        self.name = name
        self.topics = topics or ("orders",)
        self.fields = fields
        self.epoch = 0
        self.owned: set[tuple[str, int]] = set()
        self.obeys = True
        self.caller = CALLER

    def send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse | ApiError:
        """A heartbeat with these fields."""
        request = self.request(**fields)
        answers: list[ConsumerGroupHeartbeatResponse | ApiError] = []
        self.world.groups.consumer_group_heartbeat(request, self.caller, answers.append)
        (answer,) = answers
        if not isinstance(answer, ApiError):
            self._take(answer)
        return answer

    def request(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        """The request with these fields."""
        return ConsumerGroupHeartbeatRequest(
            **{"group_id": GROUP, "member_id": self.name, "member_epoch": self.epoch, **fields}
        )

    def join(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Enter the group."""
        self.owned.clear()
        self.epoch = 0
        answer = self.send(**{**self.joining(), **fields})
        assert not isinstance(answer, ApiError), repr(answer)
        return answer

    def try_join(self, **fields: Any) -> ConsumerGroupHeartbeatResponse | ApiError:
        """Enter the group, or be refused."""
        return self.send(**{**self.joining(), **fields})

    def joining(self) -> dict[str, Any]:
        """What a member says that joins."""
        return {
            "member_epoch": 0,
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": list(self.topics),
            "topic_partitions": [],
            **self.fields,
        }

    def beat(self, *, says_owned: bool = True) -> ConsumerGroupHeartbeatResponse | ApiError:
        """An ordinary heartbeat."""
        return self.send(topic_partitions=self._said() if says_owned else None, **self._static())

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse | ApiError:
        """Go, for good or (-2) for a while."""
        answer = self.send(member_epoch=epoch, **self._static())
        self.owned.clear()
        return answer

    def _static(self) -> dict[str, Any]:
        return {key: value for key, value in self.fields.items() if key == "instance_id"}

    def _said(self) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        by_topic: dict[Uuid, list[int]] = {}
        for topic, partition in sorted(self.owned):
            topic_id = self.world.topics.topic_id(topic)
            assert topic_id is not None
            by_topic.setdefault(topic_id, []).append(partition)
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ]

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.member_epoch >= 0:
            self.epoch = answer.member_epoch
        if answer.assignment is None:
            return
        given = {
            (self.world.topics.topic_name(topic.topic_id) or "", partition)
            for topic in answer.assignment.topic_partitions
            for partition in topic.partitions
        }
        self.owned = given if self.obeys else self.owned | given


def group_of(world: World) -> ConsumerGroup:
    """The group of the tests."""
    group = world.shard.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    return group


def settle(world: World, *consumers: Consumer) -> None:
    """Let everybody speak until nothing changes."""
    for _ in range(20):
        before = [(each.epoch, frozenset(each.owned)) for each in consumers]
        for each in consumers:
            answer = each.beat()
            assert not isinstance(answer, ApiError), repr(answer)
        assert_exclusive(*consumers)
        if before == [(each.epoch, frozenset(each.owned)) for each in consumers]:
            return
    raise AssertionError("the group does not settle")


def assert_exclusive(*consumers: Consumer) -> None:
    """No partition is with two members."""
    owned = [each for consumer in consumers for each in consumer.owned]
    assert len(owned) == len(set(owned)), owned
