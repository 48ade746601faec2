"""Whole clusters keep their promises. `python -m tests.simulation.cluster.run` runs more seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.controller.quorum_controller import QuorumController
from millstream.controller.replication_control import ReplicationControl
from millstream.errors import QuorumFault
from millstream.metadata.quorum_state_store import FileQuorumStateStore
from millstream.raft.effects import AdvanceHighWatermark, ElectionState
from tests.simulation.cluster.chaos import Chaos

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.controller.decision import Decision
    from millstream.controller.sessions import BrokerSessions
    from millstream.protocol.message import Message
    from millstream.raft.leader_state import Leader
    from millstream.raft.leading import Leading
    from millstream.raft.replica import Replica
    from millstream.raft.voters import VoterSet
    from millstream.replica.partition import Partition

KNOWN_SEEDS: Sequence[int] = [
    7,  # A connection to a controller that was away was waited for too long: a broker was fenced.
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*KNOWN_SEEDS, 1_000_001, 1_000_002])
def test_metadata_survives_whatever_happens(seed: int) -> None:
    Chaos(seed).run()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1_000_001, 1_000_004])
def test_acknowledged_records_survive_whatever_happens(seed: int) -> None:
    chaos = Chaos(seed, writes=True)
    chaos.run()

    assert chaos.writer is not None
    assert len(chaos.writer.acknowledged) > 10


def test_a_seed_runs_the_same_way_twice() -> None:
    traces = []
    for _ in range(2):
        chaos = Chaos(7, chaos_ms=8000)
        chaos.run()
        traces.append([*chaos.trace, f"{chaos.world.schedule.events} events"])

    assert traces[0] == traces[1]
    assert len(traces[0]) > 30


def trace_with_hash_seed(hash_seed: str) -> str:
    script = (
        "from tests.simulation.cluster.chaos import Chaos\n"
        "chaos = Chaos(8, chaos_ms=4000)\n"
        "chaos.run()\n"
        "print(*chaos.trace, chaos.world.schedule.events, sep='\\n')\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
def test_a_seed_runs_the_same_way_however_strings_are_hashed() -> None:
    assert trace_with_hash_seed("1") == trace_with_hash_seed("2")


# --- The simulation can fail ---


_store_write = FileQuorumStateStore.write
_controller_write = QuorumController._write
_broker_restarted = ReplicationControl.broker_restarted


def forget_the_vote(
    store: FileQuorumStateStore,
    election: ElectionState,
    kraft_version: int,
    voter_ids: tuple[int, ...],
) -> None:
    _store_write(store, ElectionState(election.epoch, election.leader_id), kraft_version, voter_ids)


def commit_what_one_disk_has(leader: Leader, own_flushed_offset: int, voters: VoterSet) -> int:
    ends = [progress.end_offset or 0 for progress in leader.voters.values()]
    return max(own_flushed_offset, *ends)


def commit_what_older_leaders_left(leading: Leading, leader: Leader) -> None:
    replica = leading._replica
    offset = leader.majority_offset(replica.outline.flushed_offset, replica.voters)
    if offset > replica.outline.high_watermark:
        leader.high_watermark = replica.outline.high_watermark = offset
        replica.emit(AdvanceHighWatermark(offset))
        replica.quorum.announce()


def take_voters_when_committed(replica: Replica) -> VoterSet:
    committed = replica.history.voters.at(max(0, replica.outline.high_watermark - 1))
    return committed if len(committed) else replica.history.voters.last


def answer_before_the_commit(
    controller: QuorumController, decision: Decision[object], now_ms: int, wall_ms: int
) -> int:
    _controller_write(controller, decision, now_ms, wall_ms)
    return -1


def fence_whom_was_just_heard_of(
    sessions: BrokerSessions, broker_ids: Iterable[int], now_ms: int
) -> list[int]:
    return [
        broker_id
        for broker_id in broker_ids
        if (session := sessions._sessions.get(broker_id)) is not None
        and now_ms >= session.contact_ms + 400
    ]


def take_nobody_for_a_member(controller: QuorumController) -> list[int]:
    return []


def trust_who_was_killed(
    replication: ReplicationControl, broker_id: int, *, was_clean: bool
) -> list[Message]:
    return _broker_restarted(replication, broker_id, was_clean=True)


MUTANTS: dict[str, tuple[str, object, range]] = {
    "vote not stored": (
        "millstream.metadata.quorum_state_store.FileQuorumStateStore.write",
        forget_the_vote,
        range(40),
    ),
    "majority": (
        "millstream.raft.leader_state.Leader.majority_offset",
        commit_what_one_disk_has,
        range(20),
    ),
    "older epoch": (
        "millstream.raft.leading.Leading.advance_high_watermark",
        commit_what_older_leaders_left,
        range(60),
    ),
    "voters at commit": (
        "millstream.raft.replica.Replica.voters",
        property(take_voters_when_committed),
        range(1, 40),
    ),
    "answer before commit": (
        "millstream.controller.quorum_controller.QuorumController._write",
        answer_before_the_commit,
        range(20),
    ),
    "fencing too early": (
        "millstream.controller.sessions.BrokerSessions.expired",
        fence_whom_was_just_heard_of,
        range(3, 10),
    ),
    "no fencing": (
        "millstream.controller.quorum_controller.QuorumController._unfenced_ids",
        take_nobody_for_a_member,
        range(5),
    ),
    "previous epoch": (
        "millstream.controller.replication_control.ReplicationControl.broker_restarted",
        trust_who_was_killed,
        range(20),
    ),
}


def commit_alone(partition: Partition, offset: int, now_ms: int) -> int:
    return offset


def play_until_caught(seeds: Iterable[int], *, writes: bool = False) -> None:
    for seed in seeds:
        Chaos(seed, writes=writes).run()


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_rule_does_not_go_unnoticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, broken_rule, seeds = MUTANTS[mutant]
    monkeypatch.setattr(place, broken_rule)

    with pytest.raises((AssertionError, QuorumFault, KeyError)):
        play_until_caught(seeds)


@pytest.mark.slow
def test_a_leader_that_acknowledges_what_only_it_has_does_not_go_unnoticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millstream.replica.partition.Partition.least_end_offset", commit_alone)

    with pytest.raises(AssertionError):
        play_until_caught(range(7, 40), writes=True)
