"""What a client's connections write to the log: warnings of brokers that stay out of reach.

`NetworkClient` tells it of every connection that stands or ends, and the time. Nothing here acts.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from millstream.network.client.broker_link import LinkState

if TYPE_CHECKING:
    from millstream.network.client.broker_link import BrokerLink

WARN_EVERY_MS: Final = 30_000
"""So often at most is an address said to be out of reach."""

_logger: Final = logging.getLogger(__name__)


class LinkReports:
    """Remembers which addresses it has warned of."""

    __slots__ = ("_warn_from_ms",)

    def __init__(self) -> None:
        self._warn_from_ms: dict[str, int] = {}
        """By address: silence until then."""

    def on_connected(self, link: BrokerLink) -> None:
        """A connection stands."""
        has_failed = self._warn_from_ms.pop(link.address, None) is not None
        _logger.log(logging.INFO if has_failed else logging.DEBUG, "connected to %s", link.name)

    def on_hung_up(self, link: BrokerLink, reason: str) -> None:
        """We end a connection that stood: a broker has not answered, or not as it should."""
        if link.state is LinkState.READY:
            _logger.warning("hanging up on %s: %s", link.name, reason)

    def on_ended(self, link: BrokerLink, reason: str, now_ms: int) -> None:
        """A connection ended, or never stood: a warning if the next try fails as well."""
        if link.state is LinkState.READY:
            # A broker may close what is idle, or be about to start again.
            _logger.info("the connection to %s has ended: %s", link.name, reason)
        elif link.reconnect_failures < 2 or now_ms < self._warn_from_ms.get(link.address, now_ms):
            _logger.debug("%s cannot be reached: %s", link.name, reason)
        else:
            self._warn_from_ms[link.address] = now_ms + WARN_EVERY_MS
            which = f"broker {link.name}" if link.node_id < 0 else link.name
            _logger.warning("%s cannot be reached, trying again: %s", which, reason)
