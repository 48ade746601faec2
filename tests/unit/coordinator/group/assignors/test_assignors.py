"""The assignors: everything is given out once, evenly, and kept where it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.group.assignors import ASSIGNORS
from millstream.coordinator.group.assignors.problem import Assignment, MemberNeeds, Problem
from millstream.types import Uuid

TOPICS = [Uuid(bytes([number]) * 16) for number in range(1, 5)]
A, B, *_ = TOPICS


def members(*names: str, topics: frozenset[Uuid] = frozenset({A})) -> dict[str, MemberNeeds]:
    return {name: MemberNeeds(topics, {}) for name in names}


def counts(assigned: dict[str, Assignment]) -> list[int]:
    return sorted(sum(map(len, each.values())) for each in assigned.values())


def solve(name: str, needs: dict[str, MemberNeeds], **partitions: int) -> dict[str, Assignment]:
    sizes = {{"a": A, "b": B}[topic]: count for topic, count in partitions.items()}
    return ASSIGNORS[name](Problem(needs, sizes, {}))


def test_uniform_is_even() -> None:
    found = solve("uniform", members("x", "y", "z"), a=8)
    assert counts(found) == [2, 3, 3]


def test_uniform_moves_as_little_as_it_can() -> None:
    before = solve("uniform", members("x", "y"), a=6)
    needs = {name: MemberNeeds(frozenset({A}), before.get(name, {})) for name in ("x", "y", "z")}
    after = solve("uniform", needs, a=6)
    assert counts(after) == [2, 2, 2]
    kept = sum(len(before[name][A] & after[name][A]) for name in ("x", "y"))
    assert kept == 4


def test_uniform_prefers_the_rack_of_a_replica() -> None:
    needs = {name: MemberNeeds(frozenset({A}), {}, None, name) for name in ("east", "west")}
    racks = {(A, each): frozenset({"west" if each < 2 else "east"}) for each in range(4)}
    found = ASSIGNORS["uniform"](Problem(needs, {A: 4}, racks))
    assert found["west"][A] == {0, 1}
    assert found["east"][A] == {2, 3}


def test_range_gives_neighbours_of_equal_topics_to_one_member() -> None:
    found = solve("range", members("x", "y", topics=frozenset({A, B})), a=3, b=3)
    assert found["x"] == {A: {0, 1}, B: {0, 1}}
    assert found["y"] == {A: {2}, B: {2}}


def test_range_keeps_the_order_of_static_members() -> None:
    needs = {
        "zzz": MemberNeeds(frozenset({A}), {}, "first"),
        "aaa": MemberNeeds(frozenset({A}), {}, "second"),
    }
    found = solve("range", needs, a=2)
    assert found["zzz"][A] == {0}


def test_nobody_and_nothing() -> None:
    for name in ASSIGNORS:
        assert ASSIGNORS[name](Problem({}, {A: 3}, {})) == {}
        assert solve(name, members("x"), a=0) == {"x": {}}


needs_of_members = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.frozensets(st.sampled_from(TOPICS)),
    min_size=1,
    max_size=6,
)
sizes_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))


@given(st.sampled_from(sorted(ASSIGNORS)), needs_of_members, needs_of_members, sizes_of_topics)
def test_every_partition_has_one_reader_that_wants_it(
    name: str,
    first: dict[str, frozenset[Uuid]],
    second: dict[str, frozenset[Uuid]],
    sizes: dict[Uuid, int],
) -> None:
    targets: dict[str, Assignment] = {}
    for wanted in (first, second):
        needs = {
            each: MemberNeeds(topics, targets.get(each, {})) for each, topics in wanted.items()
        }
        targets = ASSIGNORS[name](Problem(needs, sizes, {}))
        given_out = [
            (topic, partition)
            for member, assigned in targets.items()
            for topic, partitions in assigned.items()
            for partition in partitions
            if topic in wanted[member]
        ]
        assert len(given_out) == sum(len(p) for each in targets.values() for p in each.values())
        expected = {
            (topic, partition)
            for topic in set().union(*wanted.values())
            for partition in range(sizes.get(topic, 0))
        }
        assert sorted(given_out) == sorted(expected)


@given(needs_of_members, sizes_of_topics)
def test_uniform_leaves_no_member_two_behind_another_that_could_give(
    wanted: dict[str, frozenset[Uuid]], sizes: dict[Uuid, int]
) -> None:
    needs = {each: MemberNeeds(topics, {}) for each, topics in wanted.items()}
    found = ASSIGNORS["uniform"](Problem(needs, sizes, {}))
    load = {name: sum(map(len, each.values())) for name, each in found.items()}
    for name, assigned in found.items():
        for topic in assigned:
            for other, topics in wanted.items():
                assert topic not in topics or load[name] - load[other] <= 1


@given(
    partition_counts=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    joins_first=st.booleans(),
)
def test_uniform_moves_no_partition_that_could_stay(
    partition_counts: list[int], sizes: list[int], joins_first: bool
) -> None:
    had: dict[str, Assignment] = {}
    for step, size in enumerate(sizes[: len(partition_counts)]):
        first = 0 if joins_first else step
        names = [f"m{number}" for number in range(first, first + size)]
        needs = {name: MemberNeeds(frozenset(TOPICS[:2]), had.get(name, {})) for name in names}
        # Topics never lose partitions while they are there.
        totals = {A: max(partition_counts[: step + 1]), B: 5}

        found = ASSIGNORS["uniform"](Problem(needs, totals, {}))

        quota, extra = divmod(sum(totals.values()), size)
        assert counts(found) == [quota] * (size - extra) + [quota + 1] * extra
        owned = [sum(map(len, had.get(name, {}).values())) for name in names]
        kept = sum(
            len(partitions & found[name].get(topic, frozenset()))
            for name in names
            for topic, partitions in had.get(name, {}).items()
        )
        over = sum(each > quota for each in owned)
        assert kept == sum(min(each, quota) for each in owned) + min(over, extra)
        had = found


def test_uniform_starts_anew_from_targets_that_make_no_sense() -> None:
    both = {
        "x": MemberNeeds(frozenset({A}), {A: frozenset({0, 1})}),
        "y": MemberNeeds(frozenset({A}), {A: frozenset({0})}),
    }
    assert counts(solve("uniform", both, a=4)) == [2, 2]
    elsewhere = {"x": MemberNeeds(frozenset({A}), {B: frozenset({0})})}
    assert solve("uniform", elsewhere, a=1, b=1) == {"x": {A: frozenset({0})}}
