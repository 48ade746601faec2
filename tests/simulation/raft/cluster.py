"""A simulated cluster: virtual time, a network that drops, delays and doubles, and power cuts.

Everything random comes from one seed, so a failing run can be run again. Nodes know nothing of it.
"""

from __future__ import annotations

import heapq
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from millstream.clock import ManualClock
from millstream.errors import KafkaStorageError
from millstream.protocol.messages import ApiVersionsRequest
from millstream.raft.config import QuorumConfig
from millstream.raft.voters import LOCAL_SUPPORTED_VERSIONS, ReplicaKey, Voter, VoterSet
from millstream.types import Uuid
from tests.simulation.raft.invariants import History
from tests.simulation.raft.node import LISTENER, SimNode, api_versions, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message
    from millstream.raft.effects import Peer


@dataclass
class Faults:
    """How bad the world is."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_ms_max: int = 3
    flush_ms_max: int = 2


class Cluster:
    """Nodes, the messages between them, and the time."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.faults = faults or Faults()
        self.history = History()
        self.nodes: dict[int, SimNode] = {}
        self.cut: set[frozenset[int]] = set()
        self.wire_log: list[str] | None = None
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    # --- Building ---

    def directory_of(self, node_id: int, disk: int = 0) -> Uuid:
        """The directory id of a node's n-th disk."""
        return Uuid(bytes([1 + disk]) * 8 + node_id.to_bytes(8, "big"))

    def build(self, voters: list[int], *, is_dynamic: bool) -> None:
        """Format and start the voters of a new cluster."""
        config = self.config(voters, is_dynamic=is_dynamic)
        voter_set = VoterSet(
            Voter(
                ReplicaKey(node_id, self.directory_of(node_id)),
                {LISTENER: endpoint_of(node_id)},
                LOCAL_SUPPORTED_VERSIONS,
            )
            for node_id in voters
        )
        for node_id in voters:
            node = self.add(node_id, config)
            if is_dynamic:
                node.format(voter_set)
        for node_id in voters:
            self.nodes[node_id].start()

    def config(
        self, voters: list[int], *, is_dynamic: bool, auto_join_enable: bool = False
    ) -> QuorumConfig:
        """Settings under which nodes find these voters."""
        addresses = {node_id: str(endpoint_of(node_id)) for node_id in voters}
        if is_dynamic:
            servers = tuple(addresses.values())
            return QuorumConfig(bootstrap_servers=servers, auto_join_enable=auto_join_enable)
        listed = tuple(f"{node_id}@{address}" for node_id, address in addresses.items())
        return QuorumConfig(voters=listed)

    def add(
        self, node_id: int, config: QuorumConfig, *, is_controller: bool = True, disk: int = 0
    ) -> SimNode:
        """A new node with an empty disk; not started."""
        key = ReplicaKey(node_id, self.directory_of(node_id, disk))
        node = SimNode(self, key, config, is_controller=is_controller)
        self.nodes[node_id] = node
        return node

    # --- Time ---

    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Do something after a while."""
        self._sequence += 1
        due_ms = self.clock.monotonic_ms() + delay_ms
        heapq.heappush(self._due, (due_ms, self._sequence, act))

    def next_ms(self) -> int | None:
        """When the next thing happens."""
        times = [node.deadline_ms for node in self.nodes.values() if node.deadline_ms is not None]
        if self._due:
            times.append(self._due[0][0])
        return min(times, default=None)

    def run_next(self) -> bool:
        """Let one thing happen and check all nodes; False if nothing ever will."""
        next_ms = self.next_ms()
        if next_ms is None:
            return False
        now_ms = self.clock.monotonic_ms()
        self.clock.advance(max(0, next_ms - now_ms))
        now_ms = self.clock.monotonic_ms()
        late = [n for n in self.nodes.values() if n.deadline_ms is not None]
        late = [n for n in late if n.deadline_ms is not None and n.deadline_ms <= now_ms]
        if self._due and self._due[0][0] <= now_ms:
            heapq.heappop(self._due)[2]()
        elif late:
            self.random.choice(late).driver.tick()
        self.check()
        return True

    def run_for(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.clock.monotonic_ms() + duration_ms
        while (next_ms := self.next_ms()) is not None and next_ms <= end_ms:
            self.run_next()
        self.clock.advance(max(0, end_ms - self.clock.monotonic_ms()))

    def run_until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Let time pass until something holds; False if it never does in this time."""
        end_ms = self.clock.monotonic_ms() + timeout_ms
        while not condition():
            next_ms = self.next_ms()
            if next_ms is None or next_ms > end_ms or not self.run_next():
                return condition()
        return True

    def check(self) -> None:
        """All invariants of all nodes."""
        for node in self.nodes.values():
            if node.is_up:
                self.history.check_node(node)

    # --- Network and disk ---

    def flush_later(self, node: SimNode, sync: Callable[[], None]) -> None:
        """A disk takes its time."""
        self.later(self.random.randint(0, self.faults.flush_ms_max), sync)

    def send_request(self, sender: SimNode, request_id: int, peer: Peer, message: Message) -> None:
        """Carry a request to whoever listens there, as bytes of its newest version."""
        receiver = next(
            (n for n in self.nodes.values() if endpoint_of(n.key.id) == peer.endpoint), None
        )
        if receiver is None or not receiver.is_up or self.is_cut(sender, receiver):
            if self.random.random() < 0.5:
                self._deliver(partial(self._fail, sender, sender.incarnation, request_id))
            return
        self._trace(sender, receiver, message)
        version = type(message).VERSIONS.highest
        data = message.encode(version)
        for _ in range(self._copies()):
            request = type(message).decode(data, version)
            receive = partial(
                self._receive, sender, sender.incarnation, receiver, request_id, request, version
            )
            self._deliver(receive)

    def _receive(
        self,
        sender: SimNode,
        incarnation: int,
        receiver: SimNode,
        request_id: int,
        request: Message,
        version: int,
    ) -> None:
        if not receiver.is_up or self.is_cut(sender, receiver):
            return

        def respond(response: Message) -> None:
            self.history.check_response(receiver, request, response)
            if self.is_cut(sender, receiver):
                return
            self._trace(receiver, sender, response)
            data = response.encode(version)
            for _ in range(self._copies()):
                decoded = type(response).decode(data, version)
                self._deliver(
                    partial(self._return, receiver, sender, incarnation, request_id, decoded)
                )

        if isinstance(request, ApiVersionsRequest):
            respond(api_versions())
        else:
            with suppress(KafkaStorageError):
                receiver.driver.handle(request, version, LISTENER, respond)

    def _return(
        self,
        receiver: SimNode,
        sender: SimNode,
        incarnation: int,
        request_id: int,
        response: Message,
    ) -> None:
        is_same_process = sender.is_up and sender.incarnation == incarnation
        if is_same_process and not self.is_cut(sender, receiver):
            sender.driver.response_received(request_id, response)

    def _fail(self, sender: SimNode, incarnation: int, request_id: int) -> None:
        if sender.is_up and sender.incarnation == incarnation:
            sender.driver.request_failed(request_id)

    def _copies(self) -> int:
        if self.random.random() < self.faults.loss:
            return 0
        return 2 if self.random.random() < self.faults.duplication else 1

    def _deliver(self, act: Callable[[], None]) -> None:
        self.later(self.random.randint(1, self.faults.delay_ms_max), act)

    def is_cut(self, one: SimNode, other: SimNode) -> bool:
        """Whether messages between two nodes are lost."""
        return frozenset({one.key.id, other.key.id}) in self.cut

    def isolate(self, node_id: int) -> None:
        """Cut a node off from all others."""
        self.cut |= {frozenset({node_id, other}) for other in self.nodes if other != node_id}

    def heal(self) -> None:
        """Mend the network."""
        self.cut.clear()

    def _trace(self, source: SimNode, target: SimNode, message: Message) -> None:
        if self.wire_log is not None:
            now_ms = self.clock.monotonic_ms()
            line = f"{now_ms} {source.key.id}>{target.key.id} {message!r}"
            self.wire_log.append(line)

    # --- Looking and acting from outside ---

    def leader(self) -> SimNode | None:
        """The leader of the newest epoch."""
        leaders = [node for node in self.nodes.values() if node.is_leader]
        return max(leaders, key=lambda node: node.driver.core.epoch, default=None)

    def ask_leader(self, request: Message) -> list[Message]:
        """Send an administrator's request to the leader; the answers come into the list."""
        answers: list[Message] = []
        leader = self.leader()
        if leader is not None:
            version = type(request).VERSIONS.highest
            with suppress(KafkaStorageError):
                leader.driver.handle(request, version, LISTENER, answers.append)
        return answers
