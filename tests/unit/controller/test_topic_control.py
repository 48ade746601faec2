"""Creating and deleting topics, adding partitions: facts 6.6(15) and 6.13(4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.controller.controls import ControllerSeams
from millstream.errors import PolicyViolation, ThrottlingQuotaExceeded
from millstream.protocol.messages import create_partitions, create_topics, delete_topics
from millstream.protocol.messages.config_records import ConfigRecord
from millstream.protocol.messages.topic_records import (
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from millstream.storage.log.config import LogConfig
from millstream.types import Uuid
from tests.unit.controller.rig import Rig, directory, new_topic

if TYPE_CHECKING:
    from millstream.controller.decision import RequestContext
    from millstream.controller.ports import NewTopic


def create(rig: Rig, *topics: create_topics.CreatableTopic, **fields: Any) -> Any:
    return rig.ask(create_topics.CreateTopicsRequest(topics=list(topics), **fields))


def test_rule_15_minus_one_takes_the_defaults() -> None:
    rig = Rig([0, 1, 2], num_partitions=4, default_replication_factor=2)

    result = rig.create("t")

    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 2)
    assert result.topic_id == rig.topic_id("t") != Uuid.ZERO
    assert len(rig.image.topics.by_name["t"].partitions) == 4


def test_rule_15_the_records_come_in_order() -> None:
    rig = Rig([0])

    request = create_topics.CreateTopicsRequest(
        topics=[new_topic("t", partitions=2, factor=1, configs={"retention.ms": "1"})]
    )
    records = rig.records_of(request)

    kinds = [type(record) for record in records]
    assert kinds == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]


def test_rule_15_the_isr_is_the_active_replicas_and_the_leader_its_first() -> None:
    rig = Rig([0, 1, 2])
    rig.fence(0)

    rig.create("t", [[0, 2, 1]])

    assert (rig.partition("t").leader, rig.partition("t").isr) == (2, (2, 1))
    assert rig.partition("t").directories == (directory(0), directory(2), directory(1))


def test_rule_15_without_an_active_broker_nothing_can_be_placed() -> None:
    rig = Rig()
    assert rig.create("t").error_code == 38
    rig.register(0)
    assert rig.create("t").error_code == 38
    assert rig.create("t", [[0]]).error_code == 39
    rig.beat(0)
    assert rig.create("t").error_code == 0
    assert rig.create("u", factor=2, partitions=1).error_code == 38


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new_topic("", factor=1, partitions=1), 17),
        (new_topic("..", factor=1, partitions=1), 17),
        (new_topic("a b", factor=1, partitions=1), 17),
        (new_topic("x" * 250, factor=1, partitions=1), 17),
        (new_topic("__cluster_metadata", factor=1, partitions=1), 29),
        (new_topic("exists", factor=1, partitions=1), 36),
        (new_topic("a.b", factor=1, partitions=1), 17),
        (new_topic("t", factor=0, partitions=1), 38),
        (new_topic("t", factor=-2, partitions=1), 38),
        (new_topic("t", factor=1, partitions=0), 37),
        (new_topic("t", factor=1, partitions=-2), 37),
        (new_topic("t", [[0]], factor=1), 42),
        (new_topic("t", [[0]], partitions=1), 42),
        (new_topic("t", [[0], [0, 1]]), 39),
        (new_topic("t", [[0, 0]]), 39),
        (new_topic("t", [[]]), 39),
        (new_topic("t", [[9]]), 39),
        (new_topic("t", factor=1, partitions=1, configs={"nonsense": "1"}), 40),
        (new_topic("t", factor=1, partitions=1, configs={"segment.bytes": "1"}), 40),
    ],
)
def test_rule_15_a_topic_that_cannot_be_is_refused(
    topic: create_topics.CreatableTopic, code: int
) -> None:
    rig = Rig([0, 1])
    rig.create("exists", [[0]])
    rig.create("a_b", [[0]])

    result = create(rig, topic).topics[0]

    assert result.error_code == code
    assert result.error_message
    assert (result.topic_id, result.num_partitions) == (Uuid.ZERO, -1)
    assert set(rig.image.topics.by_name) == {"exists", "a_b"}


def test_rule_15_partitions_assigned_by_hand_are_numbered_without_gap_and_once() -> None:
    rig = Rig([0])
    gap = new_topic("t", [[0], [0]])
    gap.assignments[1].partition_index = 5
    twice = new_topic("u", [[0], [0]])
    twice.assignments[1].partition_index = 0

    assert [each.error_code for each in create(rig, gap, twice).topics] == [39, 39]


def test_a_setting_without_value_is_refused() -> None:
    rig = Rig([0])
    topic = new_topic("t", [[0]])
    topic.configs = [create_topics.CreatableTopicConfig(name="retention.ms", value=None)]

    assert create(rig, topic).topics[0].error_code == 40


def test_one_bad_topic_does_not_spoil_the_others_and_twice_is_a_fault() -> None:
    rig = Rig([0])
    good, bad = new_topic("good", [[0]]), new_topic("..", [[0]])
    again, clash = new_topic("again", [[0]]), new_topic("clash.x", [[0]])

    response = create(rig, good, bad, again, again, clash, new_topic("clash_x", [[0]]))

    codes = {each.name: each.error_code for each in response.topics}
    assert codes == {"good": 0, "..": 17, "again": 42, "clash.x": 0, "clash_x": 17}
    assert set(rig.image.topics.by_name) == {"good", "clash.x"}


def test_validating_only_creates_nothing() -> None:
    rig = Rig([0])

    result = create(rig, new_topic("t", [[0]]), validate_only=True).topics[0]

    assert (result.error_code, result.num_partitions) == (0, 1)
    assert not rig.image.topics.by_name


def test_the_answer_lists_the_settings_with_their_source() -> None:
    rig = Rig([0], topic_defaults=LogConfig(retention_ms=5, min_insync_replicas=1))

    result = rig.create("t", [[0]], max_message_bytes="9")

    found = {each.name: (each.value, each.config_source) for each in result.configs or ()}
    assert found["max.message.bytes"] == ("9", 1)
    assert found["min.insync.replicas"] == ("1", 3)
    assert found["retention.ms"] == ("5", 4)
    assert found["preallocate"] == ("false", 5)
    assert "internal.segment.bytes" not in found


def test_a_name_is_free_again_once_its_topic_is_deleted() -> None:
    rig = Rig([0])
    rig.create("a.b", [[0]])
    first = rig.topic_id("a.b")

    delete(rig, "a.b")
    assert rig.create("a_b", [[0]]).error_code == 0
    delete(rig, "a_b")
    rig.create("a.b", [[0]])

    assert rig.topic_id("a.b") != first


def test_too_many_partitions_in_one_request_are_refused_as_a_whole() -> None:
    rig = Rig([0])

    response = create(
        rig, new_topic("t", partitions=10_000, factor=1), new_topic("u", partitions=1, factor=1)
    )

    assert [each.error_code for each in response.topics] == [44, 44]


def test_records_beyond_the_limit_are_refused_topic_by_topic() -> None:
    rig = Rig([0])

    response = create(
        rig, new_topic("t", partitions=9_998, factor=1), new_topic("u", partitions=1, factor=1)
    )

    assert [each.error_code for each in response.topics] == [0, 44]


def test_the_site_may_have_rules_of_its_own() -> None:
    class Policy:
        def check(self, topic: NewTopic) -> None:
            if len(topic.assignments[0]) < 2 and "retention.ms" not in topic.configs:
                raise PolicyViolation("one replica is not enough")

    rig = Rig([0, 1], seams=ControllerSeams(create_topic_policy=Policy()))

    assert rig.create("t", [[0]]).error_code == 44
    assert rig.create("u", [[0, 1]]).error_code == 0
    assert rig.create("v", [[0]], retention_ms="1").error_code == 0


class Budget:
    """A quota of so many mutations."""

    def __init__(self, left: int) -> None:
        self.left = left

    def charge(self, context: RequestContext, mutations: int, *, is_strict: bool) -> int:
        assert context.principal == "User:alice"
        if mutations > self.left and is_strict:
            raise ThrottlingQuotaExceeded("slower")
        self.left -= mutations
        return 0 if self.left >= 0 else -self.left * 10


def test_quota_rule_4_strict_versions_get_an_error_and_nothing_is_done() -> None:
    rig = Rig([0], seams=ControllerSeams(quota=Budget(3)))

    first = create(rig, new_topic("t", partitions=2, factor=1))
    second = create(rig, new_topic("u", partitions=2, factor=1))

    assert first.topics[0].error_code == 0
    assert second.topics[0].error_code == 89
    assert "u" not in rig.image.topics.by_name
    assert add(rig, "t", 9) == 89
    assert delete(rig, "t") == 89


def test_quota_rule_4_older_versions_are_served_and_throttled() -> None:
    rig = Rig([0], seams=ControllerSeams(quota=Budget(0)))
    request = create_topics.CreateTopicsRequest(topics=[new_topic("t", partitions=2, factor=1)])

    response = rig.ask(request, version=5)

    assert (response.topics[0].error_code, response.throttle_time_ms) == (0, 20)
    more = create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name="t", count=3, assignments=None)]
    )
    assert rig.ask(more, version=2).throttle_time_ms == 30
    gone = delete_topics.DeleteTopicsRequest(topic_names=["t"])
    assert rig.ask(gone, version=4).throttle_time_ms == 60


def delete(rig: Rig, name: str | None = None, topic_id: Uuid = Uuid.ZERO) -> int:
    state = delete_topics.DeleteTopicState(name=name, topic_id=topic_id)
    response = rig.ask(delete_topics.DeleteTopicsRequest(topics=[state]))
    code: int = response.responses[0].error_code
    return code


def test_topics_are_deleted_by_name_or_by_id() -> None:
    rig = Rig([0])
    rig.create("a", [[0]])
    rig.create("b", [[0]])
    topic_id = rig.topic_id("b")

    request = delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name="a")])
    assert [type(each) for each in rig.records_of(request)] == [RemoveTopicRecord]
    assert delete(rig, topic_id=topic_id) == 0

    assert not rig.image.topics.by_name
    assert not rig.image.topics.by_id
    assert delete(rig, "a") == 3
    assert delete(rig, topic_id=topic_id) == 100


def test_deletions_that_say_too_much_or_too_little_are_refused() -> None:
    rig = Rig([0])
    rig.create("a", [[0]])
    state = delete_topics.DeleteTopicState

    assert delete(rig) == 42
    assert delete(rig, "a", rig.topic_id("a")) == 42
    both = [state(name="a"), state(topic_id=rig.topic_id("a"))]
    response = rig.ask(delete_topics.DeleteTopicsRequest(topics=both))
    assert [each.error_code for each in response.responses] == [0, 42]
    rig.create("a", [[0]])
    twice = [state(name="a"), state(name="a")]
    response = rig.ask(delete_topics.DeleteTopicsRequest(topics=twice))
    assert [each.error_code for each in response.responses] == [42]


@pytest.mark.parametrize("version", range(1, 6))
def test_a_topic_without_a_name_is_not_there(version: int) -> None:
    request = delete_topics.DeleteTopicsRequest(topic_names=[""])

    response = Rig([0]).ask(request, version=version)

    assert [(each.name, each.error_code) for each in response.responses] == [("", 3)]
    response.encode(version)


def test_an_empty_name_is_a_name_and_none_is_not() -> None:
    state = delete_topics.DeleteTopicState
    request = delete_topics.DeleteTopicsRequest(topics=[state(name=""), state(name=None)])

    response = Rig([0]).ask(request)

    found = [(each.name, each.error_code) for each in response.responses]
    assert found == [("", 3), (None, 42)]


def test_deletion_can_be_switched_off() -> None:
    rig = Rig([0], delete_topic_enable=False)
    rig.create("a", [[0]])

    assert delete(rig, "a") == 73
    old = delete_topics.DeleteTopicsRequest(topic_names=["a"])
    assert rig.ask(old, version=2).responses[0].error_code == 42


def add(rig: Rig, name: str, count: int, assignments: list[list[int]] | None = None) -> int:
    topic = create_partitions.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [
            create_partitions.CreatePartitionsAssignment(broker_ids=each) for each in assignments
        ],
    )
    response = rig.ask(create_partitions.CreatePartitionsRequest(topics=[topic]))
    code: int = response.results[0].error_code
    return code


def test_partitions_are_added_with_the_replication_factor_of_the_topic() -> None:
    rig = Rig([0, 1, 2])
    rig.create("t", partitions=1, factor=2)

    assert add(rig, "t", 4) == 0
    assert add(rig, "t", 5, [[2, 0]]) == 0

    topic = rig.image.topics.by_name["t"]
    assert sorted(topic.partitions) == [0, 1, 2, 3, 4]
    assert {len(each.replicas) for each in topic.partitions.values()} == {2}
    assert topic.partitions[4].replicas == (2, 0)


def test_partitions_that_cannot_be_added_are_refused() -> None:
    rig = Rig([0, 1])
    rig.create("t", [[0, 1], [0, 1]])

    assert add(rig, "nope", 4) == 3
    assert add(rig, "t", 2) == 37
    assert add(rig, "t", 1) == 37
    assert add(rig, "t", 20_000) == 44
    assert add(rig, "t", 4, [[0, 1]]) == 39
    assert add(rig, "t", 3, [[0]]) == 39
    assert add(rig, "t", 3, [[0, 9]]) == 39
    rig.fence(1)
    rig.fence(0)
    assert add(rig, "t", 3, [[0, 1]]) == 39
    assert add(rig, "t", 3) == 38


def test_adding_partitions_twice_in_a_request_is_a_fault_and_validating_writes_nothing() -> None:
    rig = Rig([0])
    rig.create("t", [[0]])
    topic = create_partitions.CreatePartitionsTopic(name="t", count=2, assignments=None)

    twice = rig.ask(create_partitions.CreatePartitionsRequest(topics=[topic, topic]))
    only = create_partitions.CreatePartitionsRequest(topics=[topic], validate_only=True)

    assert [each.error_code for each in twice.results] == [42]
    assert rig.records_of(only) == []
