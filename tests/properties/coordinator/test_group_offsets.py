"""Offsets against a slow but obvious model: the whole log, read from its start each time."""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.coordinator.group.world import GROUP, World

Place: TypeAlias = tuple[str, int]

PLACES = st.sampled_from([("orders", 0), ("orders", 1), ("payments", 0)])
PRODUCERS = st.integers(1, 3)
OPERATIONS = st.one_of(
    st.tuples(st.just("commit"), st.just(0), PLACES),
    st.tuples(st.just("txn"), PRODUCERS, PLACES),
    st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    st.tuples(st.just("delete"), st.just(0), PLACES),
    st.tuples(st.just("takeover"), st.just(0), st.just(None)),
)


class Model:
    """Remembers every write in order, and finds out what is in force by reading them all."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int, object, int]] = []

    def write(self, kind: str, producer: int, what: object, offset: int) -> None:
        self.log.append((kind, producer, what, offset))

    def offset_of(self, place: Place) -> int:
        """The newest write that counts."""
        found, found_at = -1, -1
        open_writes: dict[int, tuple[int, int]] = {}
        for at, (kind, producer, what, offset) in enumerate(self.log):
            if kind == "end" and producer in open_writes:
                written_at, written = open_writes.pop(producer)
                if what and written_at > found_at:
                    found, found_at = written, written_at
            elif what != place:
                continue
            elif kind == "commit":
                found, found_at = offset, at
            elif kind == "txn":
                open_writes[producer] = (at, offset)
            elif kind == "delete":
                found, found_at = -1, -1
                open_writes.clear()
        return found

    def is_open(self, place: Place) -> bool:
        """Whether an undecided transaction has an offset of a place."""
        producers: set[int] = set()
        for kind, producer, what, _ in self.log:
            if kind == "end":
                producers.discard(producer)
            elif what == place and kind == "txn":
                producers.add(producer)
            elif what == place and kind == "delete":
                producers.clear()
        return bool(producers)


@given(st.lists(OPERATIONS, max_size=40))
def test_offsets_are_what_the_log_says(operations: list[tuple[str, int, object]]) -> None:
    world, model = World(), Model()
    for number, (kind, producer, what) in enumerate(operations):
        if kind == "takeover":
            world.restart()
        elif kind == "end":
            world.end_txn(producer, is_committed=bool(what))
        elif isinstance(what, tuple) and kind == "commit":
            world.commit({what: number})
        elif isinstance(what, tuple) and kind == "txn":
            world.commit_txn({what: number}, producer=producer)
        elif isinstance(what, tuple) and GROUP in world.shard.groups:
            world.delete_offsets(what)
        model.write(kind, producer, what, number)

        for place in (("orders", 0), ("orders", 1), ("payments", 0)):
            assert world.offset_of(*place) == model.offset_of(place)
            assert world.shard.offsets.pending.has(GROUP, *place) is model.is_open(place)
        in_force = sum(
            model.offset_of(place) >= 0 for place in (("orders", 0), ("orders", 1), ("payments", 0))
        )
        assert world.shard.offsets.committed.count == in_force
