"""ACLs, SCRAM credentials, delegation tokens and quotas, as they go over the wire."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from millstream.client.admin.acls import Acl, AclFilter
from millstream.client.admin.credentials import Principal, ScramDeletion, ScramPassword
from millstream.client.admin.quotas import ANY_NAME, DEFAULT, QuotaEntity, QuotaFilter
from millstream.errors import InvalidArgument, InvalidRequest, ResourceNotFound
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import (
    AlterClientQuotasResponse,
    AlterUserScramCredentialsResponse,
    CreateAclsResponse,
    CreateDelegationTokenResponse,
    DeleteAclsResponse,
    DescribeAclsResponse,
    DescribeClientQuotasResponse,
    DescribeDelegationTokenResponse,
    DescribeUserScramCredentialsResponse,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenResponse,
)
from millstream.protocol.messages.alter_client_quotas import (
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from millstream.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResult,
)
from millstream.protocol.messages.create_acls import AclCreationResult
from millstream.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsMatchingAcl
from millstream.protocol.messages.describe_acls import AclDescription, DescribeAclsResource
from millstream.protocol.messages.describe_client_quotas import EntityData, EntryData, ValueData
from millstream.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
)
from millstream.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResult,
)
from tests.unit.client.admin.office import Office

ALICE_READS = Acl("topic", "orders", "User:alice", "read")


def test_acls_are_created_in_the_order_of_the_answers() -> None:
    office = Office(namespace="e")
    office.answers(
        ApiKey.CREATE_ACLS,
        CreateAclsResponse(results=[AclCreationResult(), AclCreationResult(error_code=42)]),
    )
    everything = Acl("cluster", "kafka-cluster", "User:*", "all", "deny")

    found = office.run(office.operations.create_acls([ALICE_READS, everything]))

    assert set(found.results) == {ALICE_READS}
    assert isinstance(found.errors[everything], InvalidRequest)
    (asked,) = office.requests(ApiKey.CREATE_ACLS)
    first, second = asked.creations
    assert (first.resource_type, first.resource_name, first.resource_pattern_type) == (
        2,
        "e.orders",
        3,
    )
    assert (first.operation, first.permission_type, first.host) == (3, 3, "*")
    assert (second.resource_name, second.permission_type) == ("kafka-cluster", 2)


def test_acls_are_found() -> None:
    office = Office(namespace="e")
    described = AclDescription(principal="User:alice", host="*", operation=3, permission_type=3)
    office.answers(
        ApiKey.DESCRIBE_ACLS,
        DescribeAclsResponse(
            resources=[
                DescribeAclsResource(
                    resource_type=kind, resource_name=name, pattern_type=3, acls=[described]
                )
                for kind, name in ((2, "e.orders"), (2, "other"), (2, "*"), (99, "new"))
            ]
        ),
    )

    found = office.run(office.operations.describe_acls())
    office.run(office.operations.describe_acls(AclFilter("topic", "orders", pattern="match")))

    assert found[0] == ALICE_READS
    assert [each.resource_name for each in found] == ["orders", "*", "new"]
    assert found[2].resource_type == "unknown"
    everything, some = office.requests(ApiKey.DESCRIBE_ACLS)
    assert (everything.resource_type_filter, everything.resource_name_filter) == (1, None)
    assert (some.resource_name_filter, some.pattern_type_filter) == ("e.orders", 2)


def test_acls_are_deleted_by_filters() -> None:
    office = Office()
    gone = DeleteAclsMatchingAcl(
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    office.answers(
        ApiKey.DELETE_ACLS,
        DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(matching_acls=[gone]),
                DeleteAclsFilterResult(error_code=42, error_message="no"),
                DeleteAclsFilterResult(matching_acls=[DeleteAclsMatchingAcl(error_code=42)]),
            ]
        ),
    )
    filters = [AclFilter("topic"), AclFilter("group"), AclFilter("user")]

    found = office.run(office.operations.delete_acls(filters))

    assert found[filters[0]] == (ALICE_READS,)
    assert set(found.errors) == set(filters[1:])


def test_a_word_that_no_acl_has_is_refused_with_those_it_may_have() -> None:
    office = Office()

    found = office.run(
        office.operations.create_acls([Acl("topik", "orders", "User:alice", "read")])
    )
    with pytest.raises(InvalidArgument, match="'topik': use one of topic, group"):
        found.raise_first()


def test_passwords_are_salted_and_hashed_before_they_are_sent() -> None:
    office = Office()
    office.answers(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user="alice"),
                AlterUserScramCredentialsResult(user="bob", error_code=91),
            ]
        ),
    )
    secret = ScramPassword("secret", "SCRAM-SHA-256", 4096)

    found = office.run(
        office.operations.alter_user_scram_credentials(
            {"alice": [secret, ScramDeletion("SCRAM-SHA-512")], "bob": ScramPassword("x")}
        )
    )

    assert set(found.results) == {"alice"}
    assert isinstance(found.errors["bob"], ResourceNotFound)
    (asked,) = office.requests(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    sent: Any = asked.upsertions[0]
    expected = hashlib.pbkdf2_hmac("sha256", b"secret", bytes(sent.salt), 4096)
    assert bytes(sent.salted_password) == expected
    assert [each.mechanism for each in asked.deletions] == [2]
    assert "secret" not in repr(secret)


@pytest.mark.parametrize(
    "change",
    [ScramPassword("x", iterations=1), ScramPassword("x", "MD5")],  # type: ignore[arg-type]  # The fault.
)
def test_credentials_that_cannot_be_are_refused(change: ScramPassword) -> None:
    office = Office()

    with pytest.raises(InvalidArgument):
        office.run(office.operations.alter_user_scram_credentials({"alice": change}))


def test_credentials_are_listed() -> None:
    office = Office()
    office.answers(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsResponse(
            results=[
                DescribeUserScramCredentialsResult(
                    user="alice",
                    credential_infos=[
                        CredentialInfo(mechanism=2, iterations=8192),
                        CredentialInfo(mechanism=9, iterations=1),
                    ],
                ),
                DescribeUserScramCredentialsResult(user="bob", error_code=91),
            ]
        ),
    )

    found = office.run(office.operations.describe_user_scram_credentials(["alice", "bob"]))
    office.run(office.operations.describe_user_scram_credentials())

    assert [each.mechanism for each in found["alice"]] == ["SCRAM-SHA-512", "unknown (9)"]
    assert set(found.errors) == {"bob"}
    some, everybody = office.requests(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
    assert [each.name for each in some.users] == ["alice", "bob"]
    assert everybody.users is None


def test_tokens_are_issued_renewed_ended_and_listed() -> None:
    office = Office()
    office.answers(
        ApiKey.CREATE_DELEGATION_TOKEN,
        CreateDelegationTokenResponse(
            principal_type="User", principal_name="alice", token_id="t", hmac=b"h"
        ),
    )
    office.answers(
        ApiKey.RENEW_DELEGATION_TOKEN, RenewDelegationTokenResponse(expiry_timestamp_ms=5)
    )
    office.answers(
        ApiKey.EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenResponse(expiry_timestamp_ms=6)
    )
    office.answers(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        DescribeDelegationTokenResponse(
            tokens=[
                DescribedDelegationToken(
                    token_id="t",
                    hmac=b"h",
                    renewers=[
                        DescribedDelegationTokenRenewer(principal_type="User", principal_name="bob")
                    ],
                )
            ]
        ),
    )
    alice, bob = Principal("User", "alice"), Principal("User", "bob")

    token = office.run(
        office.operations.create_delegation_token(owner=alice, renewers=[bob], max_lifetime=60)
    )
    assert token.owner == alice
    assert "hmac" not in repr(token)
    assert office.run(office.operations.renew_delegation_token(token.hmac, period=1.5)) == 5
    assert office.run(office.operations.expire_delegation_token(token.hmac)) == 6
    (listed,) = office.run(office.operations.describe_delegation_tokens([alice]))
    assert listed.renewers == (bob,)
    assert office.run(office.operations.describe_delegation_tokens())
    (created,) = office.requests(ApiKey.CREATE_DELEGATION_TOKEN)
    assert created.max_lifetime_ms == 60_000
    (renewed,) = office.requests(ApiKey.RENEW_DELEGATION_TOKEN)
    assert renewed.renew_period_ms == 1_500


def test_quotas_are_read() -> None:
    office = Office()
    entry = EntryData(
        entity=[
            EntityData(entity_type="user", entity_name="alice"),
            EntityData(entity_type="client-id", entity_name=None),
        ],
        values=[ValueData(key="producer_byte_rate", value=1e6)],
    )
    office.answers(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasResponse(entries=[entry]))

    found = office.run(
        office.operations.describe_client_quotas(
            QuotaFilter(user="alice", client_id=DEFAULT, ip=ANY_NAME, is_strict=True)
        )
    )
    office.run(office.operations.describe_client_quotas())

    assert found == {QuotaEntity("alice", DEFAULT): {"producer_byte_rate": 1e6}}
    asked, everything = office.requests(ApiKey.DESCRIBE_CLIENT_QUOTAS)
    assert [(each.entity_type, each.match_type, each.match) for each in asked.components] == [
        ("user", 0, "alice"),
        ("client-id", 1, None),
        ("ip", 2, None),
    ]
    assert asked.strict
    assert everything.components == []


def test_quotas_are_changed() -> None:
    office = Office()
    alice, rest = QuotaEntity(user="alice"), QuotaEntity(user=DEFAULT)
    office.answers(
        ApiKey.ALTER_CLIENT_QUOTAS,
        AlterClientQuotasResponse(
            entries=[
                AlterClientQuotasResponseEntryData(
                    entity=[AlterClientQuotasResponseEntityData(entity_type="user", entity_name=n)],
                    error_code=code,
                    error_message=None,
                )
                for n, code in (("alice", 0), (None, 42))
            ]
        ),
    )

    found = office.run(
        office.operations.alter_client_quotas(
            {alice: {"producer_byte_rate": 5, "consumer_byte_rate": None}, rest: {"x": 1}}
        )
    )

    assert set(found.results) == {alice}
    assert isinstance(found.errors[rest], InvalidRequest)
    (asked,) = office.requests(ApiKey.ALTER_CLIENT_QUOTAS)
    assert [(each.key, each.value, each.remove) for each in asked.entries[0].ops] == [
        ("producer_byte_rate", 5.0, False),
        ("consumer_byte_rate", 0.0, True),
    ]
    nobody = office.run(office.operations.alter_client_quotas({QuotaEntity(): {"x": 1}}))
    with pytest.raises(InvalidArgument, match="needs a user"):
        nobody.raise_first()
