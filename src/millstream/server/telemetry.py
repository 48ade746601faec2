"""What clients are asked to measure and push (KIP-714): subscriptions, and who was told which.

The two telemetry handlers ask. A subscription is a `client-metrics` resource in the metadata; those
that match a client make up what it is told, and give it its subscription id. Only the clients heard
of most recently are remembered.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.config import parse
from millstream.controller.config_schema import ClientMetricsConfig
from millstream.metadata.configs import ResourceType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.metadata.cache import KRaftMetadataCache
    from millstream.server.exchange import Exchange
    from millstream.types import Uuid

CLIENTS_MAX: Final = 16_384
"""How many clients are remembered; the one that was silent longest is forgotten first."""
DEFAULT_INTERVAL_MS: Final = 300_000
ALL_METRICS: Final = "*"


class Subscription(NamedTuple):
    """What one client is to push, and how often."""

    id: int
    metrics: tuple[str, ...]
    """Prefixes of names; `*` alone is all, none is nothing."""
    push_interval_ms: int


class ClientInstance:
    """A client that asked for its subscription, and what it did since."""

    __slots__ = ("asked_ms", "is_terminating", "pushed_ms", "subscription")

    def __init__(self, subscription: Subscription, now_ms: int) -> None:
        self.subscription = subscription
        self.asked_ms: int | None = now_ms
        """When it asked, if it has not pushed since."""
        self.pushed_ms: int | None = None
        self.is_terminating = False


class ClientMetricsManager:
    """The clients that push metrics."""

    def __init__(self, metadata: KRaftMetadataCache) -> None:
        self._metadata = metadata
        self._clients: dict[Uuid, ClientInstance] = {}

    def find(self, client_instance_id: Uuid) -> ClientInstance | None:
        """A client that is remembered."""
        found = self._clients.pop(client_instance_id, None)
        if found is not None:
            self._clients[client_instance_id] = found
        return found

    def remember(self, client_instance_id: Uuid, instance: ClientInstance) -> None:
        """Note a client, in the place of one that was silent for long."""
        self._clients.pop(client_instance_id, None)
        if len(self._clients) >= CLIENTS_MAX:
            del self._clients[next(iter(self._clients))]
        self._clients[client_instance_id] = instance

    def subscription_for(self, client_instance_id: Uuid, exchange: Exchange) -> Subscription:
        """What the subscriptions that match a client ask of it, taken together."""
        facts = _facts(client_instance_id, exchange)
        by_resource = self._metadata.image.configs.by_resource
        matching = [
            config
            for resource in sorted(by_resource)
            if resource.type == ResourceType.CLIENT_METRICS
            and _matches(config := parse(ClientMetricsConfig, by_resource[resource]), facts)
        ]
        metrics = tuple(sorted({name for config in matching for name in config.metrics}))
        if ALL_METRICS in metrics:
            metrics = (ALL_METRICS,)
        interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
        identity = f"{client_instance_id}|{','.join(metrics)}|{interval_ms}"
        return Subscription(zlib.crc32(identity.encode()) & 0x7FFFFFFF, metrics, interval_ms)


def _facts(client_instance_id: Uuid, exchange: Exchange) -> dict[str, str]:
    connection = exchange.connection
    return {
        "client_instance_id": str(client_instance_id),
        "client_id": exchange.request.client_id or "",
        "client_software_name": connection.client_software_name,
        "client_software_version": connection.client_software_version,
        "client_source_address": connection.peer_host,
        "client_source_port": str(connection.peer_port),
    }


def _matches(config: ClientMetricsConfig, facts: Mapping[str, str]) -> bool:
    for item in config.match:
        name, _, pattern = item.partition("=")
        if not re.fullmatch(pattern.strip(), facts[name.strip()]):
            return False
    return True
