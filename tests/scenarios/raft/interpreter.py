"""What the commands of the raft stories mean.

| command | meaning |
|---|---|
| `cluster voters=1,2,3 [static]` | format and start nodes; nobody leads yet |
| `elect N` | node N stands for election now; wait until it leads |
| `run 10s`, `run 300ms`, `settle` | let time pass; until all have the same log and leader |
| `cut N ...`, `cut N-M`, `heal` | cut nodes off from all others, or one line; mend all |
| `crash N ...`, `start N ...`, `stop N` | power cut, boot, proper shutdown |
| `submit TEXT ...` | the leader's controller writes records |
| `resign` | the leader's controller gives up |
| `snapshot N ...`, `prune N ...` | write a snapshot; drop what it makes superfluous |
| `node N [broker] [auto] [disk=K]` | a new node, not a voter |
| `add N`, `remove N`, `upgrade` | change the voters; kraft.version 1 |
| `show [N ...]`, `leader`, `voters`, `log N` | output |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ApiError, class_for_code
from millstream.protocol.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from millstream.protocol.messages.add_raft_voter import Listener
from millstream.raft.leader_state import Leader
from millstream.raft.states import Candidate, Follower, Prospective, Role, Unattached
from tests.simulation.raft.cluster import Cluster
from tests.simulation.raft.node import CLUSTER_ID, LISTENER, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.protocol.message import Message
    from tests.simulation.raft.node import SimNode

_PATIENCE_MS = 30_000


class RaftInterpreter:
    """One cluster and the commands that act on it."""

    def __init__(self) -> None:
        self.cluster = Cluster(seed=1)
        self._founders: list[int] = []
        self._is_dynamic = True

    def __call__(self, command: str) -> list[str]:
        name, *arguments = command.split()
        act: Callable[..., list[str] | None] = getattr(self, f"do_{name}")
        return act(*arguments) or []

    # --- Time and faults ---

    def do_cluster(self, voters: str, kind: str = "") -> None:
        """Format and start."""
        self._founders = [int(each) for each in voters.removeprefix("voters=").split(",")]
        self._is_dynamic = kind != "static"
        self.cluster.build(self._founders, is_dynamic=self._is_dynamic)

    def do_elect(self, node_id: str) -> None:
        """Make one node impatient."""
        node = self._node(node_id)
        now_ms = self.cluster.clock.monotonic_ms()
        state = node.driver.core.state
        if isinstance(state, Follower):
            state.fetch_deadline_ms = now_ms
        elif isinstance(state, Unattached | Prospective | Candidate):
            state.election_deadline_ms = now_ms
        node.driver.tick()
        done = self.cluster.run_until(lambda: node.leads_epoch is not None, _PATIENCE_MS)
        assert done, f"{node} was not elected"

    def do_run(self, duration: str) -> None:
        """Let time pass."""
        is_ms = duration.endswith("ms")
        self.cluster.run_for(int(duration[:-2]) if is_ms else int(duration[:-1]) * 1_000)

    def do_settle(self) -> list[str]:
        """Let time pass until nothing is left to replicate among those that can talk."""
        settled = self.cluster.run_until(self._is_settled, _PATIENCE_MS)
        return [] if settled else ["does not settle"]

    def _is_settled(self) -> bool:
        leader = self.cluster.leader()
        if leader is None or leader.leads_epoch is None:
            return False
        assert isinstance(leader.driver.core.state, Leader)
        reachable = [
            node
            for node in self.cluster.nodes.values()
            if node.is_up and (node is leader or not self.cluster.is_cut(node, leader))
        ]
        end_offset = leader.driver.core.state.next_offset
        return all(
            node.driver.core.leader_id == leader.key.id
            and node.driver.core.role in (Role.LEADER, Role.FOLLOWER)
            and node.driver.core.outline.high_watermark == end_offset
            for node in reachable
        )

    def do_cut(self, *targets: str) -> None:
        """Cut lines."""
        for target in targets:
            one, dash, other = target.partition("-")
            if dash:
                self.cluster.cut.add(frozenset({int(one), int(other)}))
            else:
                self.cluster.isolate(int(one))

    def do_heal(self) -> None:
        """Mend all lines."""
        self.cluster.heal()

    def do_crash(self, *node_ids: str) -> None:
        """Cut the power."""
        for node_id in node_ids:
            self._node(node_id).crash()

    def do_start(self, *node_ids: str) -> None:
        """Boot."""
        for node_id in node_ids:
            self._node(node_id).start()

    def do_stop(self, node_id: str) -> None:
        """Shut down properly."""
        node = self._node(node_id)
        node.driver.shut_down(5_000)
        assert self.cluster.run_until(lambda: not node.is_up, _PATIENCE_MS)

    # --- Work ---

    def do_submit(self, *texts: str) -> list[str]:
        """Write records, one batch each, where the newest leader is."""
        leader = self.cluster.leader()
        assert leader is not None, "nobody leads"
        for text in texts:
            try:
                leader.driver.submit(leader.driver.core.epoch, [text.encode()])
            except ApiError as error:
                return [error.wire_name]
        return []

    def do_resign(self) -> None:
        """The leader's controller gives up."""
        leader = self.cluster.leader()
        assert leader is not None, "nobody leads"
        leader.driver.resign(leader.driver.core.epoch)

    def do_snapshot(self, *node_ids: str) -> None:
        """Write a snapshot."""
        for node_id in node_ids:
            self._node(node_id).take_snapshot()

    def do_prune(self, *node_ids: str) -> None:
        """Drop old records."""
        for node_id in node_ids:
            self._node(node_id).prune()

    # --- Members ---

    def do_node(self, node_id: str, *options: str) -> None:
        """A new node appears; one of the same id is replaced."""
        config = self.cluster.config(
            self._founders, is_dynamic=self._is_dynamic, auto_join_enable="auto" in options
        )
        disks = [int(each.removeprefix("disk=")) for each in options if each.startswith("disk=")]
        node = self.cluster.add(
            int(node_id),
            config,
            is_controller="broker" not in options,
            disk=disks[0] if disks else 0,
        )
        node.start()

    def do_add(self, node_id: str) -> list[str]:
        """Add a voter, and wait for the answer."""
        key = self._node(node_id).key
        where = endpoint_of(key.id)
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=2_000,
            voter_id=key.id,
            voter_directory_id=key.directory_id,
            listeners=[Listener(name=LISTENER, host=where.host, port=where.port)],
        )
        return self._ask(request)

    def do_remove(self, node_id: str) -> list[str]:
        """Remove a voter, and wait for the answer."""
        key = self._node(node_id).key
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id
        )
        return self._ask(request)

    def do_upgrade(self) -> list[str]:
        """Make the voters changeable."""
        leader = self.cluster.leader()
        assert leader is not None, "nobody leads"
        try:
            leader.driver.upgrade_kraft_version(leader.driver.core.epoch, 1)
        except ApiError as error:
            return [f"{error.wire_name}: {error}"]
        return []

    def _ask(self, request: Message) -> list[str]:
        answers = self.cluster.ask_leader(request)
        self.cluster.run_until(lambda: bool(answers), 5_000)
        if not answers:
            return ["no answer"]
        answer = answers[0]
        assert hasattr(answer, "error_code")
        if not answer.error_code:
            return ["done"]
        assert hasattr(answer, "error_message")
        return [f"{class_for_code(answer.error_code).wire_name}: {answer.error_message}"]

    # --- Output ---

    def do_show(self, *node_ids: str) -> list[str]:
        """Role, epoch, leader, log and high watermark of nodes."""
        nodes = [self._node(each) for each in node_ids] or list(self.cluster.nodes.values())
        return [node.describe() if node.is_up else f"{node.key.id}: down" for node in nodes]

    def do_leader(self) -> list[str]:
        """The newest leader."""
        leader = self.cluster.leader()
        if leader is None:
            return ["nobody leads"]
        return [f"leader={leader.key.id} epoch={leader.driver.core.epoch}"]

    def do_voters(self) -> list[str]:
        """The voters as each node sees them."""
        return [
            f"{node.key.id}: {','.join(map(str, node.driver.core.voters.ids)) or 'none'}"
            f" kraft.version={node.driver.core.kraft_version}"
            for node in self.cluster.nodes.values()
            if node.is_up
        ]

    def do_log(self, node_id: str) -> list[str]:
        """The records of a node, with offset and epoch."""
        lines = []
        for batch in self._node(node_id).log.batches:
            for record in batch.records():
                text = "control" if batch.is_control else (record.value or b"").decode()
                lines.append(f"{record.offset}@{batch.leader_epoch} {text}")
        return lines

    def _node(self, node_id: str) -> SimNode:
        return self.cluster.nodes[int(node_id)]
