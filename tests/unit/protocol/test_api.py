"""What is known of the APIs, what is advertised, how two sides agree."""

from __future__ import annotations

import pytest

from millstream.errors import UnsupportedVersion
from millstream.protocol.api import (
    API_BY_KEY,
    ApiKey,
    advertised,
    decode_api_versions,
    negotiate,
    negotiate_api,
    unsupported_api_versions,
)
from millstream.protocol.messages import ApiVersionsResponse, FetchRequest, FetchResponse
from millstream.protocol.notation import NO_VERSIONS, VersionRange


def test_the_counts_of_kafka_4_3() -> None:
    assert [int(api) for api in ApiKey] == list(range(95))
    assert sum(not api.is_removed for api in ApiKey) == 91
    assert sum(api.released != NO_VERSIONS for api in ApiKey) == 89
    assert sum("broker" in api.listeners for api in ApiKey) == 79
    assert sum("controller" in api.listeners for api in ApiKey) == 42


def test_every_api_knows_its_messages() -> None:
    for api in ApiKey:
        for cls in (api.request, api.response):
            assert api == cls.KEY
            assert api.versions == cls.VERSIONS
            assert api.flexible == cls.FLEXIBLE
            assert cls.RELEASED.highest <= cls.VERSIONS.highest
    assert ApiKey.FETCH.request is FetchRequest
    assert ApiKey.FETCH.response is FetchResponse


def test_flags_come_from_the_schema() -> None:
    assert ApiKey.CREATE_TOPICS.is_forwardable
    assert not ApiKey.CREATE_TOPICS.needs_cluster_action
    assert ApiKey.DESCRIBE_QUORUM.is_forwardable
    assert ApiKey.DESCRIBE_QUORUM.needs_cluster_action
    assert not ApiKey.FETCH.needs_cluster_action
    assert ApiKey.LEADER_AND_ISR.is_removed
    assert API_BY_KEY.get(95) is None


def test_header_versions_follow_flexibility_but_for_one_exception() -> None:
    assert ApiKey.PRODUCE.request_header_version(8) == 1
    assert ApiKey.PRODUCE.request_header_version(9) == 2
    assert ApiKey.PRODUCE.response_header_version(8) == 0
    assert ApiKey.PRODUCE.response_header_version(9) == 1
    assert ApiKey.API_VERSIONS.request_header_version(3) == 2
    assert ApiKey.API_VERSIONS.response_header_version(3) == 0


def test_produce_is_advertised_from_0_though_it_is_refused() -> None:
    assert advertised("broker")[ApiKey.PRODUCE] == (0, 13)
    assert not ApiKey.PRODUCE.released.covers(0)
    assert ApiKey.PRODUCE not in advertised("controller")


def test_find_coordinator_is_advertised_from_0() -> None:
    assert advertised("broker")[ApiKey.FIND_COORDINATOR].lowest == 0


def test_what_is_removed_unreleased_or_unstable_is_not_advertised() -> None:
    broker = advertised("broker")

    assert ApiKey.LEADER_AND_ISR not in broker
    assert ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE not in broker
    assert broker[ApiKey.INIT_PRODUCER_ID] == (0, 5)
    assert broker[ApiKey.API_VERSIONS] == (0, 4)
    assert ApiKey.VOTE in advertised("controller")
    assert ApiKey.VOTE not in broker


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed"),
    [
        ((3, 13), (0, 11), 11),
        ((3, 13), (0, 99), 13),
        ((3, 13), (0, 2), None),
        ((0, 2), (3, 9), None),
        ((1, 1), (1, 1), 1),
    ],
)
def test_the_highest_common_version_is_agreed_on(
    ours: tuple[int, int], theirs: tuple[int, int], agreed: int | None
) -> None:
    assert negotiate(VersionRange(*ours), VersionRange(*theirs)) == agreed


def test_no_common_version_is_an_error_that_names_both_sides() -> None:
    assert negotiate_api(ApiKey.FETCH, VersionRange(0, 11)) == 11
    with pytest.raises(UnsupportedVersion, match=r"Fetch: .* 4-18, the other offers versions 0-3"):
        negotiate_api(ApiKey.FETCH, VersionRange(0, 3))
    with pytest.raises(UnsupportedVersion, match="does not offer it"):
        negotiate_api(ApiKey.SHARE_FETCH, None)


def test_an_unknown_api_versions_version_is_answered_with_our_range_in_version_0() -> None:
    refusal = unsupported_api_versions()

    encoded = refusal.encode(0)

    decoded, version = decode_api_versions(encoded, 4)
    assert version == 0
    assert decoded == refusal
    assert [(key.api_key, key.min_version, key.max_version) for key in decoded.api_keys] == [
        (18, 0, 4)
    ]


def test_an_api_versions_response_of_the_version_asked_for_is_read_as_such() -> None:
    response = ApiVersionsResponse(finalized_features_epoch=5)

    assert decode_api_versions(b"?" + response.encode(4), 4, 1) == (response, 4)
