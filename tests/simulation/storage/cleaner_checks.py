"""What must hold between a compacted log and the history of what was appended to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from millstream.records import ControlType, RecordBatch, control_type, split_batches
from millstream.storage.log.log_results import FetchIsolation
from tests.simulation.storage.model import ModelRecord

if TYPE_CHECKING:
    from millstream.storage.log.log_results import FetchData
    from millstream.storage.log.unified_log import UnifiedLog
    from tests.simulation.storage.model import ModelLog


class PassBegun(NamedTuple):
    """A pass that began, whatever became of it."""

    wall_ms: int
    end_offset: int


@dataclass(slots=True)
class CompactionHistory:
    """What compaction may have done so far."""

    delete_retention_ms: int
    begun: list[PassBegun] = field(default_factory=list)
    clean_end: int = 0
    """A pass has ended that compacted everything before this offset."""

    @property
    def touched_end(self) -> int:
        """No record from here on can have gone."""
        return max((each.end_offset for each in self.begun), default=0)

    def may_have_removed_tombstone(self, offset: int) -> bool:
        """Whether a pass came by after the horizon that an earlier one can have set."""
        times = [each.wall_ms for each in self.begun if each.end_offset > offset]
        return len(times) > 1 and times[-1] >= times[0] + self.delete_retention_ms


def committed_reads(log: UnifiedLog, offset: int, bytes_max: int) -> list[ModelRecord]:
    """What a read_committed consumer gets from an offset to the last stable one."""
    found: list[ModelRecord] = []
    while offset < log.last_stable_offset:
        fetched = log.read(offset, bytes_max, FetchIsolation.TXN_COMMITTED)
        if fetched.records is None:
            break  # nothing but a gap is left
        records, next_offset = _committed_in(fetched, offset)
        assert next_offset > offset
        found += records
        offset = next_offset
    return found


def _committed_in(fetched: FetchData, offset: int) -> tuple[list[ModelRecord], int]:
    assert fetched.records is not None
    assert fetched.aborted_transactions is not None
    pending = sorted(fetched.aborted_transactions, key=lambda each: each.first_offset)
    aborting: set[int] = set()
    found: list[ModelRecord] = []
    next_offset = offset
    for batch in split_batches(fetched.records.read()):
        assert isinstance(batch, RecordBatch)
        batch.check_crc()
        next_offset = batch.next_offset
        while pending and pending[0].first_offset <= batch.last_offset:
            aborting.add(pending.pop(0).producer_id)
        records = batch.records()
        if batch.is_control:
            if records and control_type(records[0]) is ControlType.ABORT:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            found += [
                ModelRecord(each.offset, each.timestamp, each.key, each.value)
                for each in records
                if each.offset >= offset
            ]
    return found, next_offset


def check_compacted(
    log: UnifiedLog, model: ModelLog, history: CompactionHistory, bytes_max: int
) -> None:
    """Every rule of compaction, by looking at everything."""
    assert log.log_end_offset == model.log_end_offset
    assert model.last_stable_offset() <= log.last_stable_offset <= log.high_watermark
    found = committed_reads(log, log.log_start_offset, bytes_max)
    expected = model.committed_records(log.log_start_offset, log.last_stable_offset)
    by_offset = {each.offset: each for each in expected}
    for record in found:
        assert by_offset.get(record.offset) == record, f"{record} was never committed like this"
    offsets = [each.offset for each in found]
    assert offsets == sorted(set(offsets)), "records are out of order"
    missing = set(by_offset) - set(offsets)
    assert all(each < history.touched_end for each in missing), f"{sorted(missing)} are lost"
    last_found = {each.key: each for each in found}
    for key, last in {each.key: each for each in expected}.items():
        if key not in last_found:
            assert last.value is None, f"the last value of {key!r} at {last.offset} is lost"
            assert history.may_have_removed_tombstone(last.offset), f"{last} went too early"
        else:
            assert last_found[key] == last, f"an old value of {key!r} is the last one now"
    check_nothing_superseded(found, history.clean_end)


def check_nothing_superseded(found: list[ModelRecord], clean_end: int) -> None:
    """Before the offset up to which a log is clean, there is one record per key."""
    keys = [each.key for each in found if each.offset < clean_end]
    assert len(keys) == len(set(keys)), "a superseded record has survived its pass"


def check_reads_agree(log: UnifiedLog, offset: int, bytes_max: int) -> None:
    """A read from any offset gives what a read from the start gives from there on."""
    everything = committed_reads(log, log.log_start_offset, 1 << 20)
    assert committed_reads(log, offset, bytes_max) == [
        each for each in everything if each.offset >= offset
    ]
