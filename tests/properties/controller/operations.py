"""Random things that happen to a cluster, and what must be true whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from millstream.controller.partition_index import PartitionIndex
from millstream.metadata.topics import NO_LEADER, LeaderRecoveryState
from millstream.protocol.messages import (
    alter_partition,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    unregister_broker,
)
from tests.unit.controller.rig import Rig, directory, new_topic

if TYPE_CHECKING:
    from millstream.metadata.image import MetadataImage
    from millstream.protocol.message import Message

BROKERS = st.integers(0, 4)
TOPICS = st.sampled_from(["a", "b", "c.d", "c_d"])

OPERATIONS = st.one_of(
    st.tuples(st.just("register"), BROKERS, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("beat"), BROKERS),
    st.tuples(st.just("fence"), BROKERS),
    st.tuples(st.just("shut down"), BROKERS),
    st.tuples(st.just("lose directory"), BROKERS),
    st.tuples(st.just("unregister"), BROKERS),
    st.tuples(st.just("pass"), st.sampled_from([400, 3000, 10_000, 300_000])),
    st.tuples(st.just("create"), TOPICS, st.integers(-1, 3), st.integers(-1, 4)),
    st.tuples(st.just("assign"), TOPICS, st.lists(st.lists(BROKERS, max_size=4), max_size=2)),
    st.tuples(st.just("delete"), TOPICS),
    st.tuples(st.just("grow"), TOPICS, st.integers(1, 5)),
    st.tuples(st.just("configure"), TOPICS, st.sampled_from(["1", "2", "3", "x", None])),
    st.tuples(st.just("unclean"), TOPICS, st.booleans()),
    st.tuples(st.just("isr"), TOPICS, st.integers(0, 2), st.sets(BROKERS, max_size=4)),
    st.tuples(st.just("elect"), st.integers(0, 1)),
    st.tuples(
        st.just("reassign"), TOPICS, st.integers(0, 2), st.none() | st.lists(BROKERS, max_size=4)
    ),
)
"""One thing that may happen; most can fail, which is fine."""

MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"


def request_of(rig: Rig, operation: tuple[Any, ...]) -> Message | None:
    """The request behind an operation of an administrator or a leader; None for other kinds."""
    match operation:
        case ("unregister", broker_id):
            return unregister_broker.UnregisterBrokerRequest(broker_id=broker_id)
        case ("create", name, partitions, factor):
            return create_topics.CreateTopicsRequest(
                topics=[new_topic(name, None, partitions, factor)]
            )
        case ("assign", name, assignments):
            return create_topics.CreateTopicsRequest(topics=[new_topic(name, assignments)])
        case ("delete", name):
            state = delete_topics.DeleteTopicState(name=name)
            return delete_topics.DeleteTopicsRequest(topics=[state])
        case ("grow", name, count):
            topic = create_partitions.CreatePartitionsTopic(
                name=name, count=count, assignments=None
            )
            return create_partitions.CreatePartitionsRequest(topics=[topic])
        case ("configure", name, value):
            return _configure(name, MIN_ISR, value)
        case ("unclean", name, value):
            return _configure(name, UNCLEAN, "true" if value else None)
        case ("isr", name, partition_id, members):
            return _alter_partition(rig.image, name, partition_id, members)
        case ("elect", kind):
            return elect_leaders.ElectLeadersRequest(election_type=kind, topic_partitions=None)
        case ("reassign", name, partition_id, replicas):
            return _reassign(name, partition_id, replicas)
    return None


def perform(rig: Rig, operation: tuple[Any, ...]) -> None:
    """Let an operation happen, and commit."""
    request = request_of(rig, operation)
    if request is not None:
        rig.ask(request)
        return
    known = rig.image.cluster.brokers
    match operation:
        case ("register", broker_id, incarnation, was_clean):
            previous = known[broker_id].epoch if was_clean and broker_id in known else -1
            rig.ask(
                rig.registration(
                    broker_id,
                    incarnation_number=incarnation,
                    previous_broker_epoch=previous,
                    log_dirs=[directory(broker_id, 0), directory(broker_id, 1)],
                    rack=f"r{broker_id % 2}",
                )
            )
        case ("pass", ms):
            rig.tick(ms)
        case (kind, broker_id) if broker_id in known:
            requests: dict[str, dict[str, Any]] = {
                "beat": {},
                "fence": {"want_fence": True},
                "shut down": {"want_shut_down": True},
                "lose directory": {"offline_log_dirs": [directory(broker_id, 1)]},
            }
            rig.beat(broker_id, **requests[kind])


def _configure(name: str, key: str, value: str | None) -> Message:
    config = incremental_alter_configs.AlterableConfig(
        name=key, config_operation=1 if value is None else 0, value=value
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=2, resource_name=name, configs=[config]
            )
        ]
    )


def _alter_partition(
    image: MetadataImage, name: str, partition_id: int, members: set[int]
) -> Message | None:
    topic = image.topics.by_name.get(name)
    partition = None if topic is None else topic.partitions.get(partition_id)
    if topic is None or partition is None or partition.leader == NO_LEADER:
        return None
    return alter_partition.AlterPartitionRequest(
        broker_id=partition.leader,
        broker_epoch=image.cluster.brokers[partition.leader].epoch,
        topics=[
            alter_partition.AlterPartitionRequestTopicData(
                topic_id=topic.id,
                partitions=[
                    alter_partition.AlterPartitionRequestPartitionData(
                        partition_index=partition_id,
                        leader_epoch=partition.leader_epoch,
                        partition_epoch=partition.partition_epoch,
                        new_isr_with_epochs=[
                            alter_partition.BrokerState(broker_id=each)
                            for each in sorted(members | {partition.leader})
                        ],
                    )
                ],
            )
        ],
    )


def _reassign(name: str, partition_id: int, replicas: list[int] | None) -> Message:
    partition = alter_partition_reassignments.ReassignablePartition(
        partition_index=partition_id, replicas=replicas
    )
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[alter_partition_reassignments.ReassignableTopic(name=name, partitions=[partition])]
    )


def check_image(image: MetadataImage) -> None:
    """What is true of every state that a controller may write."""
    directories = [each for broker in image.cluster.brokers.values() for each in broker.directories]
    assert len(set(directories)) == len(directories)
    assert {topic.id for topic in image.topics.by_name.values()} == set(image.topics.by_id)
    keys = [name.replace(".", "_") for name in image.topics.by_name]
    assert len(set(keys)) == len(keys)
    for topic in image.topics.by_name.values():
        assert image.topics.by_id[topic.id] is topic
        assert sorted(topic.partitions) == list(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            _check_partition(image, partition)


def _check_partition(image: MetadataImage, partition: Any) -> None:
    replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
    assert partition.replicas
    assert len(replicas) == len(partition.replicas) == len(partition.directories)
    assert isr <= replicas
    assert elr <= replicas
    assert not isr & elr
    assert set(partition.adding_replicas) | set(partition.removing_replicas) <= replicas
    has_elr = image.features.has_eligible_leader_replicas
    assert has_elr or not (elr or partition.last_known_elr)
    if partition.leader == NO_LEADER:
        return
    assert partition.leader in isr
    assert image.cluster.is_active(partition.leader)
    assert all(image.cluster.is_active(each) for each in isr)
    assert partition.last_known_elr == ()
    if partition.leader_recovery_state is LeaderRecoveryState.RECOVERING:
        assert partition.isr


def check_index(rig: Rig) -> None:
    """The index that was kept up is the one that would be built anew."""
    term = rig.controller._term
    assert term is not None
    fresh = PartitionIndex(rig.image.topics)
    for name, kept in vars(term.state.index).items():
        built = getattr(fresh, name)
        if isinstance(built, dict):
            assert {k: v for k, v in kept.items() if v} == {k: v for k, v in built.items() if v}
        else:
            assert kept == built
