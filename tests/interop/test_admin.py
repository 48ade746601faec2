"""Our Admin administers Apache Kafka, access control and quotas included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.client.admin import (
    END,
    Acl,
    AclFilter,
    Admin,
    Append,
    ConfigResource,
    FeatureUpdate,
    NewTopic,
    QuotaEntity,
    QuotaFilter,
    Reassignment,
    ScramDeletion,
    ScramPassword,
    TopicPartitionReplica,
)
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import (
    GroupIdNotFound,
    MillstreamError,
    SecurityDisabled,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from millstream.types import TopicPartition
from tests.interop.java_client import require_broker_jars
from tests.interop.kafka_broker import KafkaBroker
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    scratch = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(require_broker_jars(scratch), scratch / "data", scratch)
    broker.format()
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def admin(kafka: KafkaBroker) -> Iterator[Admin]:
    with Admin(kafka.address) as admin:
        yield admin


def test_topics_and_their_partitions(admin: Admin) -> None:
    admin.create_topics(
        [NewTopic("a", 2, 1, {"retention.ms": 60_000}), NewTopic("b", assignment={0: [1]})]
    ).raise_first()
    again = admin.create_topics([NewTopic("a", 1, 1), NewTopic("c", 1, 1)])
    assert isinstance(again.errors["a"], TopicAlreadyExists)
    assert again["c"].partitions == 1
    admin.create_partitions({"a": 3}).raise_first()
    until(lambda: len(admin.describe_topics(["a"])["a"].partitions) == 3)
    described = admin.describe_topics(["a", "none"])
    assert isinstance(described.errors["none"], UnknownTopicOrPartition)
    first = TopicPartition("a", 0)
    for spec in ("earliest", "latest", "max_timestamp", "earliest_local", "latest_tiered"):
        assert first in admin.list_offsets({first: spec}).results
    assert admin.delete_records({first: END}).raise_first()[first] == 0
    assert admin.elect_leaders([first]).errors
    admin.alter_partition_reassignments({first: [1]}).raise_first()
    moves = admin.list_partition_reassignments()
    assert all(isinstance(each, Reassignment) for each in moves.values())
    admin.delete_topics(["b", "c"]).raise_first()
    until(lambda: {"b", "c"}.isdisjoint(each.name for each in admin.list_topics()))


def test_settings_and_the_cluster(admin: Admin) -> None:
    admin.create_topic("settings", partitions=1, replication_factor=1)
    topic, broker = ConfigResource("topic", "settings"), ConfigResource("broker", "1")
    admin.incremental_alter_configs(
        {topic: {"cleanup.policy": Append(("compact",))}, broker: {"log.cleaner.threads": 2}}
    ).raise_first()

    def policy() -> str:
        found = admin.describe_configs([topic], names=["cleanup.policy"])
        return found[topic]["cleanup.policy"].value or ""

    until(lambda: "compact" in policy())
    found = admin.describe_configs([topic, broker], include_synonyms=True).raise_first()
    assert found[broker]["log.cleaner.threads"].value == "2"
    assert topic in admin.list_config_resources(["topic"])
    assert admin.list_client_metrics_resources() == []

    cluster = admin.describe_cluster(include_fenced_brokers=True)
    assert [each.node_id for each in cluster.brokers] == [1]
    assert admin.describe_quorum().leader_id == 1
    features = admin.describe_features()
    level = features["metadata.version"].level
    update = {"metadata.version": FeatureUpdate(level)}
    admin.update_features(update, validate_only=True).raise_first()
    (dirs,) = admin.describe_log_dirs().raise_first().results.values()
    ((path, _),) = dirs.items()
    replica = TopicPartitionReplica("settings", 0, 1)
    assert admin.describe_replica_log_dirs([replica])[replica].current == path
    with pytest.raises(MillstreamError):
        admin.unregister_broker(77)


def test_groups_and_their_offsets(admin: Admin) -> None:
    admin.create_topic("grouped", partitions=2, replication_factor=1)
    partition = TopicPartition("grouped", 0)
    admin.alter_group_offsets("g", {partition: OffsetAndMetadata(0, "note")}).raise_first()
    assert [each.group_id for each in admin.list_groups(states=["Empty"])] == ["g"]
    assert admin.list_groups(types=["share"]) == []
    described = admin.describe_groups(["g", "none"])
    assert described["g"].state == "Empty"
    assert isinstance(described.errors["none"], GroupIdNotFound)
    assert admin.list_group_offsets(["g"])["g"] == {partition: OffsetAndMetadata(0, "note")}
    admin.delete_group_offsets("g", [partition]).raise_first()
    admin.alter_group_offsets("g", {partition: 0}).raise_first()
    gone = admin.delete_groups(["g", "none"])
    assert set(gone.results) == {"g"}
    assert isinstance(gone.errors["none"], GroupIdNotFound)


def test_transactions_and_producers(admin: Admin) -> None:
    admin.create_topic("produced", partitions=1, replication_factor=1)
    fenced = admin.fence_producers(["tx"])["tx"]
    assert admin.describe_transactions(["tx"])["tx"].producer_id == fenced.producer_id
    assert [each.transactional_id for each in admin.list_transactions(min_duration=0)] in (
        ["tx"],
        [],
    )
    partition = TopicPartition("produced", 0)
    assert admin.describe_producers([partition])[partition] == ()


def test_access_and_quotas(admin: Admin) -> None:
    changed = admin.alter_user_scram_credentials({"alice": ScramPassword("secret")})
    changed.raise_first()
    until(lambda: "alice" in admin.describe_user_scram_credentials(["alice"]).results)
    (credential,) = admin.describe_user_scram_credentials(["alice"])["alice"]
    assert credential.mechanism == "SCRAM-SHA-512"
    admin.alter_user_scram_credentials({"alice": ScramDeletion("SCRAM-SHA-512")}).raise_first()

    alice = QuotaEntity(user="alice")
    admin.alter_client_quotas({alice: {"producer_byte_rate": 1000}}).raise_first()
    found = {alice: {"producer_byte_rate": 1000.0}}
    until(lambda: admin.describe_client_quotas(QuotaFilter(user="alice")) == found)
    admin.alter_client_quotas({alice: {"producer_byte_rate": None}}).raise_first()
    until(lambda: admin.describe_client_quotas() == {})

    acl = Acl("topic", "orders", "User:alice", "read")
    with pytest.raises(SecurityDisabled):
        admin.create_acls([acl]).raise_first()
    with pytest.raises(SecurityDisabled):
        admin.describe_acls(AclFilter("topic"))
    with pytest.raises(MillstreamError):
        admin.create_delegation_token()
