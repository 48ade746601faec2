"""A cluster of whole nodes under a seed's faults, and peace in the end.

The seed decides how the cluster is made, what its operator asks for and what goes wrong: processes
are killed and paused, machines lose power, ways are cut and slow, disks full and slow, clocks jump.
"""

from __future__ import annotations

import logging
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Final

from millstream.errors import ApiError, KafkaStorageError, QuorumFault
from millstream.metadata.snapshots import SnapshotEmitter
from millstream.testing.simulation import SimCluster
from millstream.testing.simulation.cluster import host_of
from tests.simulation.cluster.history import History
from tests.simulation.cluster.workload import Workload
from tests.simulation.cluster.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.metadata.image import MetadataImage
    from millstream.testing.simulation import SimMachine

CHAOS_MS: Final = 25_000
PEACE_MAX_MS: Final = 180_000
CALM_MS: Final = 6_000
SETTLE_MS: Final = 4_000
SESSION_MS: Final = 3000


class Chaos:
    """One run of one seed. `run` raises if a promise was broken."""

    def __init__(self, seed: int, chaos_ms: int = CHAOS_MS, *, writes: bool = False) -> None:
        self.seed = seed
        self._chaos_ms = chaos_ms
        self._random = Random(f"{seed} chaos")
        self.cluster = self._make_cluster()
        self.world = self.cluster.world
        self.history = History(self.world)
        self.workload = Workload(self.cluster, self.history, self._random)
        self.writer: Writer | None = None
        if writes:
            self.writer = Writer(self.cluster, self.history, Random(f"{seed} writer"))
        self._is_over = False
        self._restarting: set[int] = set()
        for node_id, machine in self.cluster.machines.items():
            machine.on_turn = self._checker(node_id)
        self._faults: list[tuple[int, Callable[[], None]]] = [
            (4, self._kill),
            (3, self._lose_power),
            (2, self._lose_all_power),
            (3, self._restart),
            (4, self._pause),
            (5, self._cut),
            (3, self._isolate),
            (3, self._slow_way),
            (4, self._reset),
            (2, self._fill_disk),
            (3, self._slow_disk),
            (2, self._slow_node),
            (2, self._jump_clock),
        ]

    def _make_cluster(self) -> SimCluster:
        random = self._random
        is_apart = random.random() < 0.3
        settings = {
            "controller.quorum.election.timeout.ms": random.choice([200, 400, 1000]),
            "controller.quorum.election.backoff.max.ms": random.choice([100, 500]),
            "controller.quorum.fetch.timeout.ms": random.choice([600, 1500]),
            "controller.quorum.request.timeout.ms": random.choice([500, 2000]),
            "controller.quorum.append.linger.ms": random.choice([0, 5, 25]),
            "controller.quorum.auto.join.enable": random.random() < 0.3,
            "controller.quorum.fetch.snapshot.max.bytes": random.choice([500, 1 << 20]),
            "metadata.log.max.record.bytes.between.snapshots": random.choice([1500, 5000, 1 << 24]),
            "broker.heartbeat.interval.ms": 500,
            "broker.session.timeout.ms": SESSION_MS,
            "millstream.shutdown.drain.timeout.ms": 1000,
            "min.insync.replicas": 2,
        }
        joiners = 1 if random.random() < 0.3 else 0
        if is_apart:
            return SimCluster(self.seed, nodes=2, controllers=3, joiners=joiners, settings=settings)
        return SimCluster(self.seed, nodes=3, joiners=joiners, settings=settings)

    def _checker(self, node_id: int) -> Callable[[SimMachine], None]:
        def check(machine: SimMachine) -> None:
            try:
                self.history.check(node_id, machine.node)
            except AssertionError as error:
                self.world.fail(machine.host, error, "a promise is broken")

        return check

    # What the runner asks for.

    def begin_trace(self) -> None:
        """The notes are always kept."""

    @property
    def trace(self) -> Sequence[str]:
        """What happened."""
        return self.world.notes

    def run(self) -> None:
        """Play it."""
        logger, watcher = logging.getLogger("millstream"), _Watcher(self)
        level, logger.propagate = logger.level, False
        logger.setLevel(logging.ERROR)
        logger.addHandler(watcher)
        try:
            self._play()
        finally:
            self.world.close()
            logger.removeHandler(watcher)
            logger.setLevel(level)
            logger.propagate = True

    def _play(self) -> None:
        for machine in self.cluster.machines.values():
            machine.start()
        self._later(500, 3000, self._do_work)
        self._later(1000, 4000, self._do_harm)
        if self.writer is not None:
            self._later(500, 500, self._write)
        self._later(500, 500, self._look_after)
        self.cluster.run_for(self._chaos_ms)
        self._is_over = True
        self._make_peace()
        self.cluster.run_for(SETTLE_MS)  # What was held up has its consequences first.
        self.cluster.run_until(self._is_agreed, PEACE_MAX_MS, "all is well")
        self._check_calm()
        self._check_end()
        if self.seed % 4 == 0:
            self._check_fencing()

    def _later(self, low_ms: int, high_ms: int, act: Callable[[], None]) -> None:
        delay_ms = self._random.randint(low_ms, high_ms)
        self.world.schedule.after(delay_ms * 1000, act)

    def _do_work(self) -> None:
        if not self._is_over:
            self.workload.step()
            self._later(20, 800, self._do_work)

    def _write(self) -> None:
        if not self._is_over and self.writer is not None:
            self.writer.step()
            self._later(20, 300, self._write)

    def _do_harm(self) -> None:
        if not self._is_over:
            weights = [weight for weight, _ in self._faults]
            fault = self._random.choices(self._faults, weights)[0][1]
            fault()
            self._later(200, 4000, self._do_harm)

    def _look_after(self) -> None:
        """Start what ended by itself, as a supervisor does."""
        for node_id, machine in self.cluster.machines.items():
            if not machine.is_running and node_id not in self._restarting:
                if machine.failure is not None:
                    self._judge(node_id, machine.failure)
                self._start_later(node_id, 100, 1000)
        self._later(500, 500, self._look_after)

    def _judge(self, node_id: int, failure: BaseException) -> None:
        """A node may end over its disk, or because the cluster does not take it."""
        is_fair = isinstance(failure, OSError | KafkaStorageError | ApiError)
        if isinstance(failure, QuorumFault) or not is_fair:
            self.world.fail(host_of(node_id), failure, "the node ended by itself")

    # Faults.

    def _any_machine(self) -> tuple[int, SimMachine]:
        return self._random.choice(list(self.cluster.machines.items()))

    def _any_way(self) -> tuple[str, str]:
        hosts = [each.host for each in self.cluster.machines.values()]
        if self._random.random() < 0.15:
            hosts.append("operator")
        source, target = self._random.sample(hosts, 2)
        return source, target

    def _start_later(self, node_id: int, low_ms: int = 10, high_ms: int = 6000) -> None:
        machine = self.cluster.machines[node_id]

        def start() -> None:
            self._restarting.discard(node_id)
            if not machine.is_running:
                self.world.note(f"{machine.host} starts")
                machine.start()

        self._restarting.add(node_id)
        self._later(low_ms, high_ms, start)

    def _kill(self) -> None:
        node_id, machine = self._any_machine()
        self.world.note(f"fault: {machine.host} is killed")
        self._note_fall(node_id, machine)
        machine.kill()
        self._start_later(node_id)

    def _lose_power(self) -> None:
        node_id, machine = self._any_machine()
        self._cut_power(node_id, machine)

    def _lose_all_power(self) -> None:
        for node_id, machine in self.cluster.machines.items():
            self._cut_power(node_id, machine)

    def _cut_power(self, node_id: int, machine: SimMachine) -> None:
        self.world.note(f"fault: {machine.host} loses power")
        self._note_fall(node_id, machine)
        machine.lose_power()
        self._start_later(node_id)

    def _note_fall(self, node_id: int, machine: SimMachine) -> None:
        """A process that stops in order may have closed its logs already: that is no fall."""
        if machine.is_serving:
            self.history.process_killed(node_id, machine.node)

    def _restart(self) -> None:
        _, machine = self._any_machine()
        if machine.is_serving:
            self.world.note(f"fault: {machine.host} stops in order")
            machine.stop()

    def _pause(self) -> None:
        _, machine = self._any_machine()
        self.world.note(f"fault: {machine.host} stands still")
        machine.pause()
        self._later(50, 8000, machine.resume)

    def _cut(self) -> None:
        source, target = self._any_way()
        ways = [(source, target)]
        if self._random.random() < 0.5:
            ways.append((target, source))
        self._cut_ways(ways)

    def _isolate(self) -> None:
        _, machine = self._any_machine()
        others = [each.host for each in self.cluster.machines.values() if each is not machine]
        self._cut_ways(
            [way for each in others for way in ((each, machine.host), (machine.host, each))]
        )

    def _cut_ways(self, ways: Sequence[tuple[str, str]]) -> None:
        network = self.world.network
        self.world.note(f"fault: nothing comes through: {ways}")
        for way in ways:
            network.cut(*way)

        def mend() -> None:
            for way in ways:
                network.mend(*way)

        self._later(100, 8000, mend)

    def _slow_way(self) -> None:
        source, target = self._any_way()
        delay_us = self._random.randint(5_000, 700_000)
        self.world.note(f"fault: {source} to {target} takes {delay_us} us more")
        self.world.network.slow_down(source, target, delay_us)
        self._later(500, 8000, lambda: self.world.network.mend(source, target))

    def _reset(self) -> None:
        connections = self.world.network.connections()
        if connections:
            chosen = self._random.choice(connections)
            self.world.note(f"fault: {chosen.local} to {chosen.remote} is reset")
            self.world.network.reset(chosen)

    def _fill_disk(self) -> None:
        _, machine = self._any_machine()
        self.world.note(f"fault: the disk of {machine.host} is full")
        machine.disk.capacity_bytes = self._random.choice([0, machine.disk.used_bytes + 300])
        self._later(100, 5000, lambda: setattr(machine.disk, "capacity_bytes", None))

    def _slow_disk(self) -> None:
        _, machine = self._any_machine()
        machine.disk_delay_us = self._random.randint(10_000, 1_500_000)
        self.world.note(f"fault: the disk of {machine.host} is slow")
        self._later(500, 8000, lambda: setattr(machine, "disk_delay_us", 0))

    def _slow_node(self) -> None:
        _, machine = self._any_machine()
        loop = machine.loop
        if loop is not None:
            loop.cost_us = self._random.randint(500, 30_000)
            self.world.note(f"fault: {machine.host} is slow")
            self._later(500, 8000, lambda: setattr(loop, "cost_us", 0))

    def _jump_clock(self) -> None:
        _, machine = self._any_machine()
        jump_ms = self._random.choice([-86_400_000, -3000, 3000, 86_400_000])
        self.world.note(f"fault: the clock of {machine.host} jumps by {jump_ms} ms")
        machine.clock.jump_wall(jump_ms)

    # The end.

    def _make_peace(self) -> None:
        self.world.note("peace")
        self.world.network.mend_all()
        for machine in self.cluster.machines.values():
            machine.disk.capacity_bytes = None
            machine.disk_delay_us = 0
            machine.resume()
            if machine.loop is not None:
                machine.loop.cost_us = 0

    def _images(self) -> list[MetadataImage]:
        return [
            machine.node.shared.loader.image
            for machine in self.cluster.machines.values()
            if machine.node is not None and machine.node.shared is not None
        ]

    def _is_agreed(self) -> bool:
        if len(self.cluster.serving) < len(self.cluster.machines):
            return False
        images = self._images()
        offsets = {each.provenance.last_offset for each in images}
        brokers = images[0].cluster.brokers
        return (
            self.cluster.controller_id() is not None
            and len(offsets) == 1
            and len(brokers) == len(self.cluster.broker_ids)
            and not any(each.is_fenced for each in brokers.values())
            and self._is_settled()
        )

    def _is_settled(self) -> bool:
        """Whether every node follows the same leader."""
        leaders = {
            machine.node.shared.driver.core.leader_id
            for machine in self.cluster.machines.values()
            if machine.node is not None and machine.node.shared is not None
        }
        return len(leaders) == 1

    def _check_calm(self) -> None:
        """In peace nobody is elected, fenced or registered anew."""
        epochs, departures = dict(self.history.leaders), self.history.departures
        self.cluster.run_for(CALM_MS)
        assert self.history.leaders == epochs, "an election without a reason"
        assert self.history.departures == departures, "a broker was fenced without a reason"

    def _check_end(self) -> None:
        self.cluster.run_until(self._is_agreed, 30_000, "all nodes know the same")
        contents = set()
        for node_id, image in zip(self.cluster.machines, self._images(), strict=True):
            self.workload.check(image, f"node {node_id} at the end")
            contents.add(sha256(b"".join(SnapshotEmitter().emit(image))).digest())
        assert len(contents) == 1, "the nodes end with different metadata"
        if self.writer is not None:
            self.cluster.run_until(self.writer.is_whole, 60_000, "every replica is in sync")
            self.cluster.run_for(SETTLE_MS)
            self.writer.check()

    def _check_fencing(self) -> None:
        """A broker that is gone is fenced, not before its session ends and soon after."""
        leader_id = self.cluster.controller_id()
        assert leader_id is not None
        leading = self.cluster.node(leader_id).shared
        assert leading is not None
        voters = leading.driver.core.voters
        may_go = [
            broker_id
            for broker_id in self.cluster.broker_ids
            if len(voters) - (voters.get(broker_id) is not None) >= voters.majority
        ]
        if not may_go:
            return  # Two voters are left, and a majority of them is both.
        broker_id = self._random.choice(may_go)
        machine = self.cluster.machines[broker_id]
        self._restarting.add(broker_id)
        self.world.note(f"{machine.host} is killed in peace")
        self._note_fall(broker_id, machine)
        machine.kill()
        self.cluster.run_until(
            lambda: self.history.newest.cluster.brokers[broker_id].is_fenced,
            SESSION_MS * 2 + 12_000,
            f"broker {broker_id} is fenced",
        )
        machine.start()
        self.cluster.run_until(self._is_agreed, PEACE_MAX_MS, "the broker is back")


class _Watcher(logging.Handler):
    """Takes errors that nodes log for failures, unless a disk is to blame."""

    def __init__(self, chaos: Chaos) -> None:
        super().__init__(logging.ERROR)
        self._chaos = chaos

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        text = record.getMessage()
        self._chaos.world.note(f"log: {text}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError | KafkaStorageError):
            self._chaos.world.fail("log", error, text)
