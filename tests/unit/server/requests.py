"""A small request that makes sense, for every API and version that a broker answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    add_offsets_to_txn,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    consumer_group_heartbeat,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_configs,
    describe_producers,
    describe_share_group_offsets,
    end_txn,
    heartbeat,
    incremental_alter_configs,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    write_share_group_state,
)
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.find_coordinator import FindCoordinatorRequest
from millstream.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from millstream.protocol.messages.init_producer_id import InitProducerIdRequest
from millstream.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.protocol.messages.push_telemetry import PushTelemetryRequest
from millstream.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.unit.server.harness import NODE_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message
    from tests.unit.server.harness import Broker

TOPIC: Final = "orders"


def request_for(api: ApiKey, version: int, broker: Broker) -> Message:
    """A request about the topic `orders`, which the broker has."""
    make = _MAKERS.get(api)
    return api.request() if make is None else make(broker, version)


def list_offsets_request(
    *timestamps: int, topic: str = TOPIC, **changes: int
) -> list_offsets.ListOffsetsRequest:
    """Ask for partitions 0, 1, ... of a topic, as a consumer."""
    partitions = [
        list_offsets.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        for index, timestamp in enumerate(timestamps)
    ]
    asked = list_offsets.ListOffsetsTopic(name=topic, partitions=partitions)
    fields: dict[str, Any] = {"replica_id": -1} | changes
    return list_offsets.ListOffsetsRequest(**fields, topics=[asked])


def delete_records_request(offset: int, topic: str = TOPIC) -> delete_records.DeleteRecordsRequest:
    """Delete what is before an offset in partition 0."""
    partition = delete_records.DeleteRecordsPartition(offset=offset)
    asked = delete_records.DeleteRecordsTopic(name=topic, partitions=[partition])
    return delete_records.DeleteRecordsRequest(topics=[asked], timeout_ms=1000)


def describe_configs_request(
    resource_type: int,
    name: str,
    keys: list[str] | None = None,
    *,
    with_synonyms: bool = False,
    with_documentation: bool = False,
) -> describe_configs.DescribeConfigsRequest:
    """Ask for the settings of one resource."""
    resource = describe_configs.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=keys
    )
    return describe_configs.DescribeConfigsRequest(
        resources=[resource],
        include_synonyms=with_synonyms,
        include_documentation=with_documentation,
    )


def alter_request(
    resource_type: int, name: str, *changes: tuple[str, str | None], operation: int = 0
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    """Change settings of one resource."""
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=key, value=value, config_operation=operation
                    )
                    for key, value in changes
                ],
            )
        ]
    )


def move_request(path: str, topic: str = TOPIC) -> Message:
    """Move partition 0 to another directory."""
    move = alter_replica_log_dirs.AlterReplicaLogDirTopic(name=topic, partitions=[0])
    into = alter_replica_log_dirs.AlterReplicaLogDir(path=path, topics=[move])
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[into])


def end_of_epoch_request(
    leader_epoch: int, current_leader_epoch: int = -1, topic: str = TOPIC
) -> Message:
    """Ask where an epoch of partition 0 ended."""
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(
        leader_epoch=leader_epoch, current_leader_epoch=current_leader_epoch
    )
    asked = offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[partition])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[asked])


def describe_producers_request(topic: str = TOPIC) -> Message:
    """Ask for the producers of partition 0."""
    asked = describe_producers.TopicRequest(name=topic, partition_indexes=[0])
    return describe_producers.DescribeProducersRequest(topics=[asked])


def find_coordinator_request(version: int, key_type: int = 0) -> FindCoordinatorRequest:
    """Ask for the coordinator of `g`."""
    if version < 4:
        return FindCoordinatorRequest(key="g", key_type=key_type)
    return FindCoordinatorRequest(coordinator_keys=["g"], key_type=key_type)


def _delete_topics(broker: Broker, version: int) -> Message:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1000)
    return delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name=TOPIC)], timeout_ms=1000
    )


def _coordinated(make: Callable[[int], Message]) -> Callable[[Broker, int], Message]:
    """A request to a coordinator whose topics exist; it knows no group and no producer."""

    def made(broker: Broker, version: int) -> Message:
        for key_type in (0, 1):
            broker.ask(find_coordinator_request(4, key_type), 4)
        return make(version)

    return made


def _push_telemetry(broker: Broker, version: int) -> Message:
    known = broker.ask(GetTelemetrySubscriptionsRequest())
    return PushTelemetryRequest(
        client_instance_id=known.client_instance_id, subscription_id=known.subscription_id
    )


def _offset_fetch(version: int) -> Message:
    if version < 8:
        topic = offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        return offset_fetch.OffsetFetchRequest(group_id="g", topics=[topic])
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
    return offset_fetch.OffsetFetchRequest(groups=[group])


def _leave_group(version: int) -> Message:
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id="g", member_id="m")
    return leave_group.LeaveGroupRequest(
        group_id="g", members=[leave_group.MemberIdentity(member_id="m")]
    )


_COORDINATED: Final[dict[ApiKey, Callable[[int], Message]]] = {
    ApiKey.JOIN_GROUP: lambda _: join_group.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[join_group.JoinGroupRequestProtocol(name="range")],
    ),
    ApiKey.SYNC_GROUP: lambda _: sync_group.SyncGroupRequest(
        group_id="g", member_id="m", protocol_type="consumer", protocol_name="range"
    ),
    ApiKey.HEARTBEAT: lambda _: heartbeat.HeartbeatRequest(group_id="g", member_id="m"),
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.OFFSET_COMMIT: lambda _: offset_commit.OffsetCommitRequest(group_id="g"),
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: lambda _: offset_delete.OffsetDeleteRequest(group_id="g"),
    ApiKey.TXN_OFFSET_COMMIT: lambda _: txn_offset_commit.TxnOffsetCommitRequest(
        group_id="g", transactional_id="tx"
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: lambda _: add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id="tx", group_id="g"
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda _: (
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
    ),
    ApiKey.END_TXN: lambda _: end_txn.EndTxnRequest(transactional_id="tx"),
}

_OF_TOPIC: Final = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (
        initialize_share_group_state,
        "InitializeStateData",
    ),
    ApiKey.READ_SHARE_GROUP_STATE: (read_share_group_state, "ReadStateData"),
    ApiKey.WRITE_SHARE_GROUP_STATE: (write_share_group_state, "WriteStateData"),
    ApiKey.DELETE_SHARE_GROUP_STATE: (delete_share_group_state, "DeleteStateData"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (
        read_share_group_state_summary,
        "ReadStateSummaryData",
    ),
}


def share_state_request(api: ApiKey, broker: Broker, **fields: Any) -> Message:
    """A request about the share state of partition 0, whose topic is made if it must be."""
    broker.ask(
        FindCoordinatorRequest(
            key_type=2, coordinator_keys=[f"g:{broker.metadata.topic_id(TOPIC)}:0"]
        )
    )
    module, topic = _OF_TOPIC[api]
    asked = getattr(module, topic)(
        topic_id=broker.metadata.topic_id(TOPIC), partitions=[module.PartitionData(**fields)]
    )
    request: Message = api.request(group_id="g", topics=[asked])  # type: ignore[call-arg]
    return request


_SHARES: Final[dict[ApiKey, Callable[[int], Message]]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: lambda _: share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", subscribed_topic_names=[TOPIC]
    ),
    ApiKey.SHARE_FETCH: lambda _: share_fetch.ShareFetchRequest(group_id="g", member_id="m"),
    ApiKey.SHARE_ACKNOWLEDGE: lambda _: share_acknowledge.ShareAcknowledgeRequest(
        group_id="g", member_id="m", share_session_epoch=1
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: lambda _: share_group_describe.ShareGroupDescribeRequest(
        group_ids=["g"]
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda _: (
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            groups=[
                describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
                    group_id="g", topics=None
                )
            ]
        )
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda _: (
        alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id="g")
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda _: (
        delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group_id="g")
    ),
}


def _share_state(api: ApiKey) -> Callable[[Broker, int], Message]:
    return lambda broker, _: share_state_request(api, broker)


_MAKERS: Final[dict[ApiKey, Callable[[Broker, int], Message]]] = {
    ApiKey.PRODUCE: lambda broker, _: broker.produce_request(),
    ApiKey.FETCH: lambda broker, _: broker.fetch_request(0),
    ApiKey.LIST_OFFSETS: lambda *_: list_offsets_request(-1),
    ApiKey.METADATA: lambda *_: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]),
    ApiKey.FIND_COORDINATOR: lambda _, version: find_coordinator_request(version),
    ApiKey.API_VERSIONS: lambda *_: ApiVersionsRequest(
        client_software_name="tests", client_software_version="1.0"
    ),
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: lambda *_: delete_records_request(0),
    ApiKey.INIT_PRODUCER_ID: lambda *_: InitProducerIdRequest(transactional_id=None),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda *_: end_of_epoch_request(0),
    ApiKey.DESCRIBE_CONFIGS: lambda *_: describe_configs_request(2, TOPIC),
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda *_: move_request("/disk1"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda *_: alter_request(2, TOPIC, ("retention.ms", "5")),
    ApiKey.DESCRIBE_PRODUCERS: lambda *_: describe_producers_request(),
    ApiKey.UNREGISTER_BROKER: lambda *_: UnregisterBrokerRequest(broker_id=NODE_ID),
    ApiKey.PUSH_TELEMETRY: _push_telemetry,
    **{api: _coordinated(make) for api, make in _COORDINATED.items()},
    **{api: _coordinated(make) for api, make in _SHARES.items()},
    **{api: _share_state(api) for api in _OF_TOPIC},
}
