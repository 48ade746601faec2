"""Members come, go, crash and are cut off; the coordinator moves; topics grow. All from one seed.

After every event no partition is with two members, and when everything has calmed down, each is
with one. The members are those of our consumers, the coordinator is that of our broker.
"""

from __future__ import annotations

import heapq
import itertools
from random import Random
from typing import TYPE_CHECKING

from millstream.client.consumer.config import ConsumerConfig
from millstream.client.consumer.membership.classic import ClassicMember
from millstream.client.consumer.membership.consumer_protocol import ConsumerMember
from millstream.client.consumer.membership.group_view import GroupView
from millstream.client.consumer.membership.handover import Handover
from millstream.client.consumer.membership.subscription import Subscription
from millstream.client.snapshot import Broker, MetadataSnapshot, Partition, Topic
from millstream.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.simulation.membership.link import SimLink, caller_of
from tests.unit.client.consumer.membership.group_world import FakeMetadata
from tests.unit.coordinator.group.world import World as CoordinatorWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from millstream.client.consumer.membership.events import RebalanceEvent
    from millstream.client.groups import ConsumerGroupMetadata
    from millstream.errors import MillstreamError
    from millstream.protocol.message import Message

GROUP = "readers"
TOPICS = ("orders", "payments")
STORM_MS = 240_000
CALM_MS = 180_000
"""Longer than sessions of members that crashed, and the rebalances after them."""
LISTENER_MAX_MS = 2_000
MEMBERS_MAX = 6
DEAF_MAX_MS = 20_000
KINDS = ("range", "roundrobin", "sticky", "cooperative-sticky", "consumer")


class SimMember:
    """A consumer's membership and its user."""

    def __init__(self, world: SimWorld, name: str, kind: str) -> None:
        self._world = world
        self.name = name
        self.is_alive = True
        self.errors: list[MillstreamError] = []
        self.link = SimLink(world)
        self._handover = Handover(self)
        self.metadata = FakeMetadata()
        self.metadata.snapshot = world.snapshot()
        view = GroupView(self.metadata, exclude_internal_topics=True)  # type: ignore[arg-type]  # a stand-in
        is_classic = kind != "consumer"
        settings = ConsumerConfig(
            bootstrap_servers=("broker:9092",),
            group_id=GROUP,
            partition_assignment_strategy=[kind if is_classic else "range"],
        )
        machine = ClassicMember if is_classic else ConsumerMember
        self.machine: ClassicMember | ConsumerMember = machine(
            settings, self.link, self._handover, view, self, world.random
        )
        self.machine.subscribe(Subscription(topics=frozenset(TOPICS)), world.now_ms)

    # The consumer's core: its user takes some time with each listener.

    def on_rebalance(self, event: RebalanceEvent) -> None:
        self._world.note(f"{self.name} {event}")
        wait_ms = self._world.random.choice((0, 0, self._world.random.randint(0, LISTENER_MAX_MS)))
        self._world.after(wait_ms, lambda: self._acknowledge(event))

    def _acknowledge(self, event: RebalanceEvent) -> None:
        if self.is_deaf:
            self._world.after(1_000, lambda: self._acknowledge(event))
        elif self.is_alive:
            self._handover.acknowledge(event, self._world.now_ms)

    @property
    def is_deaf(self) -> bool:
        """Whether its process cannot run now."""
        return self._world.now_ms < self.link.deaf_until_ms

    def on_group_error(self, error: MillstreamError) -> None:
        self.errors.append(error)

    # A `MemberHost`.

    def heartbeats_until_ms(self, now_ms: int) -> int:
        return now_ms + 300_000

    def identity_changed(self, identity: ConsumerGroupMetadata) -> None:
        pass

    def failed(self, error: MillstreamError) -> None:
        self.errors.append(error)

    # Its end.

    def leave(self) -> None:
        """Close the consumer."""
        self.machine.leave(self._world.now_ms, self._gone, keeps_slot=True)

    def _gone(self) -> None:
        self.is_alive = False

    def crash(self) -> None:
        """Vanish."""
        self.is_alive = False
        self.link.hang_up(1 << 40)


class SimWorld:
    """One run of one seed; a `Play`."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loss = self.random.choice((0.0, 0.01, 0.05, 0.15))
        self._coordinator = CoordinatorWorld(seed=seed)
        self._kind = self.random.choice(KINDS)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._members: list[SimMember] = []
        self._leaving: set[str] = set()
        self._trace: list[str] | None = None

    # Time.

    @property
    def now_ms(self) -> int:
        return self._coordinator.clock.monotonic_ms()

    def after(self, ms: int, action: Callable[[], None]) -> None:
        """Have something happen later."""
        due_ms = self.now_ms + max(0, ms)
        heapq.heappush(self._events, (due_ms, next(self._numbers), action))

    def coordinate(self, message: Message, done: Callable[[Any], None]) -> None:
        """Ask the coordinator; it answers now or later."""
        groups = self._coordinator.groups
        calls: dict[type[Message], Callable[..., None]] = {
            JoinGroupRequest: groups.join_group,
            SyncGroupRequest: groups.sync_group,
            HeartbeatRequest: groups.heartbeat,
            LeaveGroupRequest: groups.leave_group,
            ConsumerGroupHeartbeatRequest: groups.consumer_group_heartbeat,
        }
        calls[type(message)](message, caller_of(message), done)
        self._coordinator.end_turn()

    def run(self) -> None:
        """A storm, then calm; raises if a promise was broken."""
        self._act()
        self._run_until(STORM_MS)
        self.loss = 0.0
        self._run_until(STORM_MS + CALM_MS)
        self._check_all_is_read()

    def _run_until(self, end_ms: int) -> None:
        while True:
            due_ms = self._poll_members()
            times = [due_ms, self._coordinator_due_ms()]
            if self._events:
                times.append(self._events[0][0])
            next_ms = min((each for each in times if each is not None), default=end_ms + 1)
            if next_ms > end_ms:
                self._coordinator.clock.advance(max(0, end_ms - self.now_ms))
                return
            self._coordinator.clock.advance(max(0, next_ms - self.now_ms))
            self._coordinator.runtime.tick()
            self._coordinator.end_turn()
            while self._events and self._events[0][0] <= self.now_ms:
                heapq.heappop(self._events)[2]()
                self._check_nobody_shares()

    def _coordinator_due_ms(self) -> int | None:
        due_ms = self._coordinator.runtime.next_deadline_ms()
        # What was due has had its turn; if there is more, it is a moment later.
        return None if due_ms is None else max(due_ms, self.now_ms + 1)

    def _poll_members(self) -> int | None:
        times = [
            each.machine.poll(self.now_ms)
            for each in self._members
            if each.is_alive and not each.is_deaf
        ]
        # A machine that is due at once waits for an event of its link, which comes.
        return min((max(each, self.now_ms + 1) for each in times if each is not None), default=None)

    # What happens.

    def _act(self) -> None:
        """One thing, and another one later."""
        if self.now_ms < STORM_MS:
            self.random.choice(
                (
                    self._join,
                    self._join,
                    self._leave,
                    self._crash,
                    self._cut,
                    self._move,
                    self._stop,
                    self._grow,
                )
            )()
            self.after(self.random.randint(50, 30_000), self._act)

    def _staying(self) -> list[SimMember]:
        return [each for each in self._members if each.is_alive and each.name not in self._leaving]

    def _join(self) -> None:
        if len(self._staying()) < MEMBERS_MAX:
            name = f"m{len(self._members)}"
            self.note(f"{name} joins")
            self._members.append(SimMember(self, name, self._kind))

    def _leave(self) -> None:
        if len(self._staying()) > 1:
            member = self.random.choice(self._staying())
            self.note(f"{member.name} leaves")
            self._leaving.add(member.name)
            member.leave()

    def _crash(self) -> None:
        if len(self._staying()) > 1:
            member = self.random.choice(self._staying())
            self.note(f"{member.name} crashes")
            member.crash()

    def _cut(self) -> None:
        for member in self._staying():
            if self.random.random() < 0.5:
                member.link.hang_up(self.random.randint(0, 4_000))

    def _stop(self) -> None:
        """A process does something else for a while; only its periodic requests go on."""
        for member in self._staying():
            if self.random.random() < 0.3:
                deaf_ms = self.random.randint(1_000, DEAF_MAX_MS)
                self.note(f"{member.name} is deaf for {deaf_ms} ms")
                member.link.deaf_until_ms = self.now_ms + deaf_ms
                self.after(deaf_ms, lambda: None)

    def _move(self) -> None:
        self.note("the coordinator moves")
        for member in self._members:
            if member.is_alive:
                member.link.hang_up(self.random.randint(0, 500))
        self._coordinator.restart()

    def _grow(self) -> None:
        topic = self.random.choice(TOPICS)
        counts = dict(self._coordinator.topics.counts)
        if counts[topic] < 8:
            counts[topic] += 1
            self._coordinator.topics.counts = counts
        for member in self._members:
            member.metadata.updates += 1
            member.metadata.snapshot = self.snapshot()

    def snapshot(self) -> MetadataSnapshot:
        """The cluster as clients see it."""
        topics = self._coordinator.topics
        found = {}
        for name in TOPICS:
            topic_id = topics.topic_id(name)
            assert topic_id is not None
            partitions = tuple(Partition(each, 0, 0) for each in range(topics.counts[name]))
            found[name] = Topic(name, topic_id, partitions)
        return MetadataSnapshot("c", 0, {0: Broker(0, "h", 1)}, found)

    # Promises.

    def _check_nobody_shares(self) -> None:
        owners: dict[object, str] = {}
        for member in self._members:
            if not member.is_alive:
                continue
            assert member.errors == [], (member.name, member.errors)
            for each in member.machine.owned:
                assert each not in owners, f"{each} is with {owners[each]} and {member.name}"
                owners[each] = member.name

    def _check_all_is_read(self) -> None:
        counts = self._coordinator.topics.counts
        owned = [each for member in self._staying() for each in member.machine.owned]
        wanted = sum(counts[name] for name in TOPICS)
        assert not self._staying() or len(owned) == wanted, f"{len(owned)} of {wanted} are read"

    # For whoever looks for a fault.

    def begin_trace(self) -> None:
        self._trace = []

    def note(self, what: str) -> None:
        if self._trace is not None:
            self._trace.append(f"{self.now_ms:>7} {what}")

    @property
    def trace(self) -> Sequence[str]:
        return self._trace or []


def run_seed(seed: int) -> None:
    """Raises if a promise was broken."""
    SimWorld(seed).run()
