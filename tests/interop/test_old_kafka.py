"""Our clients with Apache Kafka 2.1: negotiated versions, no topic ids, no new APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream import Consumer, Producer
from millstream.client.admin import END, Admin, ConfigResource, NewTopic
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import GroupIdNotFound, UnsupportedVersion
from millstream.types import TopicPartition
from tests.interop.old_kafka import OldKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    kafka = OldKafka(tmp_path_factory.mktemp("old"))
    kafka.start()
    yield kafka.address
    kafka.stop()


@pytest.fixture
def admin(address: str) -> Iterator[Admin]:
    with Admin(address, default_api_timeout=90.0) as admin:
        yield admin


def test_topics_settings_and_the_cluster(admin: Admin) -> None:
    assert [each.node_id for each in admin.describe_cluster().brokers] == [0]
    created = admin.create_topics([NewTopic("a", 2, 1, {"retention.ms": 60_000})])
    assert created["a"].topic_id is None
    with pytest.raises(UnsupportedVersion, match="give partitions and replication factor"):
        admin.create_topic("defaults")
    admin.create_partitions({"a": 3}).raise_first()
    first = TopicPartition("a", 0)
    assert admin.list_offsets({first: "latest"})[first].offset == 0
    assert isinstance(
        admin.list_offsets({first: "max_timestamp"}).errors[first], UnsupportedVersion
    )
    assert admin.delete_records({first: END})[first] == 0
    resource = ConfigResource("topic", "a")
    assert admin.describe_configs([resource])[resource]["retention.ms"].value == "60000"
    changed = admin.incremental_alter_configs({resource: {"retention.ms": 1}})
    assert isinstance(changed.errors[resource], UnsupportedVersion)
    assert admin.describe_log_dirs().raise_first()
    admin.delete_topic("a")


def test_groups_and_their_offsets(admin: Admin) -> None:
    admin.create_topic("grouped", partitions=1, replication_factor=1)
    partition = TopicPartition("grouped", 0)
    admin.alter_group_offsets("g", {partition: OffsetAndMetadata(0, "note")}).raise_first()
    assert "g" in {each.group_id for each in admin.list_groups()}
    described = admin.describe_groups(["g", "none"])
    assert described["g"].state == "Empty"
    assert isinstance(described.errors["none"], GroupIdNotFound)
    found = admin.list_group_offsets(["g", "none"])
    assert found["g"] == {partition: OffsetAndMetadata(0, "note")}
    assert found["none"] == {}
    assert isinstance(admin.delete_groups(["g", "none"]).errors["none"], GroupIdNotFound)


def test_records_go_there_and_come_back(admin: Admin, address: str) -> None:
    admin.create_topic("records", partitions=2, replication_factor=1)

    with Producer(address) as producer:
        deliveries = [producer.send("records", b"%d" % n, key=b"%d" % n) for n in range(200)]
        assert all(each.result(60).offset >= 0 for each in deliveries)
    seen: set[bytes | None] = set()
    with Consumer(address, "records", group_id="readers", auto_offset_reset="earliest") as consumer:
        for _ in range(60):
            seen |= {record.value for record in consumer.poll(1.0)}
            if len(seen) == 200:
                break
        consumer.commit()

    assert seen == {b"%d" % n for n in range(200)}
    assert (
        sum(each.offset for each in admin.list_group_offsets(["readers"])["readers"].values())
        == 200
    )
