"""The questions a broker asks."""

from __future__ import annotations

from random import Random

import pytest

from millstream.errors import InvalidTopic
from millstream.metadata.cache import KRaftMetadataCache
from millstream.metadata.client_quotas import describe_client_quotas
from millstream.metadata.scram import describe_scram_credentials
from millstream.metadata.topic_names import check_topic_name
from millstream.metadata.topic_pages import describe_topic_partitions
from millstream.metadata.topics import TopicImage
from millstream.protocol.messages import broker_records
from millstream.protocol.messages import describe_client_quotas as quotas
from millstream.protocol.messages import describe_user_scram_credentials as scram
from millstream.protocol.messages.topic_records import PartitionChangeRecord, TopicRecord
from tests.unit.metadata.examples import T, U, everything, image_of, partition, uuid

FULL = image_of(*everything(), offset=41)
NEWEST = 13


@pytest.fixture
def cache() -> KRaftMetadataCache:
    return KRaftMetadataCache(FULL)


def test_topics_are_found_by_name_and_id(cache: KRaftMetadataCache) -> None:
    assert cache.topic_id("t") == T
    assert cache.topic_name(T) == "t"
    assert cache.topic("t") is cache.topic_by_id(T)
    assert isinstance(cache.topic("t"), TopicImage)
    assert cache.topic_names() == ["t", "u"]
    assert cache.partition_count("t") == 2
    assert cache.topic_id("nope") is None
    assert cache.topic_name(uuid(99)) is None
    assert cache.partition_count("nope") is None
    assert cache.partition("nope", 0) is None
    assert cache.partition("t", 99) is None


def test_leaders_are_found(cache: KRaftMetadataCache) -> None:
    assert cache.leader_of("t", 0) == 1
    endpoint = cache.leader_endpoint("t", 0, "PLAIN")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("b1", 9092)
    assert cache.leader_endpoint("t", 9, "PLAIN") is None
    leaderless = image_of(PartitionChangeRecord(topic_id=T, partition_id=0, leader=-1), base=FULL)
    assert KRaftMetadataCache(leaderless).leader_of("t", 0) is None


def test_brokers_are_alive_or_not(cache: KRaftMetadataCache) -> None:
    assert cache.alive_broker_ids() == [1, 3]
    assert set(cache.alive_brokers("PLAIN")) == {1, 3}
    assert cache.alive_brokers("nope") == {}
    assert cache.is_alive(1)
    assert not cache.is_alive(2)
    assert cache.broker_endpoint(2, "PLAIN") is None
    assert cache.broker(2) is not None
    assert not cache.is_shutting_down(1)
    change = broker_records.BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=10, in_controlled_shutdown=1
    )
    assert KRaftMetadataCache(image_of(change, base=FULL)).is_shutting_down(1)
    assert not cache.is_shutting_down(77)
    assert cache.random_alive_broker_id(Random(1)) in (1, 3)
    assert KRaftMetadataCache().random_alive_broker_id(Random(1)) == -1


def test_a_cluster_whose_brokers_are_all_fenced_does_not_lose_its_clients(
    cache: KRaftMetadataCache,
) -> None:
    fences = [
        broker_records.FenceBrokerRecord(id=each, epoch=FULL.cluster.brokers[each].epoch)
        for each in (1, 3)
    ]
    stopping = KRaftMetadataCache(image_of(*fences, base=FULL))

    assert stopping.alive_brokers("PLAIN") == {}
    assert [each.node_id for each in stopping.metadata_brokers("PLAIN")] == [1, 2, 3]
    assert stopping.metadata_brokers("nope") == []


def test_settings_and_features(cache: KRaftMetadataCache) -> None:
    assert cache.topic_config("t") == {"retention.ms": "1"}
    assert cache.config(4, "") == {"x": "y"}
    levels = {"metadata.version": 30, "group.version": 1, "kraft.version": 0}
    assert cache.features() == (levels, 41)


def test_the_level_of_kraft_version_is_rafts() -> None:
    levels, _ = KRaftMetadataCache(FULL, kraft_version=lambda: 1).features()

    assert levels["kraft.version"] == 1


def test_metadata_lists_brokers_and_topics(cache: KRaftMetadataCache) -> None:
    brokers = cache.metadata_brokers("PLAIN")
    assert [(each.node_id, each.host, each.rack) for each in brokers] == [
        (1, "b1", "r1"),
        (3, "b3", None),
    ]

    topics = cache.metadata_topics(["t", "nope"], "PLAIN", NEWEST)

    assert [each.name for each in topics] == ["t"]
    first, second = topics[0].partitions
    assert (first.error_code, first.leader_id, first.leader_epoch) == (0, 1, 3)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([1, 2], [1, 2], [2])
    assert (second.isr_nodes, second.offline_replicas) == ([1], [2])
    unknown = cache.unknown_topic("__consumer_offsets")
    assert (unknown.error_code, unknown.is_internal) == (3, True)


def test_metadata_by_id_knows_unknown_ids(cache: KRaftMetadataCache) -> None:
    found, unknown = cache.metadata_topics_by_id([T, uuid(99)], "PLAIN", NEWEST)

    assert (found.name, found.topic_id, found.error_code) == ("t", T, 0)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, uuid(99), 100)


@pytest.mark.parametrize(("version", "code"), [(6, 72), (5, 5)])
def test_a_leader_without_the_listener_has_an_error_of_its_own_since_version_6(
    version: int, code: int
) -> None:
    one_listener = image_of(
        TopicRecord(name="v", topic_id=uuid(20)),
        broker_records.RegisterBrokerRecord(
            broker_id=8,
            broker_epoch=1,
            fenced=False,
            end_points=[broker_records.BrokerEndpoint(name="PLAIN")],
        ),
        partition(uuid(20), 0, [8]),
        base=FULL,
    )

    found = KRaftMetadataCache(one_listener).metadata_topics(["v"], "SSL", version)[0]

    assert (found.partitions[0].error_code, found.partitions[0].leader_id) == (code, -1)


def test_a_partition_without_leader_or_with_a_dead_one_says_so() -> None:
    image = image_of(
        PartitionChangeRecord(topic_id=T, partition_id=0, leader=-1),
        PartitionChangeRecord(topic_id=T, partition_id=1, leader=2),
        base=FULL,
    )

    found = KRaftMetadataCache(image).metadata_topics(["t"], "PLAIN", NEWEST)[0]

    assert [each.error_code for each in found.partitions] == [5, 5]
    assert [each.leader_id for each in found.partitions] == [-1, -1]


def test_the_oldest_version_lists_only_what_can_be_reached(cache: KRaftMetadataCache) -> None:
    found = cache.metadata_topics(["t", "u"], "PLAIN", 0)

    first = found[0].partitions[0]
    assert (first.error_code, first.replica_nodes, first.isr_nodes) == (9, [1], [1])
    assert (first.leader_id, found[1].partitions[0].error_code) == (1, 0)


def test_a_replica_in_a_failed_directory_is_offline() -> None:
    record = PartitionChangeRecord(topic_id=U, partition_id=0, directories=[uuid(60)])

    found = KRaftMetadataCache(image_of(record, base=FULL)).metadata_topics(["u"], "PLAIN", NEWEST)

    assert found[0].partitions[0].offline_replicas == [3]


def test_the_cluster_is_described_with_or_without_fenced_brokers(
    cache: KRaftMetadataCache,
) -> None:
    alive = cache.describe_cluster_brokers("PLAIN")
    everybody = cache.describe_cluster_brokers("PLAIN", with_fenced=True)

    assert [each.broker_id for each in alive] == [1, 3]
    assert [(each.broker_id, each.is_fenced) for each in everybody] == [
        (1, False),
        (2, True),
        (3, False),
    ]
    assert [each.broker_id for each in cache.describe_cluster_brokers("SSL")] == [1, 3]


def test_partitions_are_described_a_page_at_a_time() -> None:
    names = ["u", "t", "t", "bad name", "missing"]
    pages = []
    first = None
    while True:
        page = describe_topic_partitions(FULL, names, "PLAIN", partition_limit=1, first=first)
        pages.append([(each.name, each.error_code, len(each.partitions)) for each in page.topics])
        if page.next_cursor is None:
            break
        first = (page.next_cursor.topic_name, page.next_cursor.partition_index)

    assert pages == [
        [("bad name", 17, 0), ("missing", 3, 0), ("t", 0, 1)],
        [("t", 0, 1)],
        [("u", 0, 1)],
    ]
    whole = describe_topic_partitions(FULL, names, "PLAIN", partition_limit=100)
    described = whole.topics[2].partitions[1]
    assert (described.eligible_leader_replicas, described.last_known_elr) == ([2], [3])
    assert whole.next_cursor is None


def test_topic_names_have_rules() -> None:
    for good in ("a", "a.b_c-D9", "x" * 249):
        check_topic_name(good)
    for bad in ("", ".", "..", "a b", "x" * 250, "ä", "a/b", "a\n"):
        with pytest.raises(InvalidTopic):
            check_topic_name(bad)


def quota_request(
    *components: tuple[str, int, str | None], strict: bool = False
) -> quotas.DescribeClientQuotasRequest:
    return quotas.DescribeClientQuotasRequest(
        components=[
            quotas.ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        ],
        strict=strict,
    )


def entities(request: quotas.DescribeClientQuotasRequest) -> list[dict[str, str | None]]:
    response = describe_client_quotas(FULL.client_quotas, request)
    assert response.error_code == 0, response
    return [
        {part.entity_type: part.entity_name for part in entry.entity}
        for entry in response.entries or ()
    ]


def test_client_quotas_are_described_by_filter() -> None:
    alice, both = {"user": "alice"}, {"client-id": "c", "user": None}
    exact, default, specified = 0, 1, 2

    assert entities(quota_request()) == [both, alice]
    assert entities(quota_request(("user", exact, "alice"))) == [alice]
    assert entities(quota_request(("user", default, None))) == [both]
    assert entities(quota_request(("user", default, None), strict=True)) == []
    assert entities(quota_request(("user", specified, None))) == [both, alice]
    assert entities(quota_request(("ip", specified, None))) == []
    found = describe_client_quotas(FULL.client_quotas, quota_request(("user", exact, "alice")))
    assert found.entries is not None
    assert (found.entries[0].values[0].key, found.entries[0].values[0].value) == (
        "request_percentage",
        1.5,
    )


@pytest.mark.parametrize(
    "request_",
    [
        quota_request(("", 0, "mars")),
        quota_request(("user", 0, "a"), ("user", 0, "b")),
        quota_request(("user", 9, None)),
        quota_request(("user", 0, None)),
        quota_request(("user", 1, "a")),
        quota_request(("ip", 2, None), ("user", 2, None)),
    ],
)
def test_quota_filters_that_make_no_sense_are_refused(
    request_: quotas.DescribeClientQuotasRequest,
) -> None:
    response = describe_client_quotas(FULL.client_quotas, request_)

    assert (response.error_code, response.entries) == (42, None)
    assert response.error_message


def test_quotas_of_a_kind_that_nobody_knows_may_be_those_of_a_younger_version() -> None:
    response = describe_client_quotas(FULL.client_quotas, quota_request(("planet", 0, "mars")))

    assert (response.error_code, response.entries) == (35, None)


def test_scram_credentials_are_described_without_secrets() -> None:
    ask = scram.DescribeUserScramCredentialsRequest
    all_users = describe_scram_credentials(FULL.scram, ask(users=None))
    assert [each.user for each in all_users.results] == ["alice"]
    assert all_users.results[0].credential_infos == [
        scram.CredentialInfo(mechanism=1, iterations=4096)
    ]

    names = [scram.UserName(name=each) for each in ("alice", "bob", "carol", "carol")]
    found = describe_scram_credentials(FULL.scram, ask(users=names))

    codes = {each.user: each.error_code for each in found.results}
    assert codes == {"alice": 0, "bob": 91, "carol": 92}
