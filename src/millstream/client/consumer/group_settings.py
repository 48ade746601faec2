"""From a consumer's settings to those of its membership."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from millstream.client.consumer.membership.assignors import resolve
from millstream.client.consumer.membership.settings import MembershipSettings

if TYPE_CHECKING:
    from millstream.client.consumer.config import ConsumerConfig
    from millstream.client.consumer.membership.settings import GroupProtocol


def membership_settings(config: ConsumerConfig) -> MembershipSettings | None:
    """How the consumer is a member of its group; None if it has none."""
    if config.group_id is None:
        return None
    given = config.partition_assignment_strategy
    strategies = given.split(",") if isinstance(given, str) else given
    return MembershipSettings(
        group_id=config.isolation.to_wire(config.group_id),
        group_instance_id=config.group_instance_id,
        group_protocol=cast("GroupProtocol", config.group_protocol),
        remote_assignor=config.group_remote_assignor,
        assignors=resolve(strategies),
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        max_poll_interval_ms=config.max_poll_interval_ms,
        enable_auto_commit=config.enable_auto_commit,
        auto_commit_interval_ms=config.auto_commit_interval_ms,
        client_rack=config.client_rack or None,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        request_timeout_ms=config.request_timeout_ms,
        default_api_timeout_ms=config.default_api_timeout_ms,
        exclude_internal_topics=config.exclude_internal_topics,
    )
