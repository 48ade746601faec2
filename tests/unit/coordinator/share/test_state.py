"""Batches of state, merged as if every record were kept by itself."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.share.state import ShareKey, StateBatch, merged
from millstream.types import Uuid

batches = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 30),
        st.integers(0, 6),
        st.sampled_from([0, 2, 4]),
        st.integers(1, 2),
    ),
    max_size=6,
).map(tuple)


def by_record(said: tuple[StateBatch, ...]) -> dict[int, tuple[int, int]]:
    return {
        offset: (each.state, each.delivery_count)
        for each in said
        for offset in range(each.first_offset, each.last_offset + 1)
    }


@given(batches, batches, st.integers(-1, 20))
def test_the_later_word_counts_for_every_record(
    known: tuple[StateBatch, ...], added: tuple[StateBatch, ...], start: int
) -> None:
    before = merged((), known, -1)

    after = merged(before, added, start)

    expected = {
        offset: fate
        for offset, fate in (by_record(known) | by_record(added)).items()
        if offset >= start
    }
    assert by_record(after) == expected
    for this, following in pairwise(after):
        assert this.last_offset < following.first_offset
        is_adjacent = this.last_offset + 1 == following.first_offset
        assert not is_adjacent or this[2:] != following[2:]


def test_a_key_has_the_text_by_which_coordinators_are_found() -> None:
    assert ShareKey("g", Uuid.ZERO, 3).text == "g:AAAAAAAAAAAAAAAAAAAAAA:3"
