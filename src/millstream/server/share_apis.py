"""The APIs of share groups, and who answers them; `KafkaApis` enters them into its table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.errors import UnsupportedVersion
from millstream.metadata.features import SHARE_VERSION
from millstream.protocol.api import ApiKey
from millstream.server.api_server import Handler
from millstream.server.handlers.alter_share_group_offsets import (
    fail_alter_share_group_offsets,
    handle_alter_share_group_offsets,
)
from millstream.server.handlers.delete_share_group_offsets import (
    fail_delete_share_group_offsets,
    handle_delete_share_group_offsets,
)
from millstream.server.handlers.delete_share_group_state import (
    fail_delete_share_group_state,
    handle_delete_share_group_state,
)
from millstream.server.handlers.describe_share_group_offsets import (
    fail_describe_share_group_offsets,
    handle_describe_share_group_offsets,
)
from millstream.server.handlers.initialize_share_group_state import (
    fail_initialize_share_group_state,
    handle_initialize_share_group_state,
)
from millstream.server.handlers.read_share_group_state import (
    fail_read_share_group_state,
    handle_read_share_group_state,
)
from millstream.server.handlers.read_share_group_state_summary import (
    fail_read_share_group_state_summary,
    handle_read_share_group_state_summary,
)
from millstream.server.handlers.share_acknowledge import (
    fail_share_acknowledge,
    handle_share_acknowledge,
)
from millstream.server.handlers.share_fetch import fail_share_fetch, handle_share_fetch
from millstream.server.handlers.share_group_describe import (
    fail_share_group_describe,
    handle_share_group_describe,
)
from millstream.server.handlers.share_group_heartbeat import (
    fail_share_group_heartbeat,
    handle_share_group_heartbeat,
)
from millstream.server.handlers.write_share_group_state import (
    fail_write_share_group_state,
    handle_write_share_group_state,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.group.share.coordinator import ShareGroupCoordinator
    from millstream.coordinator.group.share.offsets import ShareGroupOffsets
    from millstream.coordinator.share.coordinator import ShareCoordinator
    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.protocol.message import Message
    from millstream.server.api_server import Handle
    from millstream.server.exchange import Exchange
    from millstream.server.share_acknowledging import ShareAcknowledging
    from millstream.server.share_fetch_service import ShareFetchService


class ShareServices(NamedTuple):
    """What the handlers of share groups use."""

    groups: ShareGroupCoordinator
    offsets: ShareGroupOffsets
    states: ShareCoordinator
    acknowledging: ShareAcknowledging
    fetching: ShareFetchService


def share_handlers(services: ShareServices, metadata: KRaftMetadataCache) -> dict[ApiKey, Handler]:
    """How requests about share groups are answered."""

    def switched(handle: Callable[..., None], **uses: Any) -> Handle:
        return partial(_if_enabled, handle=partial(handle, **uses), metadata=metadata)

    groups, offsets, states = services.groups, services.offsets, services.states
    return {
        ApiKey.SHARE_GROUP_HEARTBEAT: Handler(
            switched(handle_share_group_heartbeat, share_groups=groups),
            fail_share_group_heartbeat,
        ),
        ApiKey.SHARE_GROUP_DESCRIBE: Handler(
            switched(handle_share_group_describe, share_groups=groups), fail_share_group_describe
        ),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Handler(
            switched(handle_describe_share_group_offsets, offsets=offsets),
            fail_describe_share_group_offsets,
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: Handler(
            switched(handle_alter_share_group_offsets, offsets=offsets),
            fail_alter_share_group_offsets,
        ),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: Handler(
            switched(handle_delete_share_group_offsets, offsets=offsets),
            fail_delete_share_group_offsets,
        ),
        ApiKey.SHARE_FETCH: Handler(
            switched(
                handle_share_fetch,
                acknowledging=services.acknowledging,
                fetching=services.fetching,
                metadata=metadata,
            ),
            fail_share_fetch,
        ),
        ApiKey.SHARE_ACKNOWLEDGE: Handler(
            switched(
                handle_share_acknowledge,
                acknowledging=services.acknowledging,
                metadata=metadata,
            ),
            fail_share_acknowledge,
        ),
        **_state_handlers(states),
    }


def _state_handlers(states: ShareCoordinator) -> dict[ApiKey, Handler]:
    """What brokers ask each other about share partitions."""
    return {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: Handler(
            partial(handle_initialize_share_group_state, shares=states),
            fail_initialize_share_group_state,
        ),
        ApiKey.READ_SHARE_GROUP_STATE: Handler(
            partial(handle_read_share_group_state, shares=states), fail_read_share_group_state
        ),
        ApiKey.WRITE_SHARE_GROUP_STATE: Handler(
            partial(handle_write_share_group_state, shares=states), fail_write_share_group_state
        ),
        ApiKey.DELETE_SHARE_GROUP_STATE: Handler(
            partial(handle_delete_share_group_state, shares=states), fail_delete_share_group_state
        ),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Handler(
            partial(handle_read_share_group_state_summary, shares=states),
            fail_read_share_group_state_summary,
        ),
    }


def _if_enabled(
    request: Message,
    exchange: Exchange,
    *,
    handle: Callable[[Message, Exchange], None],
    metadata: KRaftMetadataCache,
) -> None:
    """Answer only in a cluster that has the feature."""
    levels, _ = metadata.features()
    if not levels.get(SHARE_VERSION):
        raise UnsupportedVersion(f"share groups need {SHARE_VERSION} 1: upgrade the feature")
    handle(request, exchange)
