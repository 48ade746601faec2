"""Whatever members do in whatever order: the group is sound, and the log says all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.group.classic.group import ClassicGroup
from millstream.coordinator.group.classic.state import ClassicState
from millstream.coordinator.group.config import GroupConfig
from millstream.errors import ApiError, UnknownMemberId, UnknownServerError
from tests.unit.coordinator.group.members import Member
from tests.unit.coordinator.group.world import GROUP, World

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIG = GroupConfig(group_max_size=4, offsets_retention_minutes=5)
MEMBERS = st.integers(0, 4)
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["join", "sync", "beat", "leave", "commit", "change"]), MEMBERS),
    st.tuples(st.sampled_from(["join", "sync"]), MEMBERS),
    st.tuples(st.just("round"), MEMBERS),
    st.tuples(st.just("return"), st.integers(3, 4)),
    st.tuples(st.just("wait"), st.sampled_from([1, 100, 3_000, 10_000, 60_000, 700_000])),
    st.tuples(st.sampled_from(["hold", "release", "takeover", "delete"]), st.just(0)),
)


class Crowd:
    """Three dynamic and two static members of one group, and all answers that they get."""

    def __init__(self) -> None:
        self.world = World(CONFIG)
        self.answers: list[Sequence[object]] = []
        self.members = [Member(self.world, f"m{index}") for index in range(5)]
        for index in (3, 4):
            self.members[index].instance = f"host-{index}"
        self.members[1].version = 3
        self.members[2].protocols = ("sticky", "range")

    def perform(self, operation: str, argument: int) -> None:
        act = getattr(self, f"do_{operation}", None)
        if act is not None:
            act(self.members[argument])
        elif operation == "round":
            self.round(self.members[argument:])
        elif operation == "wait":
            self.world.pass_ms(argument)
        elif operation == "hold":
            self.world.store.holds_commits = True
        elif operation == "takeover":
            self.release()
            self.world.restart()
        elif operation == "delete":
            self.release()
            self.world.delete_groups(GROUP)
        else:
            self.release()

    def release(self) -> None:
        """Whatever was written is committed."""
        self.world.store.holds_commits = False
        self.world.store.commit()

    def round(self, members: list[Member]) -> None:
        """Some members behave well, as long as that takes."""
        for member in members:
            self.do_join(member)
        self.world.pass_ms(6_000)
        for member in reversed(members):
            self.do_sync(member)

    def do_join(self, member: Member) -> None:
        answers = member.join()
        self.answers.append(answers)
        if answers and isinstance(answers[0], UnknownMemberId):
            member.member_id = ""

    def do_return(self, member: Member) -> None:
        self.answers.append(member.ask_to_join(""))

    def do_change(self, member: Member) -> None:
        member.topics = ("payments",) if member.topics == ("orders",) else ("orders",)
        self.do_join(member)

    def do_sync(self, member: Member) -> None:
        names = {each.member_id: each.name.encode() for each in self.members}
        self.answers.append(member.sync(names))

    def do_beat(self, member: Member) -> None:
        self.answers.append(member.heartbeat())

    def do_leave(self, member: Member) -> None:
        self.answers.append(member.leave())

    def do_commit(self, member: Member) -> None:
        offsets = {("orders", 0): self.world.clock.monotonic_ms()}
        self.answers.append(
            self.world.commit(offsets, member=member.member_id, generation=member.generation)
        )

    @property
    def group(self) -> ClassicGroup | None:
        found = self.world.shard.groups.get(GROUP)
        assert found is None or isinstance(found, ClassicGroup)
        return found


def check_sound(crowd: Crowd) -> None:
    """What must be true of a group at any time."""
    group = crowd.group
    if group is None:
        return
    waiting = [each for each in group.members.values() if each.awaiting_join is not None]
    assert group.awaiting_count == len(waiting)
    assert group.static_ids == {
        each.instance_id: each.member_id
        for each in group.members.values()
        if each.instance_id is not None
    }
    assert group.leader_id in (group.members if group.members else {None: None})
    assert not group.pending_ids & group.members.keys()
    assert group.pending_sync_ids <= group.members.keys()
    assert group.awaiting_count <= CONFIG.group_max_size
    assert (group.state is ClassicState.EMPTY) <= (not group.members)
    is_rebalancing = group.state is ClassicState.PREPARING_REBALANCE
    assert bool(waiting) <= is_rebalancing
    for member in group.members.values():
        if group.state is not ClassicState.COMPLETING_REBALANCE:
            assert member.awaiting_sync is None
        assert member.is_excused or member in crowd.world.shard.timers
    assert not is_rebalancing or (group, "join") in crowd.world.shard.timers


def check_answers(answers: list[Sequence[object]]) -> None:
    """Nobody is answered twice, and nothing went wrong inside."""
    for each in answers:
        assert len(each) <= 1
        for answer in each:
            assert not isinstance(answer, UnknownServerError)
            assert getattr(answer, "error_code", 0) != UnknownServerError.code


def persisted(world: World) -> dict[str, Any]:
    """What a takeover must not change: groups between rebalances, and all offsets."""
    view: dict[str, Any] = {"offsets": {}, "groups": {}}
    for place, found in world.fetch().items():
        view["offsets"][place] = (found.committed_offset, found.metadata)
    for group in world.shard.groups.values():
        assert isinstance(group, ClassicGroup)
        if group.state not in (ClassicState.STABLE, ClassicState.EMPTY):
            continue
        view["groups"][group.group_id] = (
            group.state,
            group.generation,
            group.protocol_type,
            group.protocol,
            group.leader_id,
            group.is_subscribed_to("orders"),
            group.static_ids,
            {
                each.member_id: (
                    each.client_id,
                    each.client_host,
                    each.session_timeout_ms,
                    each.rebalance_timeout_ms,
                    each.metadata(group.protocol),
                    each.assignment,
                )
                for each in group.members.values()
            },
        )
    return view


@given(st.lists(OPERATIONS, min_size=5, max_size=60))
def test_a_group_is_sound_whatever_its_members_do(operations: list[tuple[str, int]]) -> None:
    crowd = Crowd()
    generation = 0

    for operation, argument in operations:
        crowd.perform(operation, argument)
        check_sound(crowd)
        check_answers(crowd.answers)
        if crowd.group is None or operation in ("takeover", "delete", "round"):
            generation = 0
        elif operation != "wait":
            assert crowd.group.generation >= generation
            generation = crowd.group.generation


@given(st.lists(OPERATIONS, min_size=5, max_size=60))
def test_a_takeover_changes_nothing_that_was_written(operations: list[tuple[str, int]]) -> None:
    crowd = Crowd()
    for operation, argument in operations:
        crowd.perform(operation, argument)
    crowd.release()
    before = persisted(crowd.world)

    crowd.world.restart()

    after = persisted(crowd.world)
    assert before["offsets"] == after["offsets"]
    for group_id, group in before["groups"].items():
        assert after["groups"][group_id] == group


@given(st.lists(OPERATIONS, min_size=5, max_size=60))
def test_an_idle_group_always_comes_to_rest(operations: list[tuple[str, int]]) -> None:
    """Nobody says anything any more: sessions end, and then there is nothing left to do."""
    crowd = Crowd()
    for operation, argument in operations:
        crowd.perform(operation, argument)
    crowd.release()

    crowd.world.pass_ms(40 * 60_000)

    assert crowd.world.shard.groups == {}
    assert len(crowd.world.shard.timers) == 0
    for each in crowd.answers:
        assert len(each) == 1, "somebody was never answered"
        assert isinstance(each[0], ApiError) or each[0] is not None
