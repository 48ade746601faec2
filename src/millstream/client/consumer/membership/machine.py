"""What the state machines of both group protocols need from around them.

`Membership` and `CoordinatorLink` are these in a client; tests have stand-ins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.client.consumer.membership.subscription import Subscription
    from millstream.client.groups import ConsumerGroupMetadata
    from millstream.errors import MillstreamError
    from millstream.network.client.network_client import OnDone, RequestSource
    from millstream.protocol.api import ApiKey
    from millstream.protocol.message import Message
    from millstream.types import TopicPartition


class Link(Protocol):
    """The way to the coordinator; see `CoordinatorLink`."""

    def is_ready(self, now_ms: int) -> bool:
        """Whether the coordinator can be asked now; finds it and connects if it cannot."""

    def due_ms(self, now_ms: int) -> int | None:
        """When to ask `is_ready` again if nothing happens before."""

    def lost(self, now_ms: int) -> None:
        """The coordinator is gone or has moved: find it again."""

    def worked(self) -> None:
        """The coordinator has answered as one."""

    def version_of(self, api: ApiKey) -> int | None:
        """The version that both speak; None if the coordinator does not offer the API."""

    def send(
        self, request: RequestSource, now_ms: int, on_done: OnDone, timeout_ms: int | None = None
    ) -> None:
        """One request, one answer."""

    def send_leave(self, request: RequestSource, now_ms: int, on_done: Callable[[], None]) -> None:
        """Tell the coordinator that we leave, for some seconds if need be."""

    def repeat(
        self, request: Message, first_ms: int, every_ms: int, until_ms: int, on_response: OnDone
    ) -> int:
        """Send a request again and again; raises BrokerUnreachable unless connected."""

    def cancel(self, request_id: int) -> None:
        """End such a repetition."""


class MemberHost(Protocol):
    """What a machine tells the membership that it is part of."""

    def heartbeats_until_ms(self, now_ms: int) -> int:
        """Until when the group may believe that the user is there, unless it polls again."""

    def identity_changed(self, identity: ConsumerGroupMetadata) -> None:
        """Who we are to the group from now on."""

    def failed(self, error: MillstreamError) -> None:
        """The membership is over, and trying again would not mend it."""


class GroupMachine(Protocol):
    """A member of a group, by one of the two protocols."""

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that are ours."""

    @property
    def is_member(self) -> bool:
        """Whether the group knows us, as far as we know."""

    def subscribe(self, subscription: Subscription, now_ms: int) -> None:
        """Join, or tell the group that we want something else."""

    def poll(self, now_ms: int) -> int | None:
        """Do what is due; when to be called again at the latest."""

    def rejoin(self, reason: str, now_ms: int) -> None:
        """Have the group rebalance."""

    def leave(self, now_ms: int, on_done: Callable[[], None], *, keeps_slot: bool) -> None:
        """Revoke everything and go; a static member whose slot is kept may come back."""

    def leave_on_poll_timeout(self, reason: MillstreamError, now_ms: int) -> None:
        """Go at once, since the user does not poll; what we own is lost."""

    def return_to_group(self, now_ms: int) -> None:
        """The user polls again after a poll timeout: join as a new member."""

    def refused(self, code: int, now_ms: int) -> None:
        """A commit or a fetch of offsets was refused with this code."""
