"""What is answered about features that are not there: what a Kafka without them answers."""

from __future__ import annotations

import pytest

from millstream.errors import (
    DelegationTokenRequestNotAllowed,
    DuplicateResource,
    IllegalSaslState,
    NoReassignmentInProgress,
    ResourceNotFound,
    SecurityDisabled,
    UnknownTopicOrPartition,
)
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from millstream.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from millstream.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from millstream.protocol.messages.describe_acls import DescribeAclsRequest
from millstream.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from millstream.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from millstream.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from millstream.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from millstream.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from millstream.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.unit.server.harness import Broker


@pytest.fixture(scope="module")
def broker() -> Broker:
    broker = Broker()
    broker.create()
    return broker


def test_without_an_authorizer_there_are_no_acls(broker: Broker) -> None:
    described = broker.ask(DescribeAclsRequest())
    created = broker.ask(CreateAclsRequest(creations=[AclCreation(), AclCreation()]))
    deleted = broker.ask(DeleteAclsRequest(filters=[DeleteAclsFilter()]))

    assert (described.error_code, described.resources) == (SecurityDisabled.code, [])
    assert [each.error_code for each in created.results] == [SecurityDisabled.code] * 2
    assert [each.error_code for each in deleted.filter_results] == [SecurityDisabled.code]
    assert "no authorizer" in described.error_message


def test_a_connection_that_needs_no_authentication_takes_none(broker: Broker) -> None:
    for request in (SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest()):
        assert broker.ask(request).error_code == IllegalSaslState.code


def test_who_is_not_authenticated_gets_no_token(broker: Broker) -> None:
    created = broker.ask(CreateDelegationTokenRequest())
    renewed = broker.ask(RenewDelegationTokenRequest())
    described = broker.ask(DescribeDelegationTokenRequest())

    codes = {each.error_code for each in (created, renewed, described)}
    assert codes == {DelegationTokenRequestNotAllowed.code}
    assert (created.principal_name, created.max_timestamp_ms) == ("ANONYMOUS", -1)
    assert renewed.expiry_timestamp_ms == -1


def test_there_are_no_quotas_and_no_users(broker: Broker) -> None:
    users = [UserName(name="a"), UserName(name="b"), UserName(name="b")]

    assert broker.ask(DescribeClientQuotasRequest()).entries == []
    assert broker.ask(DescribeUserScramCredentialsRequest(users=None)).results == []
    answer = broker.ask(DescribeUserScramCredentialsRequest(users=users))
    assert {each.user: each.error_code for each in answer.results} == {
        "a": ResourceNotFound.code,
        "b": DuplicateResource.code,
    }


def test_partitions_stay_where_they_are(broker: Broker) -> None:
    partitions = [
        ReassignablePartition(partition_index=0, replicas=None),
        ReassignablePartition(partition_index=9, replicas=[1]),
    ]
    topic = ReassignableTopic(name="orders", partitions=partitions)

    answer = broker.ask(AlterPartitionReassignmentsRequest(topics=[topic]))

    codes = [each.error_code for each in answer.responses[0].partitions]
    assert codes == [NoReassignmentInProgress.code, UnknownTopicOrPartition.code]
    listed = broker.ask(ListPartitionReassignmentsRequest(topics=None))
    assert (listed.error_code, listed.topics) == (0, [])
