"""Where replicas go: facts 6.6(15)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.controller.placement import ReplicaPlacer, UsableBroker
from millstream.errors import InvalidReplicationFactor


def brokers(
    layout: dict[str | None, list[int]], fenced: set[int] | None = None
) -> list[UsableBroker]:
    return [
        UsableBroker(broker_id, rack, broker_id in (fenced or set()))
        for rack, ids in layout.items()
        for broker_id in ids
    ]


def test_rule_15_racks_take_turns() -> None:
    placer = ReplicaPlacer(brokers({"a": [0, 1], "b": [2, 3], "c": [4, 5]}), Random(1))

    for _ in range(12):
        racks = {replica // 2 for replica in placer.place(3)}
        assert racks == {0, 1, 2}


def test_rule_15_leaders_and_replicas_are_spread_evenly() -> None:
    placer = ReplicaPlacer(brokers({"a": [0, 1], "b": [2, 3], "c": [4, 5]}), Random(7))

    placed = [placer.place(3) for _ in range(60)]

    leaders = Counter(replicas[0] for replicas in placed)
    replicas = Counter(replica for replicas in placed for replica in replicas)
    assert set(leaders) == set(range(6))
    assert max(replicas.values()) - min(replicas.values()) <= 2


def test_rule_15_without_racks_brokers_take_turns() -> None:
    placer = ReplicaPlacer(brokers({None: [0, 1, 2]}), Random(3))

    placed = [tuple(placer.place(2)) for _ in range(3)]

    assert Counter(each[0] for each in placed) == {0: 1, 1: 1, 2: 1}


def test_rule_15_fenced_brokers_come_last_and_never_lead() -> None:
    placer = ReplicaPlacer(brokers({"a": [0, 1], "b": [2]}, fenced={0, 2}), Random(5))

    for _ in range(6):
        placed = placer.place(3)
        assert placed[0] == 1
        assert sorted(placed) == [0, 1, 2]
    two = ReplicaPlacer(brokers({None: [0, 1, 2]}, fenced={1}), Random(5))
    assert all(sorted(two.place(2)) == [0, 2] for _ in range(6))


@pytest.mark.parametrize("factor", [0, -1, 3])
def test_rule_15_a_replication_factor_that_cannot_be_is_refused(factor: int) -> None:
    placer = ReplicaPlacer(brokers({None: [0, 1]}), Random(1))

    with pytest.raises(InvalidReplicationFactor):
        placer.place(factor)


@given(
    st.dictionaries(
        st.integers(0, 30), st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans())
    ),
    st.integers(1, 6),
    st.integers(0, 2**32),
)
def test_rule_15_replicas_differ_and_the_leader_is_not_fenced(
    layout: dict[int, tuple[str | None, bool]], factor: int, seed: int
) -> None:
    usable = [UsableBroker(each, rack, fenced) for each, (rack, fenced) in layout.items()]
    placer = ReplicaPlacer(usable, Random(seed))
    unfenced = {each.id for each in usable if not each.is_fenced}
    if not unfenced or factor > len(usable):
        with pytest.raises(InvalidReplicationFactor):
            placer.place(factor)
        return
    for _ in range(5):
        placed = placer.place(factor)
        assert len(set(placed)) == len(placed) == factor
        assert placed[0] in unfenced
