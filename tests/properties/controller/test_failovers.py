"""Controllers come and go: committed metadata stays, and no answer promises more than that."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from millstream.controller.config import ControllerConfig
from millstream.controller.decision import RequestContext
from millstream.controller.quorum_controller import QuorumController
from millstream.errors import NotController
from millstream.metadata.bootstrap import bootstrap_metadata
from millstream.metadata.records import MetadataBatch, encode_record
from millstream.protocol.messages import create_topics, delete_topics
from millstream.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from millstream.protocol.records_framing import decode_metadata_record
from tests.properties.controller.operations import check_image
from tests.unit.controller.rig import CLUSTER_ID, WALL_MS, Rig, new_topic, replayed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.metadata.records import VersionedRecord


class Quorum:
    """Three controllers on one log. A prefix is committed; a failover may lose the rest."""

    def __init__(self) -> None:
        self.batches: list[MetadataBatch] = []
        self.committed = 0
        """How many batches are committed."""
        self.epoch = 0
        self.leader: int | None = None
        self.applied = [0, 0, 0]
        self.controllers = [
            QuorumController(
                node_id=node_id,
                cluster_id=CLUSTER_ID,
                config=ControllerConfig(),
                log=_NodeLog(self, node_id),
                bootstrap=bootstrap_metadata(),
                random=Random(node_id),
            )
            for node_id in range(3)
        ]
        self.confirmed = 0
        self.now_ms = 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def commit(self, count: int) -> None:
        """Some more batches are committed; the leader and some followers hear of it."""
        self.committed = min(self.committed + count, len(self.batches))
        for node_id in range(3):
            self.catch_up(node_id)

    def catch_up(self, node_id: int) -> None:
        controller = self.controllers[node_id]
        for batch in self.batches[self.applied[node_id] : self.committed]:
            controller.on_batch(batch)
        self.applied[node_id] = max(self.applied[node_id], self.committed)

    def fail_over(self, node_id: int, surviving: int) -> None:
        """Another node leads; of the uncommitted batches only the first few survive."""
        if self.leader is not None:
            self.controllers[self.leader].on_not_leader()
        del self.batches[self.committed + surviving :]
        self.committed = len(self.batches)
        self.epoch += 1
        self.leader = node_id
        for each in range(3):
            self.catch_up(each)
        self.controllers[node_id].on_leader(self.epoch, self.now_ms, WALL_MS)

    def ask(self, request: Any, on_answer: Any) -> None:
        if self.leader is not None:
            context = RequestContext("User:a", self.now_ms, WALL_MS, 7)
            self.controllers[self.leader].handle(request, context, on_answer)

    def create(self, name: str) -> None:
        topic = new_topic(name, partitions=2, factor=1)
        request = create_topics.CreateTopicsRequest(topics=[topic])
        self.ask(request, lambda answer: self._confirm("TopicRecord", answer.topics[0]))

    def delete(self, name: str) -> None:
        state = delete_topics.DeleteTopicState(name=name)
        request = delete_topics.DeleteTopicsRequest(topics=[state])
        self.ask(request, lambda answer: self._confirm("RemoveTopicRecord", answer.responses[0]))

    def _confirm(self, record_type: str, result: Any) -> None:
        """An answer that says "done" comes when the record behind it is committed."""
        if result.error_code == 0:
            self.confirmed += 1
            assert any(
                type(record).__name__ == record_type and record.topic_id == result.topic_id
                for record in self._committed_records()
            )

    def _committed_records(self) -> list[Any]:
        return [record for batch in self.batches[: self.committed] for record in batch.records]

    def check(self) -> None:
        expected = replayed(self._committed_records())
        check_image(expected)
        for node_id, controller in enumerate(self.controllers):
            if self.applied[node_id] == self.committed:
                assert controller.image == expected
        active = [each for each in self.controllers if each.is_active]
        assert len(active) <= 1
        for controller in active:
            everything = [record for batch in self.batches for record in batch.records]
            assert controller.uncommitted_image == replayed(everything)


class _NodeLog:
    """The log as one node sees it."""

    kraft_version = 1
    obstacle = None

    def __init__(self, quorum: Quorum, node_id: int) -> None:
        self._quorum = quorum
        self._node_id = node_id

    def next_offset(self) -> int:
        return self._quorum.end_offset

    def append(self, epoch: int, records: Sequence[VersionedRecord]) -> int:
        quorum = self._quorum
        if quorum.leader != self._node_id or quorum.epoch != epoch:
            raise NotController
        decoded = [decode_metadata_record(encode_record(each))[0] for each in records]
        batch = MetadataBatch(quorum.end_offset, epoch, WALL_MS, 1, decoded)
        quorum.batches.append(batch)
        return batch.last_offset

    def resign(self, epoch: int) -> None:
        raise AssertionError("nothing here makes a controller resign")

    def upgrade_kraft_version(self, epoch: int, level: int, *, validate_only: bool) -> None:
        raise AssertionError("nothing here upgrades")


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("register"), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("beat"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("pass"), st.sampled_from([600, 10_000])),
    st.tuples(st.just("commit"), st.integers(1, 4)),
    st.tuples(st.just("fail over"), st.integers(0, 2), st.integers(0, 4)),
)


def take(quorum: Quorum, step: tuple[Any, ...]) -> None:
    leader = None if quorum.leader is None else quorum.controllers[quorum.leader]
    match step:
        case ("create", name):
            quorum.create(name)
        case ("delete", name):
            quorum.delete(name)
        case ("register", broker_id, number):
            request = Rig.registration(None, broker_id, incarnation_number=number)  # type: ignore[arg-type]
            quorum.ask(request, lambda answer: None)
        case ("beat", broker_id, want_fence) if leader is not None:
            broker = leader.uncommitted_image.cluster.brokers.get(broker_id)
            if broker is not None:
                request_ = BrokerHeartbeatRequest(
                    broker_id=broker_id,
                    broker_epoch=broker.epoch,
                    current_metadata_offset=quorum.end_offset,
                    want_fence=want_fence,
                )
                quorum.ask(request_, lambda answer: None)
        case ("pass", ms):
            quorum.now_ms += ms
            if leader is not None:
                leader.tick(quorum.now_ms, WALL_MS)
        case ("commit", count):
            quorum.commit(count)
        case ("fail over", node_id, surviving):
            quorum.fail_over(node_id, surviving)


@given(st.lists(STEPS, min_size=10, max_size=50))
def test_state_equals_the_replay_of_the_committed_log_through_failovers(
    steps: list[tuple[Any, ...]],
) -> None:
    quorum = Quorum()
    quorum.fail_over(0, 0)
    quorum.commit(1)
    for broker_id in range(2):
        take(quorum, ("register", broker_id, 1))
        take(quorum, ("beat", broker_id, False))

    for step in steps:
        take(quorum, step)
        quorum.check()

    take(quorum, ("create", "last"))
    confirmed = quorum.confirmed
    quorum.commit(10**6)
    quorum.check()
    has_broker = any(
        each.is_active for each in quorum.controllers[0].image.cluster.brokers.values()
    )
    assert quorum.confirmed > confirmed or not has_broker
