"""The settings of a consumer that concern its membership, in milliseconds as Kafka has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from millstream.client.consumer.membership.assignors import DEFAULT_ASSIGNORS, Assignor

GroupProtocol: TypeAlias = Literal["auto", "consumer", "classic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """What a member tells its group and how patient it is.

    With the protocol `auto` a member uses the consumer protocol (KIP-848) when the coordinator
    offers it, else the classic one, and always the classic one if it was given assignors. With the
    consumer protocol the broker has the session timeout, the heartbeat interval and the assignors,
    so those settings are for the classic one.
    """

    group_id: str
    group_instance_id: str | None = None
    group_protocol: GroupProtocol = "auto"
    remote_assignor: str | None = None
    assignors: tuple[Assignor, ...] = DEFAULT_ASSIGNORS
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    client_rack: str | None = None
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    exclude_internal_topics: bool = True

    @property
    def has_own_assignors(self) -> bool:
        """Whether the user wants other assignors than everybody has."""
        return self.assignors != DEFAULT_ASSIGNORS

    @property
    def is_cooperative(self) -> bool:
        """Classic members keep what they have while they rebalance if every assignor allows it."""
        return all(each.is_cooperative for each in self.assignors)
