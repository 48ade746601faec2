"""What a replica can tell about itself from its log, when it starts or takes a snapshot.

`RaftDriver` calls it. The voters and the kraft.version are control records: in the head of the
newest snapshot and anywhere in the log after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import CorruptMessage
from millstream.raft import batches
from millstream.raft.config import parse_voters
from millstream.raft.core import RecoveredState
from millstream.raft.log_outline import LogOutline
from millstream.raft.replica import QuorumHistory
from millstream.raft.voters import VoterSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.raft.config import QuorumConfig
    from millstream.raft.ports import QuorumStateStore, ReplicatedLog
    from millstream.records.batch import RecordBatch
    from millstream.types import OffsetAndEpoch

_READ_BYTES = 1 << 20


def recover(
    log: ReplicatedLog, store: QuorumStateStore, config: QuorumConfig, listener: str
) -> RecoveredState:
    """Read what was stored. The log must be open and repaired."""
    outline = LogOutline.of(log)
    history = QuorumHistory.starting_from(parse_voters(config.voters, listener))
    latest = outline.latest_snapshot
    if latest is not None:
        version, voters = read_quorum_of_snapshot(log, latest)
        history.kraft_version.reset(latest.offset - 1, version)
        if voters is not None:
            history.voters.reset(latest.offset - 1, voters)
    first_offset = outline.start_offset if latest is None else latest.offset
    for batch in _batches_of_log(log, first_offset):
        for offset, value in batches.quorum_records(batch):
            if offset >= first_offset:
                history.add(offset, value)
    return RecoveredState(outline, history, store.read())


def read_quorum_of_snapshot(
    log: ReplicatedLog, snapshot_id: OffsetAndEpoch
) -> tuple[int, VoterSet | None]:
    """The kraft.version and the voters of a snapshot; 0 and None where it has none."""
    version, voters = 0, None
    for batch in _batches_of_snapshot(log, snapshot_id):
        if not batch.is_control:
            break  # The records about the quorum come first.
        for _, value in batches.quorum_records(batch):
            if isinstance(value, VoterSet):
                voters = value
            else:
                version = value
    return version, voters


def _batches_of_log(log: ReplicatedLog, offset: int) -> Iterator[RecordBatch]:
    while offset < log.end_offset:
        found = list(batches.walk_batches(log.read(offset, _READ_BYTES)))
        if not found:
            raise CorruptMessage(f"the metadata log has no whole batch at offset {offset}")
        yield from found
        offset = found[-1].next_offset


def _batches_of_snapshot(log: ReplicatedLog, snapshot_id: OffsetAndEpoch) -> Iterator[RecordBatch]:
    position, carried = 0, b""
    while piece := log.read_snapshot(snapshot_id, position, _READ_BYTES):
        position += len(piece)
        data = carried + bytes(piece)
        whole = 0
        for batch in batches.walk_batches(data):
            whole += batch.size
            yield batch
        carried = data[whole:]
