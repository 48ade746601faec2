"""What the commands of the stories of classic groups mean.

| command | meaning |
|---|---|
| `member A [instance=I] [topics=t,u] [protocols=p,q] [session=10s] [rebalance=60s]` | a client |
| `zombie Z A` | a process that was A, and still believes so |
| `join A ...` | they send JoinGroup, again with the id that they get, or without one they lost |
| `return A` | a static member sends JoinGroup without its id, as after a restart |
| `ask A` | A sends JoinGroup once |
| `sync A ...` | they send SyncGroup; the leader assigns each member its name |
| `beat A ...`, `leave A ...`, `remove I` | Heartbeat, LeaveGroup, and that of an operator |
| `commit A t/0=5 ...`, `commit - t/0=5` | OffsetCommit, of a member or of nobody |
| `txn P t/0=5 ...`, `end P commit`, `end P abort` | a producer's offsets; its transaction ends |
| `fetch [stable]` | all offsets of the group |
| `delete`, `forget t/0` | DeleteGroups; OffsetDelete |
| `run 10s`, `run 300ms`, `run 8d` | let time pass, in which only those listed by `alive` beat |
| `alive A ...` | they send heartbeats every second, and join and sync when they are told to |
| `hold`, `release`, `fail`, `recover` | writes are held back; committed; fail; work again |
| `takeover` | another broker coordinates, from what is in the log |
| `group` | output: the group |

What members are answered is output, in the order in which it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.coordinator.group.classic.group import ClassicGroup
from millstream.errors import (
    ApiError,
    NotEnoughReplicas,
    RequestTimedOut,
    UnknownMemberId,
    class_for_code,
)
from tests.unit.coordinator.group.members import Member, leave
from tests.unit.coordinator.group.world import GROUP, World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.protocol.messages import JoinGroupResponse, SyncGroupResponse

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BEAT_MS = 1_000


class GroupInterpreter:
    """One group, its members, and the commands that act on them."""

    def __init__(self) -> None:
        self.world = World()
        self.members: dict[str, Member] = {}
        self._alive: list[str] = []
        self._told: dict[tuple[str, str], object] = {}

    def __call__(self, command: str) -> list[str]:
        name, *arguments = command.split()
        act: Callable[..., list[str] | None] = getattr(self, f"do_{name}")
        output = act(*arguments) or []
        return output + self._news()

    # Members.

    def do_member(self, name: str, *options: str) -> None:
        """A client that has not joined yet."""
        given = dict(each.split("=") for each in options)
        self.members[name] = Member(
            self.world,
            name,
            instance=given.get("instance"),
            topics=given.get("topics", "orders").split(","),
            protocols=given.get("protocols", "range").split(","),
            session_ms=to_ms(given.get("session", "10s")),
            rebalance_ms=to_ms(given.get("rebalance", "60s")),
        )

    def do_zombie(self, name: str, original: str) -> None:
        """Two processes with one identity."""
        member = self.members[original]
        self.do_member(name, *([f"instance={member.instance}"] if member.instance else []))
        self.members[name].member_id = member.member_id
        self.members[name].generation = member.generation

    def do_join(self, *names: str) -> list[str]:
        """They join."""
        lost = []
        for name in names:
            answers = self.members[name].join()
            if answers and said(answers[0]) == UnknownMemberId.wire_name:
                lost.append(f"{name}: {said(answers[0])}, joins as somebody new")
                self.members[name].member_id = ""
                self.members[name].join()
        return lost

    def do_ask(self, name: str) -> None:
        """It asks once."""
        self.members[name].ask_to_join()

    def do_return(self, name: str) -> None:
        """It has forgotten its id."""
        self.members[name].ask_to_join("")

    def do_sync(self, *names: str) -> None:
        """They want their assignment."""
        for name in names:
            self._sync(self.members[name])

    def do_beat(self, *names: str) -> list[str]:
        """They are alive."""
        return [f"{name}: {said(self.members[name].heartbeat()[0])}" for name in names]

    def do_leave(self, *names: str) -> list[str]:
        """They go."""
        return [f"{name}: {said(self.members[name].leave()[0])}" for name in names]

    def do_remove(self, instance: str) -> list[str]:
        """An operator removes a static member."""
        return [f"{instance}: {said(leave(self.world, ('', instance))[0])}"]

    def do_alive(self, *names: str) -> None:
        """They look after themselves from now on."""
        self._alive = list(names)

    # Offsets.

    def do_commit(self, name: str, *offsets: str) -> list[str]:
        """Commit offsets."""
        member = self.members.get(name)
        wanted = dict(offset_in(each) for each in offsets)
        if member is None:
            answers = self.world.commit(wanted)
        else:
            answers = self.world.commit(
                wanted,
                member=member.member_id,
                instance=member.instance,
                generation=member.generation,
            )
        return [f"{name}: {said(each)}" for each in answers]

    def do_txn(self, producer: str, *offsets: str) -> list[str]:
        """Commit offsets in a transaction."""
        wanted = dict(offset_in(each) for each in offsets)
        return [said(self.world.commit_txn(wanted, producer=int(producer))[0])]

    def do_end(self, producer: str, how: str) -> None:
        """A transaction ends."""
        self.world.end_txn(int(producer), is_committed=how == "commit")

    def do_fetch(self, how: str = "") -> list[str]:
        """All offsets of the group."""
        found = self.world.fetch(requires_stable=how == "stable")
        lines = []
        for (topic, index), each in sorted(found.items()):
            value = _name(each.error_code) if each.error_code else each.committed_offset
            lines.append(f"{topic}/{index}={value}")
        return lines or ["nothing"]

    def do_delete(self) -> list[str]:
        """Delete the group."""
        return [_name(self.world.delete_groups(GROUP).results[0].error_code)]

    def do_forget(self, place: str) -> list[str]:
        """Delete an offset."""
        topic, index = place.split("/")
        return [said(self.world.delete_offsets((topic, int(index)))[0])]

    # Time and faults.

    def do_run(self, duration: str) -> list[str]:
        """Let time pass."""
        left_ms = to_ms(duration)
        if not self._alive:
            self.world.pass_ms(left_ms)
        news = []
        while self._alive and left_ms > 0:
            self.world.pass_ms(min(left_ms, _BEAT_MS))
            left_ms -= _BEAT_MS
            for name in self._alive:
                self._look_after(self.members[name])
                news += self._news()
        return news

    def do_hold(self) -> None:
        """Writes are not committed."""
        self.world.store.holds_commits = True

    def do_release(self) -> None:
        """They are."""
        self.world.store.holds_commits = False
        self.world.store.commit()

    def do_fail(self) -> None:
        """They will not be, and no others."""
        self.world.store.commit(RequestTimedOut())
        self.world.store.failure = NotEnoughReplicas()

    def do_recover(self) -> None:
        """Writes work again, and those from before are safe after all."""
        store = self.world.store
        store.failure = None
        store.holds_commits = False
        store.committed[0] = store.bounds(0, 0).end_offset

    def do_takeover(self) -> None:
        """Another broker loads the log."""
        self.world.restart()

    # Output.

    def do_group(self) -> list[str]:
        """The group and its members."""
        group = self.world.shard.groups.get(GROUP)
        if group is None:
            return ["no group"]
        assert isinstance(group, ClassicGroup)
        lines = [f"{group.state_name} generation={group.generation} protocol={group.protocol}"]
        for member_id, member in group.members.items():
            marks = " leader" if group.is_leader(member_id) else ""
            lines.append(f"  {self._short(member_id)}{marks} has {member.assignment.decode()!r}")
        return lines

    def _news(self) -> list[str]:
        """What members were told since."""
        lines = []
        for name, member in self.members.items():
            for kind, answers in (("join", member.joins), ("sync", member.syncs)):
                if answers and self._told.get((name, kind)) is not answers:
                    self._told[(name, kind)] = answers
                    lines.append(f"{name}: {self._describe(answers)}")
        return lines

    def _describe(self, answers: Sequence[JoinGroupResponse | SyncGroupResponse | ApiError]) -> str:
        answer = answers[-1]
        if isinstance(answer, ApiError) or answer.error_code:
            return said(answer)
        if hasattr(answer, "assignment"):
            return f"synced {answer.assignment.decode()!r}"
        leader = self._short(answer.leader)
        text = f"joined generation {answer.generation_id} leader={leader}"
        if answer.members:
            names = sorted(self._short(each.member_id) for each in answer.members)
            text += f" members={','.join(names)}"
        return text + (" skips assignment" if answer.skip_assignment else "")

    def _short(self, member_id: str) -> str:
        known = (name for name, each in self.members.items() if each.member_id == member_id)
        return next(known, "someone else")

    def _sync(self, member: Member) -> None:
        names = {each.member_id: name.encode() for name, each in self.members.items()}
        joined = member.joins[-1] if member.joins else None
        is_leader = not isinstance(joined, ApiError) and joined is not None and joined.members
        member.sync(names if is_leader else None)

    def _look_after(self, member: Member) -> None:
        """What a client does by itself."""
        if member.joins and not member.syncs and not isinstance(member.joins[-1], ApiError):
            self._sync(member)
            return
        if not member.joins:
            return
        answer = member.heartbeat()[0]
        if said(answer) == "REBALANCE_IN_PROGRESS":
            member.syncs = []
            member.join()


def to_ms(text: str) -> int:
    """A duration as stories write it."""
    number = text.rstrip("mshd")
    return int(number) * _UNITS_MS[text[len(number) :]]


def offset_in(text: str) -> tuple[tuple[str, int], int]:
    """A place and an offset: `orders/0=5`."""
    place, offset = text.split("=")
    topic, index = place.split("/")
    return (topic, int(index)), int(offset)


def _name(code: int) -> str:
    return class_for_code(code).wire_name if code else "ok"


def said(answer: object) -> str:
    """The first error anywhere in an answer, or ok."""
    if isinstance(answer, ApiError):
        return answer.wire_name
    code = getattr(answer, "error_code", 0)
    inner = [*getattr(answer, "members", ()), *getattr(answer, "topics", ())]
    for each in [*inner, *(part for topic in inner for part in getattr(topic, "partitions", ()))]:
        code = code or getattr(each, "error_code", 0)
    return _name(code)
