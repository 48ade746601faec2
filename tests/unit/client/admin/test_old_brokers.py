"""Administration of brokers back to Kafka 2.1: other versions, the same results."""

from __future__ import annotations

import pytest

from millstream.client.admin.cluster import FeatureUpdate
from millstream.client.admin.configs import ConfigResource
from millstream.client.admin.groups import MemberToRemove
from millstream.client.admin.partitions import Reassignment
from millstream.client.groups import OffsetAndMetadata
from millstream.errors import GroupIdNotFound, UnsupportedVersion
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    AlterPartitionReassignmentsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    DescribeGroupsResponse,
    ElectLeadersResponse,
    LeaveGroupResponse,
    ListConfigResourcesResponse,
    ListGroupsResponse,
    ListPartitionReassignmentsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    UpdateFeaturesResponse,
)
from millstream.protocol.messages.alter_partition_reassignments import (
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from millstream.protocol.messages.create_topics import CreatableTopicResult
from millstream.protocol.messages.delete_topics import DeletableTopicResult
from millstream.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from millstream.protocol.messages.elect_leaders import PartitionResult, ReplicaElectionResult
from millstream.protocol.messages.leave_group import LeaveGroupRequest, MemberResponse
from millstream.protocol.messages.list_config_resources import ConfigResource as ListedResource
from millstream.protocol.messages.list_groups import ListedGroup
from millstream.protocol.messages.list_partition_reassignments import (
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from millstream.protocol.messages.update_features import UpdatableFeatureResult
from millstream.protocol.notation import VersionRange
from millstream.protocol.records_framing import encode_assignment, encode_subscription
from millstream.types import TopicPartition
from tests.unit.client.admin.office import Office

KAFKA_2_1 = {
    ApiKey.METADATA: VersionRange(0, 7),
    ApiKey.FIND_COORDINATOR: VersionRange(0, 2),
    ApiKey.DESCRIBE_GROUPS: VersionRange(0, 2),
    ApiKey.LIST_GROUPS: VersionRange(0, 2),
    ApiKey.DELETE_TOPICS: VersionRange(0, 3),
    ApiKey.OFFSET_FETCH: VersionRange(0, 5),
    ApiKey.LEAVE_GROUP: VersionRange(0, 2),
}
A0 = TopicPartition("a", 0)


def test_a_broker_without_defaults_wants_the_numbers() -> None:
    office = Office(versions={**KAFKA_2_1, ApiKey.CREATE_TOPICS: VersionRange(0, 3)})
    office.answers(
        ApiKey.CREATE_TOPICS, CreateTopicsResponse(topics=[CreatableTopicResult(name="a")])
    )

    with pytest.raises(UnsupportedVersion, match="give partitions and replication factor"):
        office.run(office.operations.create_topic("a"))
    created = office.run(office.operations.create_topic("a", partitions=1, replication_factor=1))

    assert created.topic_id is None
    assert created.partitions is None


def test_topics_are_deleted_by_name() -> None:
    office = Office(versions=KAFKA_2_1)
    office.answers(
        ApiKey.DELETE_TOPICS, DeleteTopicsResponse(responses=[DeletableTopicResult(name="a")])
    )

    office.run(office.operations.delete_topic("a"))

    (asked,) = office.requests(ApiKey.DELETE_TOPICS)
    assert asked.topic_names == ["a"]


def test_the_cluster_is_described_from_metadata() -> None:
    office = Office(versions=KAFKA_2_1)

    cluster = office.run(office.operations.describe_cluster())

    assert [each.node_id for each in cluster.brokers] == [1, 2, 3]
    assert cluster.cluster_id == "scripted"
    assert cluster.controller_id == 1


def test_offsets_of_several_groups_are_asked_for_one_by_one() -> None:
    office = Office(versions=KAFKA_2_1)

    def answer(request: OffsetFetchRequest) -> OffsetFetchResponse:
        partition = OffsetFetchResponsePartition(
            partition_index=0,
            committed_offset=len(request.group_id),
            committed_leader_epoch=3,
            metadata=None,
        )
        nothing = OffsetFetchResponsePartition(partition_index=1, committed_offset=-1)
        topic = OffsetFetchResponseTopic(name="a", partitions=[partition, nothing])
        return OffsetFetchResponse(topics=[topic])

    office.answers(ApiKey.OFFSET_FETCH, answer)

    found = office.run(office.operations.list_group_offsets({"g": None, "gg": [A0]}))

    assert found["g"] == {A0: OffsetAndMetadata(1, "", 3)}
    assert found["gg"] == {A0: OffsetAndMetadata(2, "", 3)}
    assert len(office.requests(ApiKey.OFFSET_FETCH)) == 2


def test_newer_brokers_are_asked_for_all_groups_of_theirs_at_once() -> None:
    office = Office()

    def answer(request: OffsetFetchRequest) -> OffsetFetchResponse:
        part = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata="m")
        bad = OffsetFetchResponsePartitions(partition_index=0, error_code=29)
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=each.group_id,
                    error_code=30 if each.group_id == "denied1" else 0,
                    topics=[
                        OffsetFetchResponseTopics(
                            name="a", partitions=[bad if each.group_id == "bad1" else part]
                        )
                    ],
                )
                for each in request.groups
            ]
        )

    office.answers(ApiKey.OFFSET_FETCH, answer)

    found = office.run(office.operations.list_group_offsets(["g1", "h1", "g2", "bad1", "denied1"]))

    assert found["g1"] == found["h1"] == found["g2"] == {A0: OffsetAndMetadata(7, "m")}
    assert set(found.errors) == {"bad1", "denied1"}
    assert sorted(office.nodes(ApiKey.OFFSET_FETCH)) == [1, 2]


def test_a_dead_group_is_no_group() -> None:
    office = Office(versions=KAFKA_2_1)
    office.answers(
        ApiKey.DESCRIBE_GROUPS,
        DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Dead")]),
    )

    found = office.run(office.operations.describe_groups(["g"]))

    assert isinstance(found.errors["g"], GroupIdNotFound)


def test_members_of_classic_groups_are_read_and_strange_bytes_survived() -> None:
    office = Office(versions=KAFKA_2_1, namespace="e")
    assignment = encode_assignment(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic="e.a", partitions=[0]),
                ConsumerProtocolAssignmentTopicPartition(topic="other", partitions=[0]),
            ]
        ),
        0,
    )
    members = [
        DescribedGroupMember(
            member_id="m1",
            member_metadata=encode_subscription(ConsumerProtocolSubscription(topics=["e.a"]), 0),
            member_assignment=assignment,
        ),
        DescribedGroupMember(member_id="m2", member_assignment=b"\xff"),
    ]
    described = DescribedGroup(
        group_id="e.g", group_state="Stable", protocol_type="consumer", members=members
    )
    office.answers(ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse(groups=[described]))

    group = office.run(office.operations.describe_group("g"))

    assert group.type == "classic"
    assert [each.assignment for each in group.members] == [frozenset({A0}), frozenset()]
    assert group.members[0].subscribed_topics == {"a"}


def test_old_brokers_cannot_filter_groups_and_say_so() -> None:
    office = Office(versions=KAFKA_2_1)
    office.answers(
        ApiKey.LIST_GROUPS,
        ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")]),
    )

    listed = office.run(office.operations.list_groups())
    assert [each.group_id for each in listed] == ["g"]
    with pytest.raises(UnsupportedVersion, match="version 4"):
        office.run(office.operations.list_groups(states=["Empty"]))


def test_members_leave_one_by_one_or_together() -> None:
    members = [MemberToRemove(member_id="m1"), MemberToRemove(member_id="m2")]
    old = Office(versions=KAFKA_2_1)
    old.answers(ApiKey.LEAVE_GROUP, LeaveGroupResponse())
    old.run(old.operations.remove_members("g", members)).raise_first()
    assert [each.member_id for each in old.requests(ApiKey.LEAVE_GROUP)] == ["m1", "m2"]

    new = Office()

    def answer(request: LeaveGroupRequest) -> LeaveGroupResponse:
        return LeaveGroupResponse(
            members=[
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=25 if each.member_id == "m2" else 0,
                )
                for each in request.members
            ]
        )

    new.answers(ApiKey.LEAVE_GROUP, answer)
    found = new.run(new.operations.remove_members("g", members, reason="tidy"))
    assert set(found.results) == {members[0]}
    assert len(new.requests(ApiKey.LEAVE_GROUP)) == 1


def test_all_members_of_a_group_leave() -> None:
    office = Office(versions={**KAFKA_2_1, ApiKey.LEAVE_GROUP: VersionRange(0, 5)})
    described = DescribedGroup(
        group_id="g",
        group_state="Stable",
        members=[DescribedGroupMember(member_id="m1"), DescribedGroupMember(member_id="m2")],
    )
    office.answers(ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse(groups=[described]))
    office.answers(
        ApiKey.LEAVE_GROUP,
        LeaveGroupResponse(members=[MemberResponse(member_id="m1", group_instance_id=None)]),
    )

    found = office.run(office.operations.remove_members("g"))

    assert {each.member_id for each in found.results} == {"m1", "m2"}


def test_moves_are_begun_and_listed() -> None:
    office = Office(namespace="e")
    office.answers(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsResponse(
            responses=[
                ReassignableTopicResponse(
                    name="e.a", partitions=[ReassignablePartitionResponse(partition_index=0)]
                )
            ]
        ),
    )
    office.answers(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ListPartitionReassignmentsResponse(
            topics=[
                OngoingTopicReassignment(
                    name=name,
                    partitions=[
                        OngoingPartitionReassignment(
                            partition_index=0,
                            replicas=[1, 2],
                            adding_replicas=[2],
                            removing_replicas=[1],
                        )
                    ],
                )
                for name in ("e.a", "other")
            ]
        ),
    )

    office.run(office.operations.alter_partition_reassignments({A0: [2]})).raise_first()
    office.run(
        office.operations.alter_partition_reassignments(
            {A0: None}, allow_replication_factor_change=False
        )
    ).raise_first()
    moves = office.run(office.operations.list_partition_reassignments([A0]))

    assert moves == {A0: Reassignment((1, 2), (2,), (1,))}
    assert moves == office.run(office.operations.list_partition_reassignments())
    begun, cancelled = office.requests(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    assert begun.topics[0].partitions[0].replicas == [2]
    assert cancelled.topics[0].partitions[0].replicas is None


def test_an_election_that_is_not_needed_is_an_answer() -> None:
    office = Office()
    result = ReplicaElectionResult(
        topic="a", partition_result=[PartitionResult(partition_id=0, error_code=84)]
    )
    office.answers(ApiKey.ELECT_LEADERS, ElectLeadersResponse(replica_election_results=[result]))

    found = office.run(office.operations.elect_leaders([A0], election="unclean"))

    assert set(found.errors) == {A0}
    (asked,) = office.requests(ApiKey.ELECT_LEADERS)
    assert asked.election_type == 1


def test_features_are_updated_in_the_first_version_too() -> None:
    office = Office(
        versions={ApiKey.METADATA: VersionRange(0, 12), ApiKey.UPDATE_FEATURES: VersionRange(0, 0)}
    )
    office.answers(
        ApiKey.UPDATE_FEATURES,
        UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature="f", error_code=91)]),
    )

    found = office.run(
        office.operations.update_features(
            {"f": FeatureUpdate(1, "unsafe_downgrade"), "g": FeatureUpdate(2)}
        )
    )

    assert set(found.errors) == {"f"}
    assert set(found.results) == {"g"}
    (asked,) = office.requests(ApiKey.UPDATE_FEATURES)
    assert [each.allow_downgrade for each in asked.feature_updates] == [True, False]


def test_resources_of_kinds_that_are_not_known_are_listed_as_such() -> None:
    office = Office(namespace="e")
    office.answers(
        ApiKey.LIST_CONFIG_RESOURCES,
        ListConfigResourcesResponse(
            config_resources=[
                ListedResource(resource_name="e.a", resource_type=2),
                ListedResource(resource_name="other", resource_type=2),
                ListedResource(resource_name="new", resource_type=77),
            ]
        ),
    )

    found = office.run(office.operations.list_config_resources())

    assert found == [ConfigResource("topic", "a"), ConfigResource("unknown", "new")]
