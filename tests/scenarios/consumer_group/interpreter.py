"""What the commands of the stories of consumer groups mean.

| command | meaning |
|---|---|
| `member A [instance=I] [topics=t,u] [regex=R] [assignor=range]` | of the consumer protocol |
| `classic A [cooperative]` | a client of the classic protocol, which looks after itself |
| `join A ...`, `beat A ...` | they send a heartbeat: to enter, or to live and follow |
| `step A ...` | classic members do whatever is next for them: join, sync, heartbeat |
| `leave A ...`, `away A` | they go for good; a static member goes for a while |
| `stubborn A`, `sensible A` | it lets go of nothing; it does again |
| `lost A` | the last answer never reached A: it is where it was before |
| `settle A ...` | they do what clients do until nothing changes any more |
| `commit A t/0=5 ...`, `fetch` | OffsetCommit of a member; all offsets of the group |
| `topic t 5`, `policy upgrade` | a topic has so many partitions; the migration policy |
| `run 10s` | let time pass, in which only those listed by `alive` are heard of |
| `alive A ...` | they send heartbeats every second |
| `takeover` | another broker coordinates, from what is in the log |
| `group` | output: the group |

What members are answered is output: their epoch and what they have, or the error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.group.classic.group import ClassicGroup
from millstream.coordinator.group.consumer.config import ConsumerGroupConfig
from millstream.coordinator.group.consumer.group import ConsumerGroup
from millstream.errors import ApiError
from tests.scenarios.classic_group.interpreter import offset_in, said, to_ms
from tests.unit.coordinator.group.consumer.members import Consumer
from tests.unit.coordinator.group.consumer.movers import CooperativeMover, Mover
from tests.unit.coordinator.group.world import GROUP, World

if TYPE_CHECKING:
    from collections.abc import Callable

_BEAT_MS = 1_000


class ConsumerGroupInterpreter:
    """One group, its members, and the commands that act on them."""

    def __init__(self) -> None:
        self.world = World()
        self.members: dict[str, Consumer | Mover] = {}
        self._before: dict[str, tuple[int, set[tuple[str, int]]]] = {}
        self._alive: list[str] = []

    def __call__(self, command: str) -> list[str]:
        name, *arguments = command.split()
        act: Callable[..., list[str] | None] = getattr(self, f"do_{name}")
        return act(*arguments) or []

    # Members.

    def do_member(self, name: str, *options: str) -> None:
        """A client of the consumer protocol that has not joined yet."""
        given = dict(each.split("=") for each in options)
        fields: dict[str, object] = {}
        if "instance" in given:
            fields["instance_id"] = given["instance"]
        if "assignor" in given:
            fields["server_assignor"] = given["assignor"]
        if "regex" in given:
            fields |= {"subscribed_topic_regex": given["regex"], "subscribed_topic_names": None}
        topics = given.get("topics", "orders").split(",")
        self.members[name] = Consumer(self.world, name, *topics, **fields)

    def do_classic(self, name: str, kind: str = "eager") -> None:
        """A client of the classic protocol."""
        made = CooperativeMover if kind == "cooperative" else Mover
        self.members[name] = made(self.world, name)

    def do_join(self, *names: str) -> list[str]:
        """They enter."""
        lines = []
        for name in names:
            member = self._consumer(name)
            member.epoch, member.owned = 0, set()
            lines.append(self._told(name, member.try_join()))
        return lines

    def do_beat(self, *names: str) -> list[str]:
        """They live, and follow."""
        lines = []
        for name in names:
            member = self._consumer(name)
            self._before[name] = (member.epoch, set(member.owned))
            lines.append(self._told(name, member.beat()))
        return lines

    def do_step(self, *names: str) -> list[str]:
        """Classic members do the next thing."""
        lines = []
        for name in names:
            member = self.members[name]
            assert isinstance(member, Mover)
            refused = len(member.errors)
            member.step()
            lines += [f"{name}: {each}" for each in member.errors[refused:]]
        return lines

    def do_lost(self, name: str) -> None:
        """Its last answer is lost."""
        member = self._consumer(name)
        member.epoch, member.owned = self._before[name]

    def do_leave(self, *names: str) -> list[str]:
        """They go."""
        lines = []
        for name in names:
            member = self.members[name]
            answer = member.leave()
            member.owned = set()
            lines.append(f"{name}: {said(answer[0] if isinstance(answer, list) else answer)}")
        return lines

    def do_away(self, name: str) -> list[str]:
        """It goes, and will be back."""
        return [f"{name}: {said(self._consumer(name).leave(-2))}"]

    def do_stubborn(self, name: str) -> None:
        """It keeps what it has."""
        self._consumer(name).obeys = False

    def do_sensible(self, name: str) -> None:
        """It does not any more."""
        self._consumer(name).obeys = True

    def do_settle(self, *names: str) -> list[str]:
        """Everybody goes on until nothing changes; no partition is ever with two."""
        quiet = 0
        while quiet < 8:
            before = [set(self.members[name].owned) for name in names]
            for name in names:
                self._look_after(name)
                owned = [each for other in names for each in self.members[other].owned]
                assert len(owned) == len(set(owned)), owned
            self.world.pass_ms(_BEAT_MS)
            quiet = quiet + 1 if before == [self.members[name].owned for name in names] else 0
        return [f"{name}: has {_places(self.members[name].owned)}" for name in names]

    def do_alive(self, *names: str) -> None:
        """They look after themselves from now on."""
        self._alive = list(names)

    def _look_after(self, name: str) -> None:
        member = self.members[name]
        if isinstance(member, Mover):
            member.step()
        else:
            answer = member.beat()
            assert not isinstance(answer, ApiError), repr(answer)

    def _consumer(self, name: str) -> Consumer:
        member = self.members[name]
        assert isinstance(member, Consumer), f"{name} is of the classic protocol"
        return member

    def _told(self, name: str, answer: object) -> str:
        if isinstance(answer, ApiError):
            return f"{name}: {answer.wire_name}"
        member = self._consumer(name)
        return f"{name}: epoch {member.epoch} has {_places(member.owned)}"

    # Offsets.

    def do_commit(self, name: str, *offsets: str) -> list[str]:
        """Commit offsets."""
        member = self.members[name]
        wanted = dict(offset_in(each) for each in offsets)
        is_classic = isinstance(member, Mover)
        answers = self.world.commit(
            wanted,
            member=member.member_id if isinstance(member, Mover) else member.name,
            generation=member.generation if isinstance(member, Mover) else member.epoch,
            version=8 if is_classic else 9,
        )
        return [f"{name}: {said(each)}" for each in answers]

    def do_fetch(self) -> list[str]:
        """All offsets of the group."""
        found = self.world.fetch()
        return [
            f"{topic}/{index}={each.committed_offset}"
            for (topic, index), each in sorted(found.items())
        ] or ["nothing"]

    # The world.

    def do_topic(self, name: str, count: str) -> None:
        """Topics change."""
        counts = {**self.world.topics.counts, name: int(count)}
        self.world.topics.counts = {each: number for each, number in counts.items() if number}

    def do_policy(self, policy: str) -> None:
        """The migration policy, which a coordinator learns when it starts."""
        self.world.consumer_config = ConsumerGroupConfig(migration_policy=policy)
        self.world.restart()

    def do_run(self, duration: str) -> None:
        """Let time pass."""
        left_ms = to_ms(duration)
        while left_ms > 0:
            self.world.pass_ms(min(left_ms, _BEAT_MS))
            left_ms -= _BEAT_MS
            for name in self._alive:
                self._look_after(name)

    def do_takeover(self) -> None:
        """Another broker loads the log."""
        self.world.restart()

    def do_group(self) -> list[str]:
        """The group and its members."""
        group = self.world.shard.groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            lines = [f"classic {group.state_name} generation={group.generation}"]
            return lines + [f"  {self._short(each)}" for each in group.members]
        if not isinstance(group, ConsumerGroup):
            return ["no group"]
        lines = [
            f"consumer {group.state_name} epoch={group.epoch} assignment={group.assignment_epoch}"
        ]
        for member_id, member in group.members.items():
            kind = "" if member.subscription.classic is None else " classic"
            pending = sum(len(each) for each in member.progress.pending_revocation.values())
            owes = f" owes {pending}" if pending else ""
            lines.append(f"  {self._short(member_id)}{kind} epoch={member.epoch}{owes}")
        return lines

    def _short(self, member_id: str) -> str:
        for name, member in self.members.items():
            if member_id == (member.member_id if isinstance(member, Mover) else member.name):
                return name
        return "someone else"


def _places(owned: set[tuple[str, int]]) -> str:
    return " ".join(f"{topic}/{index}" for topic, index in sorted(owned)) or "nothing"
