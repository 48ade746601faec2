"""What a controller's listener answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import (
    InvalidRequest,
    MismatchedEndpointType,
    NotController,
    PrincipalDeserializationFailure,
    UnknownServerError,
    UnsupportedVersion,
)
from millstream.metadata.features import SUPPORTED_FEATURES
from millstream.protocol.api import ApiKey
from millstream.protocol.frame import decode_response, encode_request
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from millstream.protocol.messages.create_topics import CreateTopicsRequest
from millstream.protocol.messages.describe_cluster import DescribeClusterRequest
from millstream.protocol.messages.envelope import EnvelopeRequest
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.principal import DefaultPrincipalData
from millstream.server.controller_apis import ControllerApis
from tests.unit.controller.rig import new_topic
from tests.unit.server.harness import CLUSTER_ID, Broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message

PRINCIPAL = struct.pack(">h", 0) + DefaultPrincipalData(type="User", name="alice").encode(0)


class Raft:
    """Answers with an empty response, or fails."""

    def __init__(self) -> None:
        self.asked: list[tuple[type[Message], int, str]] = []
        self.is_broken = False

    def handle(
        self,
        request: Message,
        version: int,
        listener: str,
        respond: Callable[[Message], None],
    ) -> None:
        """As `RaftRequests`."""
        if self.is_broken:
            raise RuntimeError
        self.asked.append((type(request), version, listener))
        respond(ApiKey(request.KEY).response())


class Node:
    """A controller's listener in front of the controller of a broker."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.raft = Raft()
        self.apis = ControllerApis(
            cluster_id=CLUSTER_ID,
            metadata=self.broker.metadata,
            features=SUPPORTED_FEATURES,
            clock=self.broker.clock,
            controller=self.broker.channel,
            raft=self.raft,
            leader_id=lambda: 100,
        )

    def ask(self, message: Message, version: int | None = None) -> Any:
        return self.broker.ask(message, version, apis=self.apis)


SERVED = list(Node().apis.apis)


@pytest.mark.parametrize("api", SERVED, ids=[api.api_name for api in SERVED])
def test_every_version_is_answered(api: ApiKey) -> None:
    for version in range(api.released.lowest, api.released.highest + 1):
        request = api.request()
        if api is ApiKey.ENVELOPE:
            request = enveloped(CreateTopicsRequest())
        if api is ApiKey.DESCRIBE_CLUSTER and version:
            request = DescribeClusterRequest(endpoint_type=2)
        assert type(Node().ask(request, version)) is api.response


def test_lists_only_what_a_controller_may_be_asked() -> None:
    node = Node()

    listed = node.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"))

    assert {each.api_key for each in listed.api_keys} == set(node.apis.apis)
    assert all("controller" in api.listeners for api in node.apis.apis)
    assert ApiKey.PRODUCE not in node.apis.apis


def test_the_quorums_requests_go_to_raft() -> None:
    node = Node()

    node.ask(ApiKey.VOTE.request(), 2)

    assert node.raft.asked == [(ApiKey.VOTE.request, 2, "PLAINTEXT")]


@pytest.mark.parametrize("api", [ApiKey.VOTE, ApiKey.FETCH, ApiKey.DESCRIBE_QUORUM])
def test_a_failure_of_raft_has_the_shape_of_the_answer(api: ApiKey) -> None:
    node = Node()
    node.raft.is_broken = True

    answer = node.ask(api.request())

    assert answer.error_code == UnknownServerError.code


def test_controllers_are_described() -> None:
    node = Node()
    node.broker.controller.ask(
        ControllerRegistrationRequest(
            controller_id=100,
            listeners=[Listener(name="PLAINTEXT", host="c", port=9093)],
            features=[
                Feature(
                    name=name,
                    min_supported_version=supported.lowest,
                    max_supported_version=supported.highest,
                )
                for name, supported in SUPPORTED_FEATURES.items()
            ],
        )
    )
    node.broker.publish()

    found = node.ask(DescribeClusterRequest(endpoint_type=2))
    refused = node.ask(DescribeClusterRequest())

    assert (found.controller_id, found.cluster_id) == (100, CLUSTER_ID)
    assert [(e.broker_id, e.host, e.port) for e in found.brokers] == [(100, "c", 9093)]
    assert refused.error_code == MismatchedEndpointType.code


def enveloped(message: Message, version: int | None = None, **fields: object) -> EnvelopeRequest:
    """A request in an envelope."""
    chosen = type(message).RELEASED.highest if version is None else version
    data = encode_request(message, chosen, 5, "alice's laptop")[4:]
    given: dict[str, object] = {
        "request_data": data,
        "request_principal": PRINCIPAL,
        "client_host_address": b"\n\1\2\3",
    }
    return EnvelopeRequest(**(given | fields))  # type: ignore[arg-type]


class TestEnvelope:
    """Requests that a broker passes on."""

    def test_the_request_inside_is_decided_for_its_sender(self) -> None:
        node = Node()

        answer = node.ask(enveloped(CreateTopicsRequest(topics=[new_topic("a", None, 1, 1)])))

        assert answer.error_code == 0
        inner: Any
        correlation_id, inner = decode_response(
            answer.response_data,
            ApiKey.CREATE_TOPICS,
            7,
        )
        assert correlation_id == 5
        assert inner.topics[0].error_code == 0
        ((_, context),) = node.broker.channel.requests
        assert (context.principal, context.client_id) == ("User:alice", "alice's laptop")

    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            (enveloped(MetadataRequest()), InvalidRequest.code),
            (enveloped(CreateTopicsRequest(), request_data=b"\0\1"), UnsupportedVersion.code),
            (enveloped(CreateTopicsRequest(), client_host_address=b"\0\1"), InvalidRequest.code),
            (
                enveloped(CreateTopicsRequest(), request_principal=b""),
                PrincipalDeserializationFailure.code,
            ),
        ],
    )
    def test_envelopes_that_are_refused(self, request_: EnvelopeRequest, code: int) -> None:
        assert Node().ask(request_).error_code == code

    def test_who_is_not_the_controller_says_so_to_the_broker(self) -> None:
        node = Node()
        node.broker.controller.controller.on_not_leader()
        request = enveloped(CreateTopicsRequest(topics=[new_topic("a", None, 1, 1)]))

        answer = node.ask(request)

        assert (answer.error_code, answer.response_data) == (NotController.code, None)
