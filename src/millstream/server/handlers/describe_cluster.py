"""DescribeCluster 0-2: the nodes of the cluster.

Version 1 can ask a controller for the controllers, 2 for fenced brokers too.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from millstream.errors import MismatchedEndpointType, UnsupportedEndpointType
from millstream.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from millstream.server.operations import CLUSTER_OPERATIONS

if TYPE_CHECKING:
    from random import Random

    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.messages.describe_cluster import DescribeClusterRequest
    from millstream.server.exchange import Exchange


class EndpointType(IntEnum):
    """Which nodes a client talks to."""

    BROKER = 1
    CONTROLLER = 2


def handle_describe_cluster(
    request: DescribeClusterRequest,
    exchange: Exchange,
    metadata: KRaftMetadataCache,
    cluster_id: str,
    random: Random,
) -> DescribeClusterResponse:
    """The brokers, on a broker's listener."""
    _require(request, EndpointType.BROKER)
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=cluster_id,
        controller_id=metadata.random_alive_broker_id(random),
        brokers=metadata.describe_cluster_brokers(
            exchange.listener, with_fenced=request.include_fenced_brokers
        ),
        cluster_authorized_operations=_operations(request),
    )


def handle_describe_controllers(
    request: DescribeClusterRequest,
    exchange: Exchange,
    metadata: KRaftMetadataCache,
    cluster_id: str,
    controller_id: int,
) -> DescribeClusterResponse:
    """The controllers, on a controller's listener."""
    _require(request, EndpointType.CONTROLLER)
    controllers = metadata.image.cluster.controllers
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=cluster_id,
        controller_id=controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
            for node_id, node in sorted(controllers.items())
            if (endpoint := node.listeners.get(exchange.listener)) is not None
        ],
        cluster_authorized_operations=_operations(request),
    )


def fail_describe_cluster(
    request: DescribeClusterRequest, error: ApiError, version: int
) -> DescribeClusterResponse:
    """The answer without nodes."""
    return DescribeClusterResponse(error_code=error.code, error_message=str(error))


def _require(request: DescribeClusterRequest, served: EndpointType) -> None:
    if request.endpoint_type not in tuple(EndpointType):
        raise UnsupportedEndpointType(f"there is no endpoint type {request.endpoint_type}")
    if request.endpoint_type != served:
        raise MismatchedEndpointType(
            f"this is a listener of a {served.name.lower()}, not the one that was meant"
        )


def _operations(request: DescribeClusterRequest) -> int:
    asked = request.include_cluster_authorized_operations
    return CLUSTER_OPERATIONS if asked else -(1 << 31)
