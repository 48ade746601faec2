"""What the request handlers need from the rest of the house; `node` brings it.

Nothing here does anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.controller.decision import RequestContext
    from millstream.protocol.message import Message
    from millstream.types import Uuid


class ControllerChannel(Protocol):
    """The way to the active controller: in the same process, or over the network."""

    def submit(
        self, request: Message, context: RequestContext, callback: Callable[[Message], None]
    ) -> None:
        """Hand a request in; `callback` gets the response, once, perhaps before the return.

        Errors are inside the response. Nothing is raised for what the controller says.
        """
        ...


class RaftRequests(Protocol):
    """The quorum's own requests, on a controller's listener."""

    def handle(
        self,
        request: Message,
        version: int,
        listener: str,
        respond: Callable[[Message], None],
    ) -> None:
        """Take a request of another voter, an observer or an administrator."""
        ...


class BrokerSettings(Protocol):
    """The settings that this node was started with, for DescribeConfigs."""

    @property
    def classes(self) -> Sequence[type]:
        """All settings classes of the node."""
        ...

    @property
    def given(self) -> Mapping[str, str]:
        """What the properties file, the environment and the command line gave, by Kafka's key."""
        ...


@dataclass(frozen=True, slots=True)
class ClientMetricsContext:
    """Who pushed metrics."""

    client_instance_id: Uuid
    client_id: str
    client_software_name: str
    client_software_version: str
    principal: str
    peer_host: str
    peer_port: int
    is_terminating: bool


class ClientTelemetrySink(Protocol):
    """Receives the metrics that clients push (KIP-714)."""

    def export(self, payload: bytes, context: ClientMetricsContext) -> None:
        """Take metrics: OTLP, a serialized MetricsData, decompressed."""
        ...
