"""`ControllerApis`: what a node answers on its controller listener.

`node` makes one and gives `handle` to the network. Requests of the quorum go to raft, decisions to
the controller, which refuses them if it is not the active one.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from millstream.protocol.api import API_BY_KEY, ApiKey
from millstream.server.api_server import ApiServer, Handler
from millstream.server.forwarding import fail_forwarded, forward
from millstream.server.handlers.api_versions import fail_api_versions, handle_api_versions
from millstream.server.handlers.describe_cluster import (
    fail_describe_cluster,
    handle_describe_controllers,
)
from millstream.server.handlers.envelope import fail_envelope, handle_envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.clock import Clock
    from millstream.errors import ApiError
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.message import Message
    from millstream.protocol.notation import VersionRange
    from millstream.server.exchange import Exchange
    from millstream.server.ports import ControllerChannel, RaftRequests

_OF_RAFT: Final = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)
_OF_THE_CONTROLLER: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_PARTITION,
    ApiKey.UPDATE_FEATURES,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
)


class ControllerApis(ApiServer):
    """The APIs of a controller."""

    def __init__(
        self,
        *,
        cluster_id: str,
        metadata: KRaftMetadataCache,
        features: Mapping[str, VersionRange],
        clock: Clock,
        controller: ControllerChannel,
        raft: RaftRequests,
        leader_id: Callable[[], int],
    ) -> None:
        """Touches nothing, starts nothing. `leader_id` is -1 while the quorum has no leader."""
        of_controller = Handler(
            partial(forward, controller=controller, clock=clock), fail_forwarded
        )
        of_raft = Handler(partial(_ask_raft, raft=raft), _fail_raft)
        handlers = {
            **dict.fromkeys(_OF_THE_CONTROLLER, of_controller),
            **dict.fromkeys(_OF_RAFT, of_raft),
            ApiKey.ENVELOPE: Handler(
                partial(handle_envelope, controller=controller, clock=clock), fail_envelope
            ),
            ApiKey.DESCRIBE_CLUSTER: Handler(
                lambda request, exchange: handle_describe_controllers(
                    request, exchange, metadata, cluster_id, leader_id()
                ),
                fail_describe_cluster,
            ),
        }
        served = sorted({*handlers, ApiKey.API_VERSIONS})
        self.apis: Mapping[ApiKey, VersionRange] = MappingProxyType(
            {api: api.released for api in served}
        )
        """What ApiVersions lists, exactly."""
        handlers[ApiKey.API_VERSIONS] = Handler(
            partial(
                handle_api_versions,
                apis=lambda: self.apis,
                features=features,
                metadata=metadata,
            ),
            fail_api_versions,
        )
        super().__init__(handlers, clock)


def _ask_raft(request: Message, exchange: Exchange, raft: RaftRequests) -> None:
    raft.handle(request, exchange.version, exchange.listener, exchange.answer)


def _fail_raft(request: Message, error: ApiError, version: int) -> Message:
    response = API_BY_KEY[request.KEY].response()
    response.error_code = error.code  # type: ignore[attr-defined]  # All of them have one.
    return response
