"""The APIs that the group coordinator answers; `KafkaApis` enters them into its table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.protocol.api import ApiKey
from millstream.server.api_server import Handler
from millstream.server.handlers.consumer_group_describe import (
    fail_consumer_group_describe,
    handle_consumer_group_describe,
)
from millstream.server.handlers.consumer_group_heartbeat import (
    fail_consumer_group_heartbeat,
    handle_consumer_group_heartbeat,
)
from millstream.server.handlers.delete_groups import fail_delete_groups, handle_delete_groups
from millstream.server.handlers.describe_groups import (
    fail_describe_groups,
    handle_describe_groups,
)
from millstream.server.handlers.heartbeat import fail_heartbeat, handle_heartbeat
from millstream.server.handlers.join_group import fail_join_group, handle_join_group
from millstream.server.handlers.leave_group import fail_leave_group, handle_leave_group
from millstream.server.handlers.list_groups import fail_list_groups, handle_list_groups
from millstream.server.handlers.offset_commit import fail_offset_commit, handle_offset_commit
from millstream.server.handlers.offset_delete import fail_offset_delete, handle_offset_delete
from millstream.server.handlers.offset_fetch import fail_offset_fetch, handle_offset_fetch
from millstream.server.handlers.sync_group import fail_sync_group, handle_sync_group
from millstream.server.handlers.txn_offset_commit import (
    fail_txn_offset_commit,
    handle_txn_offset_commit,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.server.api_server import Fail


def group_handlers(groups: GroupCoordinator) -> dict[ApiKey, Handler]:
    """How requests about groups and offsets are answered."""
    pairs: dict[ApiKey, tuple[Callable[..., None], Fail]] = {
        ApiKey.JOIN_GROUP: (handle_join_group, fail_join_group),
        ApiKey.SYNC_GROUP: (handle_sync_group, fail_sync_group),
        ApiKey.HEARTBEAT: (handle_heartbeat, fail_heartbeat),
        ApiKey.LEAVE_GROUP: (handle_leave_group, fail_leave_group),
        ApiKey.DESCRIBE_GROUPS: (handle_describe_groups, fail_describe_groups),
        ApiKey.LIST_GROUPS: (handle_list_groups, fail_list_groups),
        ApiKey.DELETE_GROUPS: (handle_delete_groups, fail_delete_groups),
        ApiKey.OFFSET_COMMIT: (handle_offset_commit, fail_offset_commit),
        ApiKey.OFFSET_FETCH: (handle_offset_fetch, fail_offset_fetch),
        ApiKey.OFFSET_DELETE: (handle_offset_delete, fail_offset_delete),
        ApiKey.TXN_OFFSET_COMMIT: (handle_txn_offset_commit, fail_txn_offset_commit),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (
            handle_consumer_group_heartbeat,
            fail_consumer_group_heartbeat,
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (
            handle_consumer_group_describe,
            fail_consumer_group_describe,
        ),
    }
    return {
        api: Handler(partial(handle, groups=groups), fail) for api, (handle, fail) in pairs.items()
    }
