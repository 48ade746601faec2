"""One seeded run: a cluster is built, abused for a while, left in peace, and must come round.

`run_seed` takes a seed and nothing else. What the abuse consists of depends on the seed too, so
that some runs are mild and long and others lose half of their messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import ApiError
from millstream.protocol.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from millstream.protocol.messages.add_raft_voter import Listener
from tests.simulation.raft.cluster import Cluster, Faults
from tests.simulation.raft.node import CLUSTER_ID, LISTENER, endpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.raft.node import SimNode

ABUSE_MS = 20_000
PEACE_MS = 60_000


class Chaos:
    """The cluster of one seed and its tormentor."""

    def __init__(self, seed: int, *, fills_disks: bool = False) -> None:
        self.cluster = Cluster(seed)
        random = self.cluster.random
        self.cluster.faults = Faults(
            loss=random.choice([0.0, 0.02, 0.1, 0.3]),
            duplication=random.choice([0.0, 0.05, 0.2]),
            delay_ms_max=random.choice([2, 20, 200, 1_500]),
            flush_ms_max=random.choice([0, 5, 100]),
        )
        self.is_dynamic = random.random() < 0.6
        self.founders = list(range(1, random.choice([1, 3, 3, 3, 5]) + 1))
        self.config = self.cluster.config(
            self.founders, is_dynamic=self.is_dynamic, auto_join_enable=seed % 3 == 0
        )
        self.submitted = 0
        acts: list[tuple[int, Callable[[], None]]] = [
            (30, self.submit),
            (6, self.crash),
            (3, self.black_out),
            (8, self.restart),
            (5, self.cut),
            (4, self.isolate),
            (8, self.cluster.heal),
            (6, self.snapshot),
            (3, self.prune),
            (1, self.resign),
            (1, self.shut_down),
            (2, self.add_observer),
        ]
        if self.is_dynamic:
            acts += [(6, self.add_voter), (5, self.remove_voter)]
        else:
            acts += [(1, self.upgrade)]
        if fills_disks:
            acts += [(8, self.fill_disk), (8, self.make_room)]
        self._acts = acts

    def begin_trace(self) -> None:
        """Keep the messages from now on."""
        self.cluster.wire_log = []

    @property
    def trace(self) -> list[str]:
        """The messages that were kept."""
        return self.cluster.wire_log or []

    def run(self) -> None:
        """Abuse, then peace."""
        self.cluster.build(self.founders, is_dynamic=self.is_dynamic)
        random = self.cluster.random
        end_ms = self.cluster.clock.monotonic_ms() + ABUSE_MS
        weights = [weight for weight, _ in self._acts]
        while self.cluster.clock.monotonic_ms() < end_ms:
            self.cluster.run_for(random.choice([1, 10, 50, 200, 1_000]))
            random.choices(self._acts, weights)[0][1]()
            self.cluster.check()
        self.make_peace()

    def make_peace(self) -> None:
        """Mend everything; one leader must emerge and all logs become the same."""
        cluster = self.cluster
        cluster.faults = Faults()
        cluster.heal()
        for node in cluster.nodes.values():
            node.set_full(is_full=False)
            if node.is_stopping and node.is_up:
                node.crash()
            if not node.is_up:
                node.start()
        assert cluster.run_until(self.is_settled, PEACE_MS), self.describe()
        leader = cluster.leader()
        assert leader is not None
        base_offset, _ = leader.driver.submit(leader.driver.core.epoch, [b"peace"])
        assert cluster.run_until(lambda: self.all_committed(base_offset), PEACE_MS), self.describe()
        assert cluster.run_until(self.are_states_equal, PEACE_MS), self.describe()

    def is_settled(self) -> bool:
        """Whether one node leads and all have what it has."""
        leader = self.cluster.leader()
        if leader is None or leader.leads_epoch is None:
            return False
        end_offset = leader.driver.core.outline.end_offset
        return self.all_committed(end_offset - 1) and all(
            node.driver.core.leader_id == leader.key.id for node in self.cluster.nodes.values()
        )

    def all_committed(self, offset: int) -> bool:
        """Whether every node knows the record at an offset to be committed."""
        return all(
            n.driver.core.outline.high_watermark > offset for n in self.cluster.nodes.values()
        )

    def are_states_equal(self) -> bool:
        """Whether all state machines have come to the same."""
        return len({node.state for node in self.cluster.nodes.values()}) == 1

    def describe(self) -> str:
        """How things stand, for a failure."""
        return "\n".join(node.describe() for node in self.cluster.nodes.values())

    # --- Abuse ---

    def _any(self, *, is_up: bool) -> SimNode | None:
        found = [node for node in self.cluster.nodes.values() if node.is_up is is_up]
        return self.cluster.random.choice(found) if found else None

    def submit(self) -> None:
        """Every node that believes to lead gets records."""
        for node in list(self.cluster.nodes.values()):
            if node.is_up and node.leads_epoch is not None:
                self.submitted += 1
                count = self.cluster.random.randint(1, 3)
                records = [b"%d-%d" % (self.submitted, number) for number in range(count)]
                try:
                    node.driver.submit(node.leads_epoch, records)
                except ApiError:
                    assert not node.is_leader or node.is_stalled

    def crash(self) -> None:
        """Cut the power of one."""
        node = self._any(is_up=True)
        if node is not None:
            node.crash()

    def black_out(self) -> None:
        """Cut the power of several at the same moment, so that no disk has a friend to ask."""
        for node in list(self.cluster.nodes.values()):
            if node.is_up and self.cluster.random.random() < 0.7:
                node.crash()
                if self.cluster.random.random() < 0.7:
                    node.start()

    def restart(self) -> None:
        """Give one its power back."""
        node = self._any(is_up=False)
        if node is not None:
            node.start()

    def cut(self) -> None:
        """Cut the line between two."""
        if len(self.cluster.nodes) > 1:
            pair = self.cluster.random.sample(sorted(self.cluster.nodes), 2)
            self.cluster.cut.add(frozenset(pair))

    def isolate(self) -> None:
        """Cut all lines of one."""
        self.cluster.isolate(self.cluster.random.choice(sorted(self.cluster.nodes)))

    def fill_disk(self) -> None:
        """The disk of one has no room."""
        node = self._any(is_up=True)
        if node is not None:
            node.set_full(is_full=True)

    def make_room(self) -> None:
        """All disks have room."""
        for node in self.cluster.nodes.values():
            node.set_full(is_full=False)

    def snapshot(self) -> None:
        """One writes a snapshot."""
        node = self._any(is_up=True)
        if node is not None and not node.is_stalled:
            node.take_snapshot()

    def prune(self) -> None:
        """One drops its old records."""
        node = self._any(is_up=True)
        if node is not None:
            node.prune()

    def resign(self) -> None:
        """The leader's controller has had enough."""
        leader = self.cluster.leader()
        if leader is not None:
            leader.driver.resign(leader.driver.core.epoch)

    def shut_down(self) -> None:
        """One is stopped properly."""
        node = self._any(is_up=True)
        if node is not None:
            node.is_stopping = True
            node.driver.shut_down(2_000)

    def add_observer(self) -> None:
        """A new node appears and follows."""
        if len(self.cluster.nodes) < len(self.founders) + 2:
            node_id = max(self.cluster.nodes) + 1
            is_controller = self.is_dynamic
            self.cluster.add(node_id, self.config, is_controller=is_controller).start()

    def add_voter(self) -> None:
        """An administrator wants one more voter."""
        leader = self.cluster.leader()
        if leader is None:
            return
        voters = leader.driver.core.voters
        candidates = [n for n in self.cluster.nodes.values() if not voters.is_voter(n.key)]
        if candidates:
            key = self.cluster.random.choice(candidates).key
            where = endpoint_of(key.id)
            request = AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                timeout_ms=2_000,
                voter_id=key.id,
                voter_directory_id=key.directory_id,
                listeners=[Listener(name=LISTENER, host=where.host, port=where.port)],
                ack_when_committed=self.cluster.random.random() < 0.5,
            )
            self.cluster.ask_leader(request)

    def remove_voter(self) -> None:
        """An administrator wants one voter fewer."""
        leader = self.cluster.leader()
        if leader is not None and len(leader.driver.core.voters):
            voter = self.cluster.random.choice(list(leader.driver.core.voters))
            request = RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                voter_id=voter.id,
                voter_directory_id=voter.key.directory_id,
            )
            self.cluster.ask_leader(request)

    def upgrade(self) -> None:
        """An administrator wants the voters in the log."""
        leader = self.cluster.leader()
        if leader is not None:
            try:
                leader.driver.upgrade_kraft_version(leader.driver.core.epoch, 1)
            except ApiError:
                return


def run_seed(seed: int, *, fills_disks: bool = False) -> Chaos:
    """Run one seed; AssertionError if an invariant breaks or the cluster does not recover."""
    chaos = Chaos(seed, fills_disks=fills_disks)
    chaos.run()
    return chaos
