"""The brokers that a client knows, what each connection is like, and whom to ask.

The half of `NetworkClient` that only looks: it never sends. Bootstrap addresses are brokers with
ids below 0 until the cluster has told who its members are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import UnsupportedVersion
from millstream.network.client.broker_link import BrokerLink, LinkState
from millstream.network.client.link_reports import LinkReports
from millstream.protocol.api import negotiate_api

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from millstream.network.client.broker_link import Feature
    from millstream.protocol.api import ApiKey
    from millstream.protocol.notation import VersionRange


class BrokerDirectory:
    """Links to brokers by node id."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._reports = LinkReports()
        self._links: dict[int, BrokerLink] = {}
        self._retired: list[BrokerLink] = []
        """Links that get no new request; they end when what is under way is done."""
        self.on_lost: Callable[[], object] = lambda: None
        """Told of each connection that failed or was ended by the other side, even if no request
        was under way: another broker may do its work by now."""

    def set_address(self, node_id: int, host: str, port: int, *, is_member: bool = True) -> None:
        """Name a broker, or where it has moved to.

        Requests for any broker never go to one that is not a member. After a move requests under
        way may end on the old connection; those that wait go to the new address.
        """
        old = self._links.get(node_id)
        if old is not None and (old.host, old.port) == (host, port):
            return
        link = BrokerLink(node_id, host, port, is_member=is_member)
        if old is not None:
            old.waiting, link.waiting = link.waiting, old.waiting
            self._retired.append(old)
        self._links[node_id] = link

    def forget(self, node_id: int) -> None:
        """Take a broker off the list; what is under way may end, new requests fail."""
        link = self._links.pop(node_id, None)
        if link is not None:
            self._retired.append(link)

    def knows(self, node_id: int) -> bool:
        """Whether there is an address for a broker."""
        return node_id in self._links

    def members(self) -> list[int]:
        """The brokers that requests for any broker may go to."""
        return [each.node_id for each in self._links.values() if each.is_member]

    def is_connected(self, node_id: int) -> bool:
        """Whether a connection stands and its versions are known."""
        link = self._links.get(node_id)
        return link is not None and link.state is LinkState.READY

    def is_avoided(self, node_id: int, now_ms: int) -> bool:
        """Whether the last connection failed, and it is too early for the next."""
        link = self._links.get(node_id)
        return (
            link is not None and link.state is LinkState.DISCONNECTED and now_ms < link.reconnect_ms
        )

    def sending_connection(self, node_id: int, now_ms: int) -> int:
        """The connection on which requests may be sent; 0 if there is none for now."""
        link = self._links.get(node_id)
        if link is None or link.state is not LinkState.READY or link.is_throttled(now_ms):
            return 0
        return link.connection_id

    def connection_delay_ms(self, node_id: int, now_ms: int) -> int:
        """How long until it makes sense to try again; 0 if a request may be sent now."""
        link = self._links.get(node_id)
        if link is None:
            return 0
        match link.state:
            case LinkState.DISCONNECTED:
                return max(0, link.reconnect_ms - now_ms)
            case LinkState.READY:
                return max(0, link.throttled_until_ms - now_ms)
            case _:
                return max(0, link.setup_deadline_ms - now_ms)

    def version_of(self, node_id: int, api: ApiKey) -> int | None:
        """The version that both sides speak; None while unknown or if there is none."""
        link = self._links.get(node_id)
        try:
            return None if link is None else negotiate_api(api, link.versions.get(int(api)))
        except UnsupportedVersion:
            return None

    def versions_of(self, node_id: int) -> Mapping[int, VersionRange] | None:
        """The versions that a broker has told, by API key; None before it has."""
        link = self._links.get(node_id)
        return None if link is None or link.state is not LinkState.READY else link.versions

    def offers(self, node_id: int, api: ApiKey) -> bool:
        """Whether the broker has said that it knows an API."""
        link = self._links.get(node_id)
        return link is not None and int(api) in link.versions

    def features_of(self, node_id: int) -> tuple[Feature, ...]:
        """The features of the cluster, as the broker said when it was connected to."""
        link = self._links.get(node_id)
        return () if link is None else link.features

    def in_flight(self, node_id: int) -> int:
        """How many requests to a broker are not answered yet, or wait to be sent."""
        link = self._links.get(node_id)
        return 0 if link is None else link.load

    def throttle(self, node_id: int, throttle_time_ms: int, now_ms: int) -> None:
        """Leave a broker alone for as long as it asked for."""
        link = self._links.get(node_id)
        if link is not None and throttle_time_ms > 0:
            link.throttled_until_ms = max(link.throttled_until_ms, now_ms + throttle_time_ms)

    def _note_lost(self, link: BrokerLink, reason: str) -> None:
        link.last_failure = reason
        self.on_lost()

    def failures(self) -> list[str]:
        """Why the last connections of members failed or ended, of those that are not connected.

        Any thread may ask, while the one that owns the links adds and removes some.
        """
        return [
            f"{link.name}: {link.last_failure}"
            for link in list(self._links.values())
            if link.is_member and link.last_failure and link.state is not LinkState.READY
        ]

    def failure_counts(self) -> dict[int, int]:
        """How often in a row each member could not be connected to."""
        return {
            link.node_id: link.reconnect_failures for link in self._links.values() if link.is_member
        }

    def is_cut_off(self) -> bool:
        """Whether every member has refused a new connection after it had failed before."""
        return all(
            link.state is LinkState.DISCONNECTED and link.reconnect_failures > 1
            for link in self._links.values()
            if link.is_member
        )

    def least_loaded(self, now_ms: int) -> int | None:
        """The broker to ask what any can answer; None if all have to be left alone for now."""
        candidates = [
            link
            for link in self._links.values()
            if link.is_member
            and (link.state is not LinkState.DISCONNECTED or now_ms >= link.reconnect_ms)
        ]
        if not candidates:
            return None
        first = self._random.randrange(len(candidates))
        in_turn = candidates[first:] + candidates[:first]
        return min(in_turn, key=lambda link: _reluctance(link, now_ms)).node_id


def _reluctance(link: BrokerLink, now_ms: int) -> tuple[int, int]:
    if link.state is LinkState.READY and not link.is_throttled(now_ms):
        return 0, link.load
    # One that is being connected to is worth more than one that failed or was never tried.
    return (2, link.reconnect_failures) if link.state is LinkState.DISCONNECTED else (1, link.load)
