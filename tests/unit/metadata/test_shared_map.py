"""A map that never changes and is cheap to change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.metadata.shared_map import SharedMap


def test_an_evolved_map_leaves_the_old_one_alone() -> None:
    old = SharedMap({1: "a", 2: "b"})

    new = old.evolve({1: "x", 3: "c"}, [2])

    assert dict(old) == {1: "a", 2: "b"}
    assert dict(new) == {1: "x", 3: "c"}
    assert old.evolve({}) is old


def test_a_key_both_changed_and_removed_is_changed() -> None:
    assert dict(SharedMap({1: "a"}).evolve({1: "b"}, [1])) == {1: "b"}


def test_it_is_a_mapping() -> None:
    map_ = SharedMap({1: "a"})

    assert map_ == {1: "a"}
    assert map_ != {1: "b"}
    assert map_ == map_.evolve({})
    assert repr(map_) == "SharedMap({1: 'a'})"
    with pytest.raises(KeyError):
        map_[2]
    with pytest.raises(TypeError):
        hash(map_)


def test_a_small_change_of_a_large_map_shares_the_rest() -> None:
    large = SharedMap({number: number for number in range(10_000)})

    changed = large.evolve({5: -5}, [6])

    assert changed._base is large._base
    assert (changed[5], changed[7], changed.get(6), changed.get(6, 0)) == (-5, 7, None, 0)
    assert 6 not in changed
    assert 5 in changed
    with pytest.raises(KeyError):
        changed[6]
    assert len(changed) == len(list(changed)) == 9999


KEYS = st.integers(0, 400)


@given(
    st.dictionaries(KEYS, st.integers(), max_size=300),
    st.lists(
        st.tuples(st.dictionaries(KEYS, st.integers(), max_size=6), st.lists(KEYS, max_size=6))
    ),
)
def test_it_behaves_like_a_dict(
    start: dict[int, int], steps: list[tuple[dict[int, int], list[int]]]
) -> None:
    model = dict(start) | {key: key for key in range(1000, 1200)}
    subject = SharedMap(model)
    for changed, removed in steps:
        subject = subject.evolve(changed, removed)
        model = {key: value for key, value in model.items() if key not in removed} | changed
        assert len(subject) == len(model)
        assert dict(subject) == model
        assert all((key in subject) == (key in model) for key in range(0, 400, 7))
        assert all(subject.get(key) == model.get(key) for key in range(0, 400, 7))
