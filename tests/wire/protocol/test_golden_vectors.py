"""Bytes that real clients accept: a change here is a change of the protocol."""

from __future__ import annotations

import pytest

from millstream.protocol.frame import encode_request, encode_response
from millstream.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    EndTxnMarker,
    MetadataRequest,
    RequestHeader,
    ResponseHeader,
)
from millstream.protocol.messages.api_versions import ApiVersion
from millstream.protocol.records_framing import (
    ControlRecordType,
    decode_control_key,
    decode_end_txn_marker,
    encode_control_key,
    encode_end_txn_marker,
)

REQUEST_HEADERS = [
    (
        RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="c"),
        2,
        "001200030000000700016300",
    ),
    (
        RequestHeader(request_api_key=3, request_api_version=1, correlation_id=7, client_id=None),
        1,
        "0003000100000007ffff",
    ),
]


@pytest.mark.parametrize(("header", "version", "golden"), REQUEST_HEADERS)
def test_request_headers(header: RequestHeader, version: int, golden: str) -> None:
    assert header.encode(version).hex() == golden
    assert RequestHeader.decode(bytes.fromhex(golden), version) == header


def test_response_headers() -> None:
    header = ResponseHeader(correlation_id=7)

    assert header.encode(0).hex() == "00000007"
    assert header.encode(1).hex() == "0000000700"


def test_api_versions_request() -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")

    assert request.encode(3).hex() == "0278023100"
    assert encode_request(request, 3, 7, "c").hex() == "00000011" + "001200030000000700016300" + (
        "0278023100"
    )


def test_api_versions_response_has_the_old_header_in_front_of_a_flexible_body() -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])

    frame = encode_response(response, 3, 7)

    assert frame.hex() == "00000013" + "00000007" + "0000" + "02" + "00120000000400" + "0000000000"


def test_all_topics_is_an_empty_list_in_metadata_0_and_null_later() -> None:
    assert MetadataRequest(topics=[]).encode(0).hex() == "00000000"
    assert MetadataRequest(topics=None).encode(1).hex() == "ffffffff"
    assert MetadataRequest(topics=None).encode(9).hex() == "00" + "01" + "00" + "00" + "00"


def test_commit_marker() -> None:
    # The record of golden batch C: COMMIT with coordinator epoch 7.
    key, value = bytes.fromhex("00000001"), bytes.fromhex("000000000007")

    assert encode_control_key(ControlRecordType.COMMIT) == key
    assert decode_control_key(key) == ControlRecordType.COMMIT
    assert encode_end_txn_marker(EndTxnMarker(coordinator_epoch=7)) == value
    assert decode_end_txn_marker(value) == EndTxnMarker(coordinator_epoch=7)
