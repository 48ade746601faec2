"""What ApiVersions says, and what becomes of versions and APIs that are not served."""

from __future__ import annotations

import pytest

from millstream.errors import DecodeError, InvalidRequest, UnsupportedVersion
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import encode_request
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from tests.unit.server.fakes import Call, Client
from tests.unit.server.harness import Broker, frame_request

NAMED = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.0.2")


def test_lists_exactly_what_is_served() -> None:
    broker = Broker()

    listed = broker.ask(NAMED).api_keys

    assert {each.api_key for each in listed} == set(broker.apis.apis)
    assert ApiKey.STREAMS_GROUP_HEARTBEAT not in broker.apis.apis
    assert all(
        (each.min_version, each.max_version) == tuple(broker.apis.apis[ApiKey(each.api_key)])
        for each in listed
    )


def test_lists_produce_from_version_zero_for_the_sake_of_librdkafka() -> None:
    listed = {each.api_key: each for each in Broker().ask(NAMED).api_keys}

    assert listed[ApiKey.PRODUCE].min_version == 0
    assert listed[ApiKey.FIND_COORDINATOR].min_version == 0


def test_a_version_nobody_knows_is_answered_in_version_0_without_being_read() -> None:
    broker = Broker()
    frame = bytearray(encode_request(NAMED, 4, 9))
    frame[6:8] = (99).to_bytes(2, "big")
    request = frame_request(bytes(frame))

    call = Call(request, broker.apis.handle(request))

    assert call.response.error_code == UnsupportedVersion.code
    assert [(e.api_key, e.min_version, e.max_version) for e in call.response.api_keys] == [
        (ApiKey.API_VERSIONS, 0, 4)
    ]


def test_hides_telemetry_when_nobody_receives_it() -> None:
    apis = Broker(with_telemetry=False).apis.apis

    assert ApiKey.GET_TELEMETRY_SUBSCRIPTIONS not in apis
    assert ApiKey.PUSH_TELEMETRY not in apis


@pytest.mark.parametrize("name", ["", "-kcat", "kcat-", "k cat", "kä"])
def test_refuses_names_of_software_that_are_none(name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")

    assert Broker().ask(request).error_code == InvalidRequest.code


def test_notes_the_software_of_a_connection() -> None:
    client = Client()

    Broker().ask(NAMED, client=client)

    assert client.client_software_name == "librdkafka"
    assert client.client_software_version == "2.0.2"


def test_features_whose_minimum_is_zero_are_for_clients_that_know_it() -> None:
    broker = Broker()

    old = {each.name for each in broker.ask(NAMED, 3).supported_features}
    new = {each.name for each in broker.ask(NAMED, 4).supported_features}

    assert old == {"metadata.version"}
    assert {"metadata.version", "group.version", "kraft.version"} <= new


def test_finalized_features_have_the_level_of_the_metadata() -> None:
    broker = Broker()

    answer = broker.ask(NAMED)

    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    assert levels["metadata.version"] == 30
    assert answer.finalized_features_epoch == broker.metadata.image.provenance.last_offset


def test_features_that_are_not_served_are_not_offered() -> None:
    broker = Broker()
    broker.controller.force_level("streams.version", 1)
    broker.publish()

    answer = broker.ask(NAMED)

    assert broker.metadata.features()[0]["streams.version"] == 1
    assert "streams.version" not in {each.name for each in answer.supported_features}
    assert "streams.version" not in {each.name for each in answer.finalized_features}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_before_version_3_ends_the_connection(version: int) -> None:
    broker = Broker()
    frame = bytearray(encode_request(broker.produce_request(), 3, 1))
    frame[6:8] = version.to_bytes(2, "big")

    with pytest.raises(DecodeError, match="not served"):
        broker.apis.handle(frame_request(bytes(frame)))


def test_an_api_that_is_not_served_ends_the_connection() -> None:
    broker = Broker()
    request = frame_request(encode_request(ApiKey.STREAMS_GROUP_HEARTBEAT.request(), 0, 1))

    with pytest.raises(DecodeError, match="API key 88 is not served"):
        broker.apis.handle(request)


def test_bytes_after_the_last_field_are_ignored() -> None:
    """As librdkafka 2.16 asks for the metadata of all topics."""
    broker = Broker()
    broker.create("orders")
    sent = bytes.fromhex("0000001a0003000d00000004000772646b61666b610000000000010000")
    request = frame_request(len(sent[4:]).to_bytes(4, "big") + sent[4:])

    answer = Call(request, broker.apis.handle(request)).response

    assert [topic.name for topic in answer.topics] == ["orders"]


def test_a_body_that_cannot_be_read_ends_the_connection() -> None:
    broker = Broker()
    request = frame_request(encode_request(ApiKey.METADATA.request(), 12, 1)[:-1])
    request.end -= 2

    with pytest.raises(DecodeError):
        broker.apis.handle(request)
