"""The answer to a request that failed as a whole, for every API of the controller.

Errors of single topics, partitions or resources are put into answers where they are found. Here an
error is put wherever the answer of that API has room for it, so that every client sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.protocol.messages import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    expire_delegation_token,
    incremental_alter_configs,
    list_partition_reassignments,
    renew_delegation_token,
    unregister_broker,
    update_features,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import ApiError
    from millstream.protocol.message import Message

_CODE_ONLY: Final[dict[type[Message], type[Message]]] = {
    allocate_producer_ids.AllocateProducerIdsRequest: (
        allocate_producer_ids.AllocateProducerIdsResponse
    ),
    alter_partition.AlterPartitionRequest: alter_partition.AlterPartitionResponse,
    assign_replicas_to_dirs.AssignReplicasToDirsRequest: (
        assign_replicas_to_dirs.AssignReplicasToDirsResponse
    ),
    broker_heartbeat.BrokerHeartbeatRequest: broker_heartbeat.BrokerHeartbeatResponse,
    broker_registration.BrokerRegistrationRequest: broker_registration.BrokerRegistrationResponse,
    create_delegation_token.CreateDelegationTokenRequest: (
        create_delegation_token.CreateDelegationTokenResponse
    ),
    expire_delegation_token.ExpireDelegationTokenRequest: (
        expire_delegation_token.ExpireDelegationTokenResponse
    ),
    renew_delegation_token.RenewDelegationTokenRequest: (
        renew_delegation_token.RenewDelegationTokenResponse
    ),
}
_CODE_AND_MESSAGE: Final[dict[type[Message], type[Message]]] = {
    alter_partition_reassignments.AlterPartitionReassignmentsRequest: (
        alter_partition_reassignments.AlterPartitionReassignmentsResponse
    ),
    controller_registration.ControllerRegistrationRequest: (
        controller_registration.ControllerRegistrationResponse
    ),
    list_partition_reassignments.ListPartitionReassignmentsRequest: (
        list_partition_reassignments.ListPartitionReassignmentsResponse
    ),
    unregister_broker.UnregisterBrokerRequest: unregister_broker.UnregisterBrokerResponse,
}


def error_response(request: Message, error: ApiError) -> Message:
    """The answer that says that nothing of a request was done, and why."""
    code_only: Callable[..., Message] | None = _CODE_ONLY.get(type(request))
    if code_only is not None:
        return code_only(error_code=error.code)
    fault = {"error_code": error.code, "error_message": str(error)}
    with_message: Callable[..., Message] | None = _CODE_AND_MESSAGE.get(type(request))
    if with_message is not None:
        return with_message(**fault)
    return _PER_ITEM[type(request)](request, fault)


def _create_topics(request: create_topics.CreateTopicsRequest, fault: dict[str, Any]) -> Message:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(name=name, configs=None, **fault) for name in names
        ]
    )


def _delete_topics(request: delete_topics.DeleteTopicsRequest, fault: dict[str, Any]) -> Message:
    by_name = [delete_topics.DeletableTopicResult(name=n, **fault) for n in request.topic_names]
    given = [
        delete_topics.DeletableTopicResult(name=each.name, topic_id=each.topic_id, **fault)
        for each in request.topics
    ]
    return delete_topics.DeleteTopicsResponse(responses=[*by_name, *given])


def _create_partitions(
    request: create_partitions.CreatePartitionsRequest, fault: dict[str, Any]
) -> Message:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return create_partitions.CreatePartitionsResponse(
        results=[create_partitions.CreatePartitionsTopicResult(name=n, **fault) for n in names]
    )


def _alter_configs(request: alter_configs.AlterConfigsRequest, fault: dict[str, Any]) -> Message:
    return alter_configs.AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(
                resource_type=each.resource_type, resource_name=each.resource_name, **fault
            )
            for each in request.resources
        ]
    )


def _incremental_alter_configs(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, fault: dict[str, Any]
) -> Message:
    return incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                resource_type=each.resource_type, resource_name=each.resource_name, **fault
            )
            for each in request.resources
        ]
    )


def _alter_client_quotas(
    request: alter_client_quotas.AlterClientQuotasRequest, fault: dict[str, Any]
) -> Message:
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[
            alter_client_quotas.AlterClientQuotasResponseEntryData(
                entity=[
                    alter_client_quotas.AlterClientQuotasResponseEntityData(
                        entity_type=part.entity_type, entity_name=part.entity_name
                    )
                    for part in entry.entity
                ],
                **fault,
            )
            for entry in request.entries
        ]
    )


def _create_acls(request: create_acls.CreateAclsRequest, fault: dict[str, Any]) -> Message:
    results = [create_acls.AclCreationResult(**fault) for _ in request.creations]
    return create_acls.CreateAclsResponse(results=results)


def _delete_acls(request: delete_acls.DeleteAclsRequest, fault: dict[str, Any]) -> Message:
    results = [delete_acls.DeleteAclsFilterResult(**fault) for _ in request.filters]
    return delete_acls.DeleteAclsResponse(filter_results=results)


def _alter_scram(
    request: alter_user_scram_credentials.AlterUserScramCredentialsRequest, fault: dict[str, Any]
) -> Message:
    deleted = [each.name for each in request.deletions]
    users = dict.fromkeys([*deleted, *(each.name for each in request.upsertions)])
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        results=[
            alter_user_scram_credentials.AlterUserScramCredentialsResult(user=user, **fault)
            for user in users
        ]
    )


def _elect_leaders(request: elect_leaders.ElectLeadersRequest, fault: dict[str, Any]) -> Message:
    # Version 0 has no room for an error of the whole, so every partition gets it too.
    return elect_leaders.ElectLeadersResponse(
        error_code=fault["error_code"],
        replica_election_results=[
            elect_leaders.ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    elect_leaders.PartitionResult(partition_id=each, **fault)
                    for each in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )


def _update_features(
    request: update_features.UpdateFeaturesRequest, fault: dict[str, Any]
) -> Message:
    return update_features.UpdateFeaturesResponse(
        results=[
            update_features.UpdatableFeatureResult(feature=each.feature, **fault)
            for each in request.feature_updates
        ],
        **fault,
    )


_PER_ITEM: Final[dict[type[Message], Callable[[Any, dict[str, Any]], Message]]] = {
    alter_client_quotas.AlterClientQuotasRequest: _alter_client_quotas,
    alter_configs.AlterConfigsRequest: _alter_configs,
    alter_user_scram_credentials.AlterUserScramCredentialsRequest: _alter_scram,
    create_acls.CreateAclsRequest: _create_acls,
    create_partitions.CreatePartitionsRequest: _create_partitions,
    create_topics.CreateTopicsRequest: _create_topics,
    delete_acls.DeleteAclsRequest: _delete_acls,
    delete_topics.DeleteTopicsRequest: _delete_topics,
    elect_leaders.ElectLeadersRequest: _elect_leaders,
    incremental_alter_configs.IncrementalAlterConfigsRequest: _incremental_alter_configs,
    update_features.UpdateFeaturesRequest: _update_features,
}

CONTROLLER_REQUESTS: Final = frozenset({*_CODE_ONLY, *_CODE_AND_MESSAGE, *_PER_ITEM})
"""The requests that `QuorumController.handle` answers."""
