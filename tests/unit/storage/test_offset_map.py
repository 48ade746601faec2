"""The cleaner's map of keys: right like a dict, bounded unlike one."""

from __future__ import annotations

from random import Random

import pytest

from millstream.errors import InvalidArgument
from millstream.storage.cleaner.offset_map import ENTRY_BYTES, NO_OFFSET, OffsetMap


def test_an_empty_map_knows_no_key() -> None:
    offsets = OffsetMap(1024)

    assert offsets.get(b"key") == NO_OFFSET
    assert len(offsets) == 0
    assert offsets.latest_offset == NO_OFFSET


def test_the_last_offset_of_a_key_wins() -> None:
    offsets = OffsetMap(1024)
    offsets.put(b"key", 3)

    offsets.put(b"key", 7)

    assert offsets.get(b"key") == 7
    assert len(offsets) == 1


def test_offset_zero_and_the_empty_key_are_ordinary() -> None:
    offsets = OffsetMap(1024)

    offsets.put(b"", 0)

    assert offsets.get(b"") == 0


@pytest.mark.parametrize("seed", range(5))
def test_it_answers_as_a_dict_does_up_to_its_capacity(seed: int) -> None:
    random = Random(seed)
    offsets = OffsetMap(ENTRY_BYTES * 500)
    model: dict[bytes, int] = {}

    for offset in range(5000):
        key = b"%d" % random.randrange(offsets.capacity)
        assert offsets.put(key, offset)
        model[key] = offset

    assert len(offsets) == len(model)
    assert all(offsets.get(key) == offset for key, offset in model.items())
    assert offsets.get(b"another") == NO_OFFSET


def test_a_full_map_refuses_new_keys_and_still_updates_old_ones() -> None:
    offsets = OffsetMap(ENTRY_BYTES * 10)
    for number in range(offsets.capacity):
        assert not offsets.is_full
        offsets.put(b"%d" % number, number)

    assert offsets.is_full
    assert not offsets.put(b"one more", 100)
    assert offsets.put(b"0", 101)
    assert offsets.get(b"one more") == NO_OFFSET
    assert offsets.get(b"0") == 101


def test_the_table_stays_within_its_bytes() -> None:
    offsets = OffsetMap(10_000, load_factor=0.5)

    assert offsets.capacity <= 10_000 // ENTRY_BYTES // 2
    assert offsets.capacity > 10_000 // ENTRY_BYTES // 2 - 10


def test_a_map_that_may_be_filled_to_the_brim_still_ends_its_searches() -> None:
    offsets = OffsetMap(ENTRY_BYTES * 5, load_factor=1)
    for number in range(offsets.capacity):
        offsets.put(b"%d" % number, number)

    assert offsets.is_full
    assert offsets.get(b"another") == NO_OFFSET


def test_a_cleared_map_is_empty() -> None:
    offsets = OffsetMap(1024)
    offsets.put(b"key", 3)
    offsets.latest_offset = 3

    offsets.clear()

    assert offsets.get(b"key") == NO_OFFSET
    assert (len(offsets), offsets.latest_offset) == (0, NO_OFFSET)


def test_a_map_without_room_for_entries_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least 72 bytes, not 71"):
        OffsetMap(71)


@pytest.mark.parametrize("load_factor", [0.0, 1.01, -0.5])
def test_a_load_factor_outside_the_unit_interval_is_refused(load_factor: float) -> None:
    with pytest.raises(InvalidArgument, match="above 0 and at most 1"):
        OffsetMap(1024, load_factor)
