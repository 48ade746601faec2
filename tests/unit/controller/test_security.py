"""ACLs, SCRAM credentials and delegation tokens."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from millstream.controller.delegation_token_control import token_hmac
from millstream.metadata.acls import describe_acls
from millstream.metadata.scram import ScramMechanism
from millstream.protocol.messages import (
    alter_user_scram_credentials as scram,
)
from millstream.protocol.messages import create_acls, delete_acls
from millstream.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from millstream.protocol.messages.describe_acls import DescribeAclsRequest
from millstream.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from millstream.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.unit.controller.rig import WALL_MS, Rig

DAY_MS = 86_400_000


def acl(**changes: Any) -> create_acls.AclCreation:
    fields: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return create_acls.AclCreation(**(fields | changes))


def add_acls(rig: Rig, *creations: create_acls.AclCreation) -> list[int]:
    response = rig.ask(create_acls.CreateAclsRequest(creations=list(creations)))
    return [each.error_code for each in response.results]


def acl_filter(**changes: Any) -> delete_acls.DeleteAclsFilter:
    fields: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return delete_acls.DeleteAclsFilter(**(fields | changes))


def test_acls_are_created_once() -> None:
    rig = Rig()

    assert add_acls(rig, acl(), acl(), acl(operation=4)) == [0, 0, 0]
    assert add_acls(rig, acl()) == [0]

    assert len(rig.image.acls.by_id) == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"operation": 77},
        {"permission_type": 1},
        {"resource_name": ""},
        {"resource_type": 4, "resource_name": "my-cluster"},
        {"principal": "alice"},
    ],
)
def test_acls_that_cannot_be_are_refused(bad: dict[str, Any]) -> None:
    rig = Rig()

    assert add_acls(rig, acl(**bad), acl()) == [42, 0]
    assert len(rig.image.acls.by_id) == 1


def test_too_many_acls_at_once_are_refused() -> None:
    rig = Rig()
    names = [f"t{number}" for number in range(10_001)]

    codes = add_acls(rig, *(acl(resource_name=name) for name in names))
    assert set(codes) == {44}
    add_acls(rig, *(acl(resource_name=name) for name in names[:9000]))
    add_acls(rig, *(acl(resource_name=name) for name in names[9000:]))
    response = rig.ask(delete_acls.DeleteAclsRequest(filters=[acl_filter()]))
    assert response.filter_results[0].error_code == 42


def test_acls_are_deleted_by_filter_and_each_once() -> None:
    rig = Rig()
    add_acls(rig, acl(), acl(resource_name="u"), acl(principal="User:bob"))

    response = rig.ask(
        delete_acls.DeleteAclsRequest(
            filters=[
                acl_filter(principal_filter="User:alice"),
                acl_filter(resource_name_filter="t"),
                acl_filter(operation=0),
                acl_filter(pattern_type_filter=0),
            ]
        )
    )

    assert [each.error_code for each in response.filter_results] == [0, 0, 42, 42]
    counts = [len(each.matching_acls) for each in response.filter_results]
    assert counts == [2, 2, 0, 0]
    assert not rig.image.acls.by_id


def test_a_filter_may_match_the_patterns_that_cover_a_name() -> None:
    rig = Rig()
    add_acls(
        rig,
        acl(resource_name="orders"),
        acl(resource_name="*"),
        acl(resource_name="ord", resource_pattern_type=4),
        acl(resource_name="x", resource_pattern_type=4),
    )

    request = DescribeAclsRequest(
        resource_type_filter=2,
        resource_name_filter="orders",
        pattern_type_filter=2,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    covering = describe_acls(rig.image.acls, request)
    assert [each.resource_name for each in covering.resources] == ["*", "ord", "orders"]
    request.pattern_type_filter = 3
    assert len(describe_acls(rig.image.acls, request).resources) == 1
    request.resource_name_filter = None
    request.pattern_type_filter = 4
    assert len(describe_acls(rig.image.acls, request).resources) == 2


def upsertion(name: str = "alice", **changes: Any) -> scram.ScramCredentialUpsertion:
    fields: dict[str, Any] = {
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096),
    }
    return scram.ScramCredentialUpsertion(name=name, **(fields | changes))


def alter_scram(
    rig: Rig, upsertions: list[Any] | None = None, deletions: list[Any] | None = None
) -> dict[str, int]:
    request = scram.AlterUserScramCredentialsRequest(
        upsertions=upsertions or [], deletions=deletions or []
    )
    return {each.user: each.error_code for each in rig.ask(request).results}


def test_scram_credentials_are_derived_as_rfc_5802_has_it() -> None:
    """The example exchange of RFC 7677, section 3."""
    import base64
    import hmac

    rig = Rig()
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)

    assert alter_scram(rig, [upsertion("user", salt=salt, salted_password=salted)]) == {"user": 0}

    stored = rig.image.scram.credential(ScramMechanism.SCRAM_SHA_256, "user")
    assert stored is not None
    auth_message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(stored.stored_key, auth_message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == stored.stored_key
    server_signature = hmac.digest(stored.server_key, auth_message, "sha256")
    assert base64.b64encode(server_signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_credentials_are_deleted() -> None:
    rig = Rig()
    deletion = scram.ScramCredentialDeletion(name="alice", mechanism=1)
    assert alter_scram(rig, deletions=[deletion]) == {"alice": 91}
    alter_scram(rig, [upsertion()])

    assert alter_scram(rig, deletions=[deletion]) == {"alice": 0}

    assert not rig.image.scram.by_key


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"iterations": 4095}, 93),
        ({"iterations": 16_385}, 93),
        ({"mechanism": 7}, 33),
        ({"salt": b""}, 93),
        ({"salted_password": b""}, 93),
    ],
)
def test_scram_credentials_that_cannot_be_are_refused(bad: dict[str, Any], code: int) -> None:
    rig = Rig()

    assert alter_scram(rig, [upsertion(**bad), upsertion("bob")]) == {"alice": code, "bob": 0}
    assert alter_scram(rig, [upsertion("")]) == {"": 93}


def test_scram_changes_of_a_user_are_made_all_or_none_and_each_once() -> None:
    rig = Rig()

    assert alter_scram(rig, [upsertion(), upsertion(mechanism=2, iterations=1)]) == {"alice": 93}
    assert alter_scram(rig, [upsertion(), upsertion()]) == {"alice": 92}
    assert not rig.image.scram.by_key


def test_scram_needs_metadata_version_11() -> None:
    assert alter_scram(Rig(metadata_version=10), [upsertion()]) == {"alice": 35}


@pytest.fixture
def tokens() -> Rig:
    return Rig(delegation_token_secret_key="secret")


def create_token(rig: Rig, **fields: Any) -> Any:
    return rig.ask(CreateDelegationTokenRequest(**fields))


def test_a_token_is_signed_and_ends_after_a_day_at_most_a_week(tokens: Rig) -> None:
    token = create_token(tokens)

    assert token.error_code == 0
    assert token.hmac == token_hmac("secret", token.token_id)
    assert (token.principal_type, token.principal_name) == ("User", "alice")
    assert token.expiry_timestamp_ms == WALL_MS + DAY_MS
    assert token.max_timestamp_ms == WALL_MS + 7 * DAY_MS
    assert tokens.image.delegation_tokens.by_id[token.token_id].owner == "User:alice"


def test_a_token_may_live_shorter_and_belong_to_another(tokens: Rig) -> None:
    token = create_token(
        tokens,
        max_lifetime_ms=1000,
        owner_principal_type="User",
        owner_principal_name="bob",
        renewers=[CreatableRenewers(principal_type="User", principal_name="carol")],
    )

    assert token.expiry_timestamp_ms == token.max_timestamp_ms == WALL_MS + 1000
    stored = tokens.image.delegation_tokens.by_id[token.token_id]
    assert (stored.owner, stored.requester, stored.renewers) == (
        "User:bob",
        "User:alice",
        ("User:carol",),
    )


def test_tokens_need_a_secret_a_version_and_renewers_that_are_users(tokens: Rig) -> None:
    assert create_token(Rig()).error_code == 61
    old = Rig(metadata_version=13, delegation_token_secret_key="s")
    assert create_token(old).error_code == 35
    group = CreatableRenewers(principal_type="Group", principal_name="x")
    assert create_token(tokens, renewers=[group]).error_code == 67


def renew(rig: Rig, proof: bytes, period_ms: int = -1, principal: str = "User:alice") -> Any:
    request = RenewDelegationTokenRequest(hmac=proof, renew_period_ms=period_ms)
    return rig.ask(request, principal=principal)


def expire(rig: Rig, proof: bytes, period_ms: int, principal: str = "User:alice") -> Any:
    request = ExpireDelegationTokenRequest(hmac=proof, expiry_time_period_ms=period_ms)
    return rig.ask(request, principal=principal)


def test_a_token_is_renewed_by_owner_or_renewer_up_to_its_greatest_age(tokens: Rig) -> None:
    carol = CreatableRenewers(principal_type="User", principal_name="carol")
    token = create_token(tokens, renewers=[carol], max_lifetime_ms=2 * DAY_MS)
    tokens.now_ms += 1000

    assert renew(tokens, token.hmac, 5000).expiry_timestamp_ms == WALL_MS + 6000
    late = renew(tokens, token.hmac, principal="User:carol")
    assert late.expiry_timestamp_ms == WALL_MS + 1000 + DAY_MS
    assert renew(tokens, token.hmac, principal="User:mallory").error_code == 63
    assert renew(tokens, b"wrong").error_code == 62
    tokens.now_ms += DAY_MS
    assert renew(tokens, token.hmac).expiry_timestamp_ms == token.max_timestamp_ms
    tokens.now_ms += DAY_MS
    assert renew(tokens, token.hmac).error_code == 66


def test_a_token_is_ended_sooner_or_at_once(tokens: Rig) -> None:
    token = create_token(tokens)

    assert expire(tokens, token.hmac, 1000).expiry_timestamp_ms == WALL_MS + 1000
    assert expire(tokens, token.hmac, 1000, "User:mallory").error_code == 63
    tokens.now_ms += 1001
    assert expire(tokens, token.hmac, 1000).error_code == 66
    assert expire(tokens, token.hmac, -1).error_code == 0
    assert expire(tokens, token.hmac, -1).error_code == 62
    assert not tokens.image.delegation_tokens.by_id


def test_expired_tokens_are_swept_every_hour() -> None:
    rig = Rig(delegation_token_secret_key="secret")
    create_token(rig, max_lifetime_ms=1000)
    kept = create_token(rig)

    rig.tick(3_599_999)
    assert len(rig.image.delegation_tokens.by_id) == 2
    rig.tick(1)
    assert set(rig.image.delegation_tokens.by_id) == {kept.token_id}
