"""Batches of the metadata log, and what a replica learns from them when it starts."""

from __future__ import annotations

from zlib import crc32

import pytest

from millstream.errors import CorruptMessage
from millstream.protocol.messages import KRaftVersionRecord
from millstream.raft import batches
from millstream.raft.config import QuorumConfig
from millstream.raft.effects import ElectionState
from millstream.raft.recovery import read_quorum_of_snapshot, recover
from millstream.records import control
from millstream.records.control import ControlType
from millstream.types import OffsetAndEpoch
from tests.simulation.raft.memory import MemoryLog, MemoryStore
from tests.simulation.raft.node import snapshot_bytes
from tests.unit.raft.bench import LISTENER, records_at, static_config, voter_set


def version_batch(offset: int, version: int, epoch: int = 1) -> bytes:
    record = KRaftVersionRecord(version=0, kraft_version=version)
    return batches.control_batch(offset, epoch, 0, [record])


def voters_batch(offset: int, *voters: int, epoch: int = 1) -> bytes:
    record = batches.voters_record(voter_set(*voters))
    return batches.control_batch(offset, epoch, 0, [record])


# --- Walking ---


def test_batches_are_walked_in_order_and_a_cut_one_is_left_out() -> None:
    data = records_at(0, 1, b"a", b"b") + version_batch(2, 1) + records_at(3, 1)[:-1]

    found = list(batches.walk_batches(data))

    assert [(batch.base_offset, batch.next_offset) for batch in found] == [(0, 2), (2, 3)]
    assert [batch.is_control for batch in found] == [False, True]


def test_old_formats_and_impossible_batches_are_corrupt() -> None:
    negative = bytearray(records_at(0, 1))
    negative[23:27] = b"\xff\xff\xff\xff"
    message = b"\x01\x00" + bytes(8) + b"\xff" * 8  # magic, attributes, time, no key, no value
    checked = crc32(message).to_bytes(4, "big") + message
    old = bytes(8) + len(checked).to_bytes(4, "big") + checked
    damaged = bytearray(records_at(0, 1))
    damaged[-1] ^= 1

    for data in (negative, old, damaged):
        with pytest.raises(CorruptMessage):
            list(batches.walk_batches(bytes(data)))


# --- Records about the quorum ---


def test_what_the_quorum_records_say_comes_back() -> None:
    record = batches.voters_record(voter_set(1, 2))
    version = KRaftVersionRecord(version=0, kraft_version=1)
    change = batches.leader_change(1, voter_set(1, 2), [2])
    data = batches.control_batch(7, 3, 0, [change, version, record])

    (batch,) = batches.walk_batches(data)

    assert batches.quorum_records(batch) == [(8, 1), (9, voter_set(1, 2))]
    (plain,) = batches.walk_batches(records_at(0, 1))
    assert batches.quorum_records(plain) == []


@pytest.mark.parametrize("value", [b"", b"\x00"])
@pytest.mark.parametrize("kind", [ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS])
def test_a_quorum_record_that_cannot_be_read_is_corrupt(kind: ControlType, value: bytes) -> None:
    data = control.control_batch([(kind, value)], timestamp=0)

    (batch,) = batches.walk_batches(data)

    with pytest.raises(CorruptMessage, match="control record at offset 0"):
        batches.quorum_records(batch)


def test_a_set_in_which_an_id_votes_twice_is_corrupt() -> None:
    record = batches.voters_record(voter_set(1))
    record.voters *= 2

    (batch,) = batches.walk_batches(batches.control_batch(0, 1, 0, [record]))

    with pytest.raises(CorruptMessage, match="twice"):
        batches.quorum_records(batch)


# --- Starting ---


def recovered(log: MemoryLog, config: QuorumConfig | None = None) -> object:
    return recover(log, MemoryStore(), config or QuorumConfig(), LISTENER)


def test_an_empty_log_leaves_the_static_voters() -> None:
    state = recover(MemoryLog(), MemoryStore(), static_config(1, 2), LISTENER)

    assert state.history.voters.last.ids == [1, 2]
    assert state.history.kraft_version.last == 0
    assert state.election is None


def test_the_newest_records_win() -> None:
    log, store = MemoryLog(), MemoryStore()
    log.append(version_batch(0, 1) + voters_batch(1, 1, 2) + records_at(2, 1))
    log.append(voters_batch(3, 1, 2, 3))
    store.write(ElectionState(4), 1, ())

    state = recover(log, store, QuorumConfig(), LISTENER)

    assert state.history.voters.last == voter_set(1, 2, 3)
    assert state.history.voters.at(2) == voter_set(1, 2)
    assert state.history.kraft_version.last == 1
    assert state.election == ElectionState(4)


def test_a_snapshot_is_read_first_and_the_log_from_its_end() -> None:
    log = MemoryLog()
    log.append(version_batch(0, 1) + voters_batch(1, 1, 2) + voters_batch(2, 1, 2, 3))
    snapshot_id = OffsetAndEpoch(1, 2)
    log.complete[snapshot_id] = snapshot_bytes(2, 1, 1, voter_set(1, 2), b"state")

    state = recover(log, MemoryStore(), QuorumConfig(), LISTENER)

    assert state.history.voters.at(1) == voter_set(1, 2)
    assert state.history.voters.last == voter_set(1, 2, 3)


def test_a_batch_that_straddles_the_end_of_the_snapshot_counts_with_its_later_records() -> None:
    log = MemoryLog()
    version = KRaftVersionRecord(version=0, kraft_version=1)
    voters = batches.voters_record(voter_set(1, 2))
    log.append(batches.control_batch(0, 1, 0, [version, voters]))
    log.complete[OffsetAndEpoch(1, 1)] = snapshot_bytes(1, 1, 1, voter_set(1), b"state")

    state = recover(log, MemoryStore(), QuorumConfig(), LISTENER)

    assert state.history.kraft_version.last_offset == 0
    assert state.history.voters.last == voter_set(1, 2)


def test_a_snapshot_of_a_static_quorum_says_nothing_about_voters() -> None:
    log = MemoryLog()
    snapshot_id = OffsetAndEpoch(1, 2)
    log.complete[snapshot_id] = snapshot_bytes(2, 1, 0, voter_set(), b"state")
    log.start_offset = 2

    assert read_quorum_of_snapshot(log, snapshot_id) == (0, None)
    state = recover(log, MemoryStore(), static_config(1, 2), LISTENER)
    assert state.history.voters.last.ids == [1, 2]


def test_a_snapshot_is_read_in_pieces_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.raft.recovery._READ_BYTES", 10)
    log = MemoryLog()
    snapshot_id = OffsetAndEpoch(1, 2)
    log.complete[snapshot_id] = snapshot_bytes(2, 1, 1, voter_set(1, 2, 3), b"state")

    assert read_quorum_of_snapshot(log, snapshot_id) == (1, voter_set(1, 2, 3))


def test_a_snapshot_of_control_records_only_is_read_to_its_end() -> None:
    log = MemoryLog()
    snapshot_id = OffsetAndEpoch(0, 0)
    log.complete[snapshot_id] = version_batch(0, 1)

    assert read_quorum_of_snapshot(log, snapshot_id) == (1, None)


def test_a_log_with_a_hole_is_corrupt() -> None:
    class TornLog(MemoryLog):
        def read(self, offset: int, bytes_max: int) -> bytes:
            return super().read(offset, bytes_max)[:-1]

    log = TornLog()
    log.append(records_at(0, 1))

    with pytest.raises(CorruptMessage, match="offset 0"):
        recovered(log)
