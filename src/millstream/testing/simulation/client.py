"""A client in a simulated world that sends single requests to nodes, over simulated connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.network.client.config import NetworkClientConfig
from millstream.node.peer_client import PeerClient
from millstream.node.timers import Timers
from millstream.testing.simulation.cluster import BROKER_PORT, host_of

if TYPE_CHECKING:
    from millstream.network.client.broker_link import OnDone
    from millstream.protocol.message import Message
    from millstream.testing.simulation.world import World


class SimClient:
    """One process on a machine of its own. It lives as long as the world."""

    def __init__(self, world: World, name: str = "client") -> None:
        machine = world.machine(name)
        environment = machine.open_process()
        assert machine.loop is not None
        timers = Timers(
            machine.loop, machine.clock, lambda error: world.fail(name, error, "a timer failed")
        )
        config = NetworkClientConfig(client_id=name)
        self._client = PeerClient(environment, config, timers)
        self.host = name

    def send(self, node_id: int, request: Message, on_done: OnDone, *, timeout_ms: int) -> None:
        """Ask a broker; `on_done` gets its response or one error, once."""
        host = host_of(node_id)
        self._client.send(node_id, host, BROKER_PORT, request, on_done, timeout_ms=timeout_ms)
