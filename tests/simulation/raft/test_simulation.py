"""Seeded clusters keep their promises. `python -m tests.simulation.raft.run` runs more seeds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

from millstream.protocol.messages import FetchRequest
from tests.simulation.raft.chaos import Chaos, run_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from millstream.raft.following import Following
    from millstream.raft.leader_state import Leader
    from millstream.raft.voters import ReplicaKey, VoterSet

KNOWN_SEEDS = [
    188,  # A leader removed itself and failed: nobody could be elected.
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Refused answers are warnings of raft, and here they come by the hundred."""
    logger = logging.getLogger("millstream.raft")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)


@pytest.mark.parametrize("seed", KNOWN_SEEDS)
def test_a_seed_that_once_failed_does_not_fail_again(seed: int) -> None:
    run_seed(seed)


@pytest.mark.slow
@settings(max_examples=50)
@given(seed=integers(0, 2**32 - 1))
def test_committed_records_survive_whatever_happens(seed: int) -> None:
    run_seed(seed)


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=integers(0, 2**32 - 1))
def test_disks_that_are_full_for_a_while_lose_nothing(seed: int) -> None:
    run_seed(seed, fills_disks=True)


def test_a_seed_runs_the_same_way_twice() -> None:
    runs = []
    for _ in range(2):
        chaos = Chaos(7)
        chaos.begin_trace()
        chaos.run()
        runs.append(chaos.trace)

    assert runs[0] == runs[1]
    assert len(runs[0]) > 100


# --- The simulation can fail ---


def vote_without_looking_at_the_log(
    leader_id: int | None,
    voted_key: ReplicaKey | None,
    key: ReplicaKey,
    is_up_to_date: bool,
    is_pre_vote: bool,
) -> bool:
    return is_pre_vote or (leader_id is None and voted_key in (None, key))


def commit_what_one_disk_has(leader: Leader, own_flushed_offset: int, voters: VoterSet) -> int:
    ends = [progress.end_offset or 0 for progress in leader.voters.values()]
    return max(own_flushed_offset, *ends)


def acknowledge_before_the_flush(following: Following) -> bool:
    return not following._replica.connections.is_waiting_for(FetchRequest)


def run_seeds(seeds: Iterable[int]) -> None:
    for seed in seeds:
        run_seed(seed)


@pytest.mark.parametrize(
    ("place", "broken_rule", "seeds"),
    [
        ("millstream.raft.states._may_vote", vote_without_looking_at_the_log, range(40)),
        (
            "millstream.raft.leader_state.Leader.majority_offset",
            commit_what_one_disk_has,
            range(40),
        ),
        ("millstream.raft.following.Following._may_fetch", acknowledge_before_the_flush, [85]),
    ],
    ids=["log check", "majority", "flush"],
)
def test_a_broken_rule_does_not_go_unnoticed(
    place: str,
    broken_rule: Callable[..., object],
    seeds: Iterable[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, broken_rule)

    with pytest.raises(AssertionError):
        run_seeds(seeds)
