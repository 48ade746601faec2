"""Whatever is written and whenever it is compacted, a log keeps the rules of compaction.

The model is the list of everything that was ever appended; `check_compacted` has the rules.
"""

from __future__ import annotations

from random import Random
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.storage.log.config import LogConfig
from tests.simulation.storage.checks import check_producers
from tests.simulation.storage.cleaner_checks import check_reads_agree
from tests.simulation.storage.cleaner_world import (
    IDEMPOTENT_PRODUCERS,
    TRANSACTIONAL_PRODUCERS,
    CleanerWorld,
    small_map,
)

Operation: TypeAlias = tuple[str, object]

rows = st.lists(
    st.tuples(
        st.integers(0, 5).map(lambda number: b"k%d" % number),
        st.none() | st.binary(max_size=40),
    ),
    min_size=1,
    max_size=6,
)
producers = st.sampled_from([-1, *IDEMPOTENT_PRODUCERS, *TRANSACTIONAL_PRODUCERS])
operations = st.one_of(
    st.tuples(st.just("append"), st.tuples(rows, producers)),
    st.tuples(st.just("append"), st.tuples(rows, producers)),
    st.tuples(st.just("end"), st.tuples(st.sampled_from(TRANSACTIONAL_PRODUCERS), st.booleans())),
    st.tuples(st.just("clean"), st.integers(0, 300)),
    st.tuples(st.just("restart"), st.none()),
)
configs = st.builds(
    LogConfig,
    cleanup_policy=st.just(("compact",)),
    internal_segment_bytes=st.sampled_from([400, 900, 5000]),
    index_interval_bytes=st.sampled_from([1, 300]),
    segment_index_bytes=st.sampled_from([60, 4000]),
    min_cleanable_dirty_ratio=st.just(0.0),
    delete_retention_ms=st.sampled_from([0, 100, 10_000]),
)


def perform(world: CleanerWorld, operation: Operation) -> None:
    match operation:
        case "append", (list(content), int(producer_id)):
            world.append(content, producer_id)
            world.raise_high_watermark(world.log.log_end_offset)
        case "end", (int(producer_id), bool(is_abort)):
            world.end_transaction(producer_id, is_abort=is_abort)
            world.raise_high_watermark(world.log.log_end_offset)
        case "clean", int(wait_ms):
            world.harness.clock.advance(wait_ms)
            world.clean()
        case "restart", _:
            world.restart_cleanly()


@settings(max_examples=60, deadline=None)
@given(
    config=configs,
    map_entries=st.sampled_from([12, 1000]),
    story=st.lists(operations, min_size=5, max_size=40),
    bytes_max=st.sampled_from([1, 300, 1 << 20]),
)
def test_a_compacted_log_has_what_it_must_have(
    config: LogConfig, map_entries: int, story: list[Operation], bytes_max: int
) -> None:
    world = CleanerWorld(Random(1), config, small_map(map_entries))
    for operation in [*story, ("clean", 0), ("clean", 20_000), ("restart", None)]:
        perform(world, operation)
        world.check()
    check_producers(world.log, world.model, 0)
    for offset in range(world.log.last_stable_offset + 1):
        check_reads_agree(world.log, offset, bytes_max)
