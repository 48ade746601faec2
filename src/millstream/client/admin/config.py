"""The settings of an admin: those of every client, with Kafka's defaults for administration."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.config import ClientConfig, ClientSettings
from millstream.config import ConfigType, at_least, key


class AdminSettings(ClientSettings, total=False):
    """Keyword arguments of `Admin` and `AsyncAdmin`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Settings of an admin, in Kafka's names and units."""

    connections_max_idle_ms: int = key(
        "connections.max.idle.ms",
        300_000,
        at_least(-1),
        "Close a connection that was not used for this long; -1: never.",
        kind=ConfigType.LONG,
        unit="ms",
    )
