"""Administration against a broker: every operation that it serves, blocking and awaited."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

from millstream.client.admin.admin import Admin
from millstream.client.admin.async_admin import AsyncAdmin
from millstream.client.admin.cluster import FeatureUpdate
from millstream.client.admin.configs import Append, ConfigResource, Subtract
from millstream.client.admin.log_dirs import TopicPartitionReplica
from millstream.client.admin.partitions import END
from millstream.client.admin.quotas import QuotaEntity
from millstream.client.admin.topics import NewTopic
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import (
    BootstrapFailed,
    ClientClosed,
    ElectionNotNeeded,
    GroupIdNotFound,
    InvalidArgument,
    InvalidPartitions,
    MillstreamError,
    SecurityDisabled,
    TopicAlreadyExists,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.embedded import EmbeddedBroker
    from millstream.testing.pytest_plugin import TopicFactory

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(millstream_broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(millstream_broker.bootstrap_servers, default_api_timeout=20.0) as admin:
        yield admin


@pytest.fixture
def topic(millstream_topic: TopicFactory) -> str:
    return millstream_topic(partitions=2)


def test_topics_are_created_listed_described_grown_and_deleted(admin: Admin) -> None:
    created = admin.create_topics(
        [NewTopic("t-a", partitions=2, config={"retention.ms": 1000}), NewTopic("t-b")]
    ).raise_first()
    assert created["t-a"].partitions == 2
    assert created["t-a"].config["retention.ms"] == "1000"

    again = admin.create_topics([NewTopic("t-a"), NewTopic("t-c", assignment={0: [1]})])
    assert isinstance(again.errors["t-a"], TopicAlreadyExists)
    assert set(again.results) == {"t-c"}
    with pytest.raises(TopicAlreadyExists):
        again.raise_first()
    with pytest.raises(TopicAlreadyExists):
        admin.create_topic("t-a")

    assert {"t-a", "t-b", "t-c"} <= {each.name for each in admin.list_topics()}
    described = admin.describe_topics(["t-a", "t-none"])
    assert [each.leader for each in described["t-a"].partitions] == [1, 1]
    assert isinstance(described.errors["t-none"], UnknownTopicOrPartition)

    grown = admin.create_partitions({"t-a": 4, "t-b": 1})
    assert set(grown.results) == {"t-a"}
    assert isinstance(grown.errors["t-b"], InvalidPartitions)
    assert len(admin.describe_topics(["t-a"])["t-a"].partitions) == 4

    gone = admin.delete_topics(["t-a", "t-b", "t-c", "t-none"])
    assert set(gone.results) == {"t-a", "t-b", "t-c"}
    assert isinstance(gone.errors["t-none"], UnknownTopicOrPartition)


def test_a_topic_that_would_be_created_is_not(admin: Admin) -> None:
    checked = admin.create_topics([NewTopic("t-checked")], validate_only=True)

    assert set(checked.results) == {"t-checked"}
    assert "t-checked" not in {each.name for each in admin.list_topics()}


def test_internal_topics_are_listed_if_asked_for(admin: Admin) -> None:
    admin.list_group_offsets(["whoever"])
    admin.alter_group_offsets("whoever", {}).raise_first()

    assert all(not each.is_internal for each in admin.list_topics())
    assert {each.name for each in admin.list_topics(include_internal=True)} >= {
        each.name for each in admin.list_topics()
    }


def test_offsets_and_records(admin: Admin, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    found = admin.list_offsets({first: "earliest", second: "latest"}).raise_first()
    assert found[first].offset == found[second].offset == 0
    assert admin.list_offsets({first: "max_timestamp"})[first].offset is None
    assert admin.list_offsets({first: 0}, isolation_level="read_committed")[first].offset is None
    missing = admin.list_offsets({TopicPartition("t-none", 0): "latest", first: "latest"})
    assert set(missing.results) == {first}
    assert admin.delete_records({first: END}).raise_first()[first] == 0
    with pytest.raises(InvalidArgument, match="'newest' is no offset"):
        admin.list_offsets({first: "newest"})  # type: ignore[dict-item]  # The fault.


def test_leaders_that_need_no_election_are_told(admin: Admin, topic: str) -> None:
    partition = TopicPartition(topic, 0)

    assert isinstance(admin.elect_leaders([partition]).errors[partition], ElectionNotNeeded)


def test_settings_are_read_and_changed(admin: Admin, topic: str) -> None:
    resource = ConfigResource("topic", topic)
    broker = ConfigResource("broker", "1")

    admin.incremental_alter_configs(
        {resource: {"retention.ms": 5000, "cleanup.policy": Append(("compact",))}}
    ).raise_first()
    found = admin.describe_configs([resource, broker], include_synonyms=True).raise_first()
    assert found[resource]["retention.ms"].value == "5000"
    assert found[resource]["retention.ms"].source == "topic"
    assert set((found[resource]["cleanup.policy"].value or "").split(",")) == {"delete", "compact"}
    assert found[broker]["log.retention.hours"].synonyms

    admin.incremental_alter_configs(
        {resource: {"retention.ms": None, "cleanup.policy": Subtract(("compact",))}}
    ).raise_first()
    back = admin.describe_configs([resource], names=["retention.ms"])[resource]
    assert set(back) == {"retention.ms"}
    assert back["retention.ms"].is_default

    wrong = admin.incremental_alter_configs({resource: {"retention.ms": "soon"}})
    assert isinstance(wrong.errors[resource], MillstreamError)
    with pytest.raises(InvalidArgument, match="a broker's name is its id"):
        admin.describe_configs([ConfigResource("broker", "one")])


def test_resources_with_settings_are_listed(admin: Admin, topic: str) -> None:
    assert ConfigResource("topic", topic) in admin.list_config_resources(["topic"])
    assert admin.list_client_metrics_resources() == []

    metrics = ConfigResource("client_metrics", "every-minute")
    admin.incremental_alter_configs({metrics: {"interval.ms": 60_000}}).raise_first()
    assert admin.list_client_metrics_resources() == ["every-minute"]
    admin.incremental_alter_configs({metrics: {"interval.ms": None}}).raise_first()


def test_the_cluster_is_described(admin: Admin, millstream_broker: EmbeddedBroker) -> None:
    cluster = admin.describe_cluster(include_fenced_brokers=True)
    (broker,) = cluster.brokers
    assert f"{broker.host}:{broker.port}" == millstream_broker.bootstrap_servers
    assert cluster.controller_id == broker.node_id
    assert cluster.cluster_id

    features = admin.describe_features()
    assert features["metadata.version"].level > 0
    quorum = admin.describe_quorum()
    assert [each.node_id for each in quorum.voters] == [quorum.leader_id] == [1]
    level = features["metadata.version"].level
    admin.update_features(
        {"metadata.version": FeatureUpdate(level)}, validate_only=True
    ).raise_first()
    with pytest.raises(MillstreamError):
        admin.unregister_broker(77)


def test_log_directories_are_described(admin: Admin, topic: str) -> None:
    (dirs,) = admin.describe_log_dirs().raise_first().results.values()
    ((path, described),) = dirs.items()
    assert TopicPartition(topic, 0) in described.replicas
    assert described.error is None

    here, elsewhere = TopicPartitionReplica(topic, 0, 1), TopicPartitionReplica(topic, 0, 9)
    found = admin.describe_replica_log_dirs([here, elsewhere])
    assert found[here].current == path
    assert "there is no broker 9" in str(found.errors[elsewhere])
    moved = admin.alter_replica_log_dirs({here: "/nowhere"})
    assert here in moved.errors


def test_groups_are_listed_described_and_deleted(admin: Admin, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    wanted: dict[TopicPartition, OffsetAndMetadata | int] = {
        partition: OffsetAndMetadata(0, "note"),
        TopicPartition(topic, 1): 0,
    }
    admin.alter_group_offsets("g-1", wanted).raise_first()

    listed = {each.group_id: each for each in admin.list_groups(states=["Empty"])}
    assert listed["g-1"].state == "Empty"
    assert "g-1" not in {each.group_id for each in admin.list_groups(types=["share"])}
    assert admin.list_groups(protocol_types=["connect"]) == []
    described = admin.describe_groups(["g-1", "g-none"])
    assert described["g-1"].state == "Empty"
    assert described["g-1"].members == ()
    assert isinstance(described.errors["g-none"], GroupIdNotFound)

    offsets = admin.list_group_offsets(["g-1"], require_stable=True)["g-1"]
    assert offsets[partition] == OffsetAndMetadata(0, "note")
    only = admin.list_group_offsets({"g-1": [partition]})["g-1"]
    assert set(only) == {partition}
    admin.delete_group_offsets("g-1", [partition]).raise_first()
    assert partition not in admin.list_group_offsets(["g-1"])["g-1"]
    gone = admin.delete_groups(["g-1", "g-none"])
    assert set(gone.results) == {"g-1"}
    assert isinstance(gone.errors["g-none"], GroupIdNotFound)
    with pytest.raises(GroupIdNotFound):
        admin.describe_group("g-none")


def test_share_groups_have_offsets_of_their_own(admin: Admin, topic: str) -> None:
    partition = TopicPartition(topic, 0)

    for outcome in (
        lambda: admin.list_share_group_offsets(["s-1"]),
        lambda: admin.alter_share_group_offsets("s-1", {partition: 0}),
        lambda: admin.delete_share_group_offsets("s-1", [topic]),
    ):
        found = outcome()
        assert len(found) == 1
        assert all(isinstance(each, MillstreamError) for each in found.errors.values())


def test_transactions_and_producers(admin: Admin, topic: str) -> None:
    fenced = admin.fence_producers(["tx-1"]).raise_first()["tx-1"]
    described = admin.describe_transactions(["tx-1", "tx-none"])
    assert described["tx-1"].state == "Empty"
    assert described["tx-1"].producer_id == fenced.producer_id
    assert described["tx-1"].partitions == frozenset()
    assert isinstance(described.errors["tx-none"], TransactionalIdNotFound)
    assert "tx-1" in {each.transactional_id for each in admin.list_transactions()}
    assert "tx-1" in {each.transactional_id for each in admin.list_transactions(pattern="tx-.*")}
    assert admin.list_transactions(states=["Ongoing"], min_duration=3600) == []

    partition = TopicPartition(topic, 0)
    assert admin.describe_producers([partition]).raise_first()[partition] == ()
    admin.abort_transaction(
        partition, producer_id=fenced.producer_id, producer_epoch=fenced.producer_epoch
    )


def test_what_the_broker_does_not_offer_is_said_clearly(admin: Admin) -> None:
    changes = {QuotaEntity(user="alice"): {"producer_byte_rate": 1.0}}

    with pytest.raises(UnsupportedVersion, match="does not offer it"):
        admin.alter_client_quotas(changes).raise_first()


def test_what_is_not_there_is_answered_as_by_a_kafka_without_it(admin: Admin) -> None:
    with pytest.raises(SecurityDisabled):
        admin.describe_acls()
    assert admin.describe_client_quotas() == {}
    assert admin.describe_user_scram_credentials() == {}
    assert admin.list_partition_reassignments() == {}


def test_a_namespace_sees_only_its_own(millstream_broker: EmbeddedBroker) -> None:
    address = millstream_broker.bootstrap_servers
    with Admin(address) as admin, Admin(address, namespace="staging") as staging:
        admin.create_topic("production-only")
        staging.create_topic("orders")
        staging.alter_group_offsets("g", {TopicPartition("orders", 0): 0}).raise_first()
        staging.fence_producers(["tx"]).raise_first()

        assert [each.name for each in staging.list_topics()] == ["orders"]
        assert "staging.orders" in {each.name for each in admin.list_topics()}
        assert isinstance(
            staging.describe_topics(["production-only"]).errors["production-only"],
            UnknownTopicOrPartition,
        )
        assert [each.group_id for each in staging.list_groups()] == ["g"]
        assert "staging.g" in {each.group_id for each in admin.list_groups()}
        assert [each.transactional_id for each in staging.list_transactions()] == ["tx"]
        assert set(staging.list_group_offsets(["g"])["g"]) == {TopicPartition("orders", 0)}
        assert staging.list_config_resources(["topic"]) == [ConfigResource("topic", "orders")]

        staging.delete_groups(["g"]).raise_first()
        staging.delete_topic("orders")
        admin.delete_topic("production-only")


def test_the_asyncio_version_does_the_same(millstream_broker: EmbeddedBroker) -> None:
    async def administer() -> tuple[int, list[str], list[bool]]:
        async with AsyncAdmin(millstream_broker.bootstrap_servers) as admin:
            created = await admin.create_topic("t-async", partitions=3)
            listed, described = await asyncio.gather(
                admin.list_topics(), admin.describe_topics(["t-async", "t-none"])
            )
            await admin.delete_topic("t-async")
            await admin.close()
            return (
                created.partitions or 0,
                [each.name for each in listed if each.name == "t-async"],
                ["t-none" in described.errors, len(described["t-async"].partitions) == 3],
            )

    assert asyncio.run(administer()) == (3, ["t-async"], [True, True])


def test_both_styles_offer_the_same_operations() -> None:
    def operations(client: type) -> dict[str, inspect.Signature]:
        return {
            name: inspect.signature(member)
            for name, member in vars(client).items()
            if not name.startswith("_")
        }

    assert operations(Admin) == operations(AsyncAdmin)
    assert all(
        inspect.iscoroutinefunction(getattr(AsyncAdmin, each))
        for each in vars(Admin)
        if not each.startswith("_")
    )
    assert not inspect.iscoroutinefunction(Admin.create_topics)
    assert Admin.create_topics.__doc__


def test_kafkas_names_make_an_admin_too(millstream_broker: EmbeddedBroker) -> None:
    properties = {
        "bootstrap.servers": millstream_broker.bootstrap_servers,
        "client.id": "by-names",
        "default.api.timeout.ms": "5000",
    }
    with Admin.from_config(properties) as admin:
        assert admin.describe_cluster().brokers


def test_a_closed_admin_says_so(millstream_broker: EmbeddedBroker) -> None:
    admin = Admin(millstream_broker.bootstrap_servers)
    admin.close()
    admin.close()

    with pytest.raises(ClientClosed):
        admin.list_topics()


def test_without_a_broker_the_reason_is_told() -> None:
    with Admin("127.0.0.1:1", default_api_timeout=1) as admin:
        with pytest.raises(BootstrapFailed, match="connection refused"):
            admin.list_topics()
        with pytest.raises(BootstrapFailed):
            admin.list_groups()
        assert isinstance(admin.delete_topics(["x"]).errors["x"], BootstrapFailed)
        with pytest.raises(InvalidArgument, match="timeout=-1"):
            admin.list_topics(timeout=-1)


def test_closing_ends_calls_that_wait() -> None:
    async def close_early() -> None:
        admin = AsyncAdmin("127.0.0.1:1")
        waiting = asyncio.ensure_future(admin.delete_topics(["x"]))
        await asyncio.sleep(0)
        await admin.close()
        await waiting

    with pytest.raises(ClientClosed):
        asyncio.run(close_early())
