"""What holds for every group: each partition once, shares as equal as can be, few moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.consumer.membership.assignors import (
    ASSIGNORS,
    GroupMember,
    GroupTopics,
    PreviousAssignment,
)
from millstream.types import TopicPartition

RACKS = ("east", "west", None)


@st.composite
def topics(draw: st.DrawFn) -> GroupTopics:
    counts = draw(st.dictionaries(st.sampled_from("vwxyz"), st.integers(0, 7), min_size=1))
    racks: dict[TopicPartition, frozenset[str]] = {}
    if draw(st.booleans()):
        for topic, count in counts.items():
            for index in range(count):
                where = draw(st.frozensets(st.sampled_from(["east", "west"]), min_size=1))
                racks[TopicPartition(topic, index)] = where
    return GroupTopics(counts, racks)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, GroupMember], GroupTopics]:
    found = draw(topics())
    names = sorted(found.partition_counts)
    wants = st.frozensets(st.sampled_from(names), min_size=1)
    common = draw(st.none() | wants)
    members = {}
    for number in range(draw(st.integers(1, 6))):
        member_id = f"m{number}"
        wanted = common or draw(wants)
        members[member_id] = GroupMember(member_id, wanted, rack=draw(st.sampled_from(RACKS)))
    return members, found


def assign(
    assignor: str, members: dict[str, GroupMember], found: GroupTopics
) -> dict[str, frozenset[TopicPartition]]:
    assigned = ASSIGNORS[assignor].assign(members, found)
    return {name: frozenset(partitions) for name, partitions in assigned.items()}


def remembering(
    assignor: str, members: dict[str, GroupMember], had: dict[str, frozenset[TopicPartition]]
) -> dict[str, GroupMember]:
    """The members of the next generation, which say what they had as their assignor lets them."""
    chosen = ASSIGNORS[assignor]
    found = {}
    for name, member in members.items():
        data = chosen.user_data(PreviousAssignment(had.get(name, frozenset()), 1))
        owned = had.get(name, frozenset()) if chosen.is_cooperative else frozenset()
        found[name] = replace(member, user_data=data, owned=owned, generation=1)
    return found


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@given(group=groups())
def test_every_partition_goes_to_one_member_that_wants_it(
    assignor: str, group: tuple[dict[str, GroupMember], GroupTopics]
) -> None:
    members, found = group

    assigned = assign(assignor, members, found)

    given_away = [each for partitions in assigned.values() for each in partitions]
    wanted = frozenset().union(*(each.topics for each in members.values()))
    assert sorted(given_away) == [
        each for topic in sorted(wanted) for each in found.partitions_of(topic)
    ]
    assert set(assigned) == set(members)
    for name, partitions in assigned.items():
        assert {each.topic for each in partitions} <= members[name].topics


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
@given(group=groups())
def test_nobody_has_two_more_than_somebody_who_could_take_one(
    assignor: str, group: tuple[dict[str, GroupMember], GroupTopics]
) -> None:
    members, found = group

    assigned = assign(assignor, members, found)

    for partitions in assigned.values():
        for each in partitions:
            takers = [name for name, member in members.items() if each.topic in member.topics]
            assert all(len(assigned[name]) + 1 >= len(partitions) for name in takers)


@given(group=groups())
def test_ranges_of_each_topic_differ_by_at_most_one(
    group: tuple[dict[str, GroupMember], GroupTopics],
) -> None:
    members, found = group

    assigned = assign("range", members, found)

    for topic in found.partition_counts:
        sizes = [
            sum(each.topic == topic for each in assigned[name])
            for name, member in members.items()
            if topic in member.topics
        ]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
@given(group=groups())
def test_nothing_moves_when_nothing_has_changed(
    assignor: str, group: tuple[dict[str, GroupMember], GroupTopics]
) -> None:
    members, found = group
    before = assign(assignor, members, found)

    after = assign(assignor, remembering(assignor, members, before), found)

    assert after == before


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
@given(count=st.integers(0, 30), size=st.integers(2, 7))
def test_whoever_stays_keeps_what_he_has_when_a_member_leaves(
    assignor: str, count: int, size: int
) -> None:
    found = GroupTopics({"t": count})
    members = {f"m{each}": GroupMember(f"m{each}", frozenset("t")) for each in range(size)}
    before = assign(assignor, members, found)
    del members["m0"]

    after = assign(assignor, remembering(assignor, members, before), found)

    assert all(after[name] >= before[name] for name in members)


@given(group=groups(), newcomer=st.booleans(), leaver=st.booleans())
def test_cooperation_never_gives_what_another_member_still_owns(
    group: tuple[dict[str, GroupMember], GroupTopics], newcomer: bool, leaver: bool
) -> None:
    members, found = group
    owned = assign("cooperative-sticky", members, found)
    if leaver and len(members) > 1:
        owned.pop("m0")
        members.pop("m0")
    if newcomer:
        members["new"] = GroupMember("new", frozenset(found.partition_counts))

    first = assign("cooperative-sticky", remembering("cooperative-sticky", members, owned), found)
    second = assign("cooperative-sticky", remembering("cooperative-sticky", members, first), found)

    for name, partitions in first.items():
        for other, had in owned.items():
            assert other == name or not partitions & had
    wanted = frozenset().union(*(each.topics for each in members.values()))
    total = sum(found.partition_counts[topic] for topic in wanted)
    assert sum(map(len, second.values())) == total
