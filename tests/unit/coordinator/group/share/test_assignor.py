"""The simple assignor: fair, complete, and no more movement than that needs."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.group.share.assignor import assign
from millstream.types import Uuid

ORDERS, PAYMENTS = Uuid(b"o" * 16), Uuid(b"p" * 16)


def spread(members: int, partitions: int) -> dict[str, frozenset[int]]:
    names = [f"m{number:02}" for number in range(members)]
    found = assign({name: frozenset({ORDERS}) for name in names}, {ORDERS: range(partitions)}, {})
    return {name: each.get(ORDERS, frozenset()) for name, each in found.items()}


def test_with_as_many_members_as_partitions_each_has_one() -> None:
    assert sorted(map(sorted, spread(3, 3).values())) == [[0], [1], [2]]


def test_more_members_than_partitions_share_them_evenly() -> None:
    readers = Counter(each for owned in spread(5, 2).values() for each in owned)

    assert sorted(readers.values()) == [2, 3]


def test_fewer_members_than_partitions_have_several_each() -> None:
    assert sorted(len(each) for each in spread(2, 5).values()) == [2, 3]


def test_members_keep_what_they_have() -> None:
    subscriptions = {name: frozenset({ORDERS}) for name in ("a", "b")}
    before = assign(subscriptions, {ORDERS: range(4)}, {})

    after = assign({**subscriptions, "c": frozenset({ORDERS})}, {ORDERS: range(4)}, before)

    moved = sum(len(before[name][ORDERS] - after[name][ORDERS]) for name in ("a", "b"))
    assert moved == 1
    assert len(after["c"][ORDERS]) == 1


def test_who_wants_nothing_gets_nothing() -> None:
    found = assign(
        {"a": frozenset({ORDERS}), "b": frozenset()}, {ORDERS: [0], PAYMENTS: [0, 1]}, {}
    )

    assert found == {"a": {ORDERS: frozenset({0})}, "b": {}}


@given(
    st.dictionaries(
        st.sampled_from("abcdefg"), st.frozensets(st.sampled_from([ORDERS, PAYMENTS])), max_size=7
    ),
    st.integers(0, 6),
    st.integers(0, 6),
    st.data(),
)
def test_every_partition_has_a_reader_and_every_reader_a_partition(
    subscriptions: dict[str, frozenset[Uuid]], orders: int, payments: int, data: st.DataObject
) -> None:
    partitions = {ORDERS: range(orders), PAYMENTS: range(payments)}
    some = {
        name: wanted for name, wanted in subscriptions.items() if data.draw(st.booleans(), name)
    }
    before = assign(some, partitions, {})

    after = assign(subscriptions, partitions, before)

    for topic, count in ((ORDERS, orders), (PAYMENTS, payments)):
        readers = {name for name, wanted in subscriptions.items() if topic in wanted}
        covered = {each for name in readers for each in after[name].get(topic, ())}
        assert covered == (set(range(count)) if readers else set())
    for name, wanted in subscriptions.items():
        assert set(after[name]) <= wanted
        if any(partitions[topic] for topic in wanted):
            assert after[name], (name, after)
    if len(set(subscriptions.values())) == 1:
        sizes = [sum(map(len, each.values())) for each in after.values()]
        assert max(sizes) - min(sizes) <= 1
