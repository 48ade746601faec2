"""Every metadata record has a defined replay; unchanged parts are shared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millstream.metadata.cluster import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
)
from millstream.metadata.delta import _REPLAY, KINDS, MetadataDelta
from millstream.metadata.image import EMPTY_IMAGE, MetadataProvenance
from millstream.metadata.records import UnreplayableRecord
from millstream.metadata.topics import LeaderRecoveryState
from millstream.protocol import messages
from millstream.protocol.messages import broker_records as broker
from millstream.protocol.messages import config_records as config
from millstream.protocol.messages import log_records as log
from millstream.protocol.messages import security_records as security
from millstream.protocol.messages import topic_records as topic
from millstream.protocol.messages.record_types import METADATA_RECORDS
from millstream.types import Uuid
from tests.unit.metadata.examples import T, U, everything, image_of, partition, register, uuid

FULL = image_of(*everything())


def test_every_record_type_has_a_replay_or_belongs_to_transactions() -> None:
    known = {cls.__name__ for cls in _REPLAY}
    transactions = {"BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"}

    assert known | transactions == set(METADATA_RECORDS.values())
    for name in transactions:
        with pytest.raises(UnreplayableRecord, match=name):
            MetadataDelta(EMPTY_IMAGE).replay(getattr(messages, name)())


def test_parts_without_changes_are_the_same_objects() -> None:
    after = image_of(
        config.ConfigRecord(resource_type=2, resource_name="u", name="a", value="b"), base=FULL
    )

    shared = [kind for kind in KINDS if getattr(after, kind) is getattr(FULL, kind)]
    assert shared == [kind for kind in KINDS if kind != "configs"]


def test_a_changed_partition_leaves_other_topics_the_same_objects() -> None:
    after = image_of(topic.PartitionChangeRecord(topic_id=T, partition_id=0, leader=2), base=FULL)

    assert after.topics.by_name["u"] is FULL.topics.by_name["u"]
    assert after.topics.by_id[T] is after.topics.by_name["t"]
    assert after.topics.by_id[T].partitions[0].leader == 2
    assert FULL.topics.by_id[T].partitions[0].leader == 1


def test_records_that_say_nothing_change_nothing() -> None:
    delta = MetadataDelta(FULL)
    delta.replay(log.NoOpRecord())
    delta.replay(log.ZkMigrationStateRecord(zk_migration_state=0))

    assert delta.is_empty
    assert delta.apply(MetadataProvenance(9)) == FULL


@pytest.mark.parametrize("state", [1, 2])
def test_an_unfinished_migration_off_zookeeper_is_refused(state: int) -> None:
    with pytest.raises(UnreplayableRecord, match=r"Kafka 3\.9"):
        image_of(log.ZkMigrationStateRecord(zk_migration_state=state))


def test_brokers_are_fenced_and_unfenced_in_the_old_way_too() -> None:
    fenced = image_of(broker.FenceBrokerRecord(id=1, epoch=10), base=FULL)
    assert fenced.cluster.brokers[1].is_fenced
    unfenced = image_of(broker.UnfenceBrokerRecord(id=1, epoch=10), base=fenced)
    assert not unfenced.cluster.brokers[1].is_fenced


def test_a_broker_changes_only_in_what_the_record_says() -> None:
    change = broker.BrokerRegistrationChangeRecord
    before = FULL.cluster.brokers[1]

    def after(**fields: Any) -> Any:
        record = change(broker_id=1, broker_epoch=10, **fields)
        return image_of(record, base=FULL).cluster.brokers[1]

    assert after() == before
    assert after(fenced=1) == replace(before, is_fenced=True)
    assert after(fenced=-1) == before
    assert after(in_controlled_shutdown=1) == replace(before, in_controlled_shutdown=True)
    assert after(log_dirs=[uuid(5), uuid(4)]).directories == (uuid(4), uuid(5))
    assert after(cordoned_log_dirs=[uuid(5)]).cordoned_directories == (uuid(5),)


def test_brokers_and_controllers_are_unregistered() -> None:
    after = image_of(
        broker.UnregisterBrokerRecord(broker_id=1, broker_epoch=10),
        broker.UnregisterControllerRecord(controller_id=9),
        base=FULL,
    )

    assert set(after.cluster.brokers) == {2, 3}
    assert not after.cluster.controllers


@pytest.mark.parametrize(
    "record",
    [
        broker.UnregisterBrokerRecord(broker_id=1, broker_epoch=11),
        broker.UnregisterBrokerRecord(broker_id=7, broker_epoch=10),
        broker.UnregisterControllerRecord(controller_id=7),
        broker.FenceBrokerRecord(id=1, epoch=9),
        topic.PartitionRecord(topic_id=uuid(99), partition_id=0),
        topic.PartitionChangeRecord(topic_id=uuid(99), partition_id=0),
        topic.PartitionChangeRecord(topic_id=T, partition_id=99),
        topic.RemoveTopicRecord(topic_id=uuid(99)),
        topic.ClearElrRecord(topic_name="nope"),
        security.RemoveAccessControlEntryRecord(id=uuid(99)),
        security.RemoveUserScramCredentialRecord(name="nobody", mechanism=1),
        security.RemoveDelegationTokenRecord(token_id="nope"),
        config.FeatureLevelRecord(name="metadata.version", feature_level=99),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_does_not_fit_is_refused(record: Any) -> None:
    with pytest.raises(UnreplayableRecord):
        image_of(record, base=FULL)


def test_a_feature_from_the_future_is_kept_and_level_0_turns_one_off() -> None:
    after = image_of(
        config.FeatureLevelRecord(name="time.travel", feature_level=3),
        config.FeatureLevelRecord(name="group.version", feature_level=0),
        base=FULL,
    )

    assert after.features.levels == {"metadata.version": 30, "time.travel": 3}
    assert EMPTY_IMAGE.features.metadata_version == 7


def test_a_partition_change_raises_epochs_and_keeps_the_rest() -> None:
    before = FULL.topics.by_id[T].partitions[1]
    same = image_of(topic.PartitionChangeRecord(topic_id=T, partition_id=1), base=FULL)
    found = same.topics.by_id[T].partitions[1]
    assert found == replace(before, partition_epoch=5)

    record = topic.PartitionChangeRecord(
        topic_id=T,
        partition_id=1,
        isr=[2],
        leader=2,
        replicas=[2, 9],
        removing_replicas=[],
        adding_replicas=[9],
        leader_recovery_state=0,
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
    found = image_of(record, base=FULL).topics.by_id[T].partitions[1]
    assert (found.leader, found.leader_epoch, found.partition_epoch) == (2, 4, 5)
    assert (found.replicas, found.directories) == ((2, 9), (uuid(52), DIRECTORY_MIGRATING))
    assert (found.isr, found.elr, found.last_known_elr) == ((2,), (), ())
    assert found.leader_recovery_state is LeaderRecoveryState.RECOVERED
    assert found.is_reassigning


def test_a_partition_from_before_directories_has_unknown_ones() -> None:
    old = partition(T, 5, [1, 2])
    old.directories = []

    found = image_of(old, base=FULL).topics.by_id[T].partitions[5]

    assert found.directories == (DIRECTORY_MIGRATING, DIRECTORY_MIGRATING)
    assert found.directory_of(2) == DIRECTORY_MIGRATING
    assert found.directory_of(3) is None


def test_removing_a_topic_takes_its_settings_along() -> None:
    after = image_of(topic.RemoveTopicRecord(topic_id=T), base=FULL)

    assert set(after.topics.by_name) == {"u"}
    assert set(after.topics.by_id) == {U}
    assert after.configs.of(2, "t") == {}


def test_a_topic_may_be_removed_and_made_again_under_another_id_in_one_delta() -> None:
    again = uuid(30)
    after = image_of(
        topic.RemoveTopicRecord(topic_id=T),
        topic.TopicRecord(name="t", topic_id=again),
        config.ConfigRecord(resource_type=2, resource_name="t", name="a", value="b"),
        base=FULL,
    )

    assert after.topics.by_name["t"].id == again
    assert set(after.topics.by_id) == {U, again}
    assert after.configs.of(2, "t") == {"a": "b"}


def test_a_topic_made_and_removed_in_one_delta_was_never_there() -> None:
    again = uuid(30)
    after = image_of(
        topic.TopicRecord(name="brief", topic_id=again),
        topic.RemoveTopicRecord(topic_id=again),
        base=FULL,
    )

    assert after == FULL
    with pytest.raises(UnreplayableRecord):
        image_of(
            topic.RemoveTopicRecord(topic_id=T), topic.RemoveTopicRecord(topic_id=T), base=FULL
        )


def test_eligible_leaders_are_cleared_for_one_topic_or_for_all() -> None:
    one = image_of(topic.ClearElrRecord(topic_name="t"), base=FULL).topics
    everywhere = image_of(topic.ClearElrRecord(), base=FULL).topics

    for topics in (one, everywhere):
        assert topics.by_id[T].partitions[1].elr == ()
        assert topics.by_id[T].partitions[1].last_known_elr == ()
        assert topics.by_name["u"] is FULL.topics.by_name["u"]
    new = image_of(
        topic.TopicRecord(name="n", topic_id=uuid(31)), topic.ClearElrRecord(topic_name="n")
    )
    assert set(new.topics.by_name) == {"n"}


def test_settings_and_quotas_are_unset_and_empty_ones_are_absent() -> None:
    entity = [config.EntityData(entity_type="user", entity_name="alice")]
    after = image_of(
        config.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),
        config.ClientQuotaRecord(entity=entity, key="request_percentage", remove=True),
        base=FULL,
    )

    assert len(after.configs.by_resource) == 1
    assert len(after.client_quotas.by_entity) == 1


def test_security_records_are_removed() -> None:
    after = image_of(
        security.RemoveAccessControlEntryRecord(id=uuid(70)),
        security.RemoveUserScramCredentialRecord(name="alice", mechanism=1),
        security.RemoveDelegationTokenRecord(token_id="token"),
        base=FULL,
    )

    assert not after.acls.by_id
    assert not after.scram.by_key
    assert not after.delegation_tokens.by_id


def test_secrets_are_not_shown() -> None:
    assert "stored" not in repr(FULL.scram)


def test_a_broker_knows_its_directories() -> None:
    found = FULL.cluster.brokers[1]
    several = replace(found, directories=(uuid(1), uuid(2)))
    none = replace(found, directories=())

    assert found.default_directory == uuid(51)
    assert several.default_directory == DIRECTORY_UNASSIGNED
    assert none.default_directory == DIRECTORY_MIGRATING
    assert FULL.cluster.default_directory(77) == DIRECTORY_UNASSIGNED
    assert [found.has_online(each) for each in (uuid(51), uuid(1), DIRECTORY_LOST)] == [
        True,
        False,
        False,
    ]
    assert none.has_online(uuid(1))
    assert found.has_online(DIRECTORY_UNASSIGNED)
    assert several.accepts_replicas
    assert not replace(several, cordoned_directories=several.directories).accepts_replicas


def local(base: Any, *records: Any) -> Any:
    delta = MetadataDelta(base)
    delta.replay_all(records)
    return delta.topics.local_changes(1)


def names(found: Any) -> list[str]:
    return sorted(map(str, found))


def test_local_changes_say_what_a_broker_must_do() -> None:
    t0, t1 = FULL.topics.by_id[T].partitions[0], FULL.topics.by_id[T].partitions[1]
    assert (t0.leader, t1.leader) == (1, 1)
    change = topic.PartitionChangeRecord

    stays = local(FULL, change(topic_id=T, partition_id=0, isr=[1]))
    assert (names(stays.leaders), names(stays.elected)) == (["t-0"], [])
    leaves = local(FULL, change(topic_id=T, partition_id=0, leader=2))
    assert (names(leaves.followers), names(leaves.leaders)) == (["t-0"], [])
    removed = local(FULL, change(topic_id=T, partition_id=0, replicas=[2], leader=2))
    assert (names(removed.deleted), names(removed.followers)) == (["t-0"], [])
    never = local(FULL, change(topic_id=U, partition_id=0, isr=[3]))
    assert not never.deleted
    gone = local(FULL, topic.RemoveTopicRecord(topic_id=T))
    assert names(gone.deleted) == ["t-0", "t-1"]
    new = local(FULL, topic.TopicRecord(name="n", topic_id=uuid(33)), partition(uuid(33), 0, [1]))
    assert names(new.elected) == ["n-0"]
    assert new.directories == {next(iter(new.elected)): uuid(51)}
    moved = local(FULL, change(topic_id=T, partition_id=0, directories=[uuid(5), uuid(52)]))
    assert list(moved.directories.values()) == [uuid(5)]
    assert new.leaders[next(iter(new.leaders))].topic_id == uuid(33)


def test_created_topics_are_told_apart() -> None:
    delta = MetadataDelta(FULL)
    delta.replay_all([topic.TopicRecord(name="n", topic_id=uuid(33)), partition(T, 7, [1])])

    assert set(delta.topics.created) == {uuid(33)}
    assert set(delta.topics.changed) == {uuid(33), T}


def test_registering_again_replaces() -> None:
    after = image_of(register(1, epoch=99), base=FULL)

    assert after.cluster.brokers[1].epoch == 99
    assert after.cluster.is_active(1)
    assert not after.cluster.is_active(2)
    assert not after.cluster.is_active(77)
    assert not after.cluster.is_unfenced(2)
    assert isinstance(after.cluster.brokers[1].incarnation_id, Uuid)
