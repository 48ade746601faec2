"""What must hold between a log and its model, whatever happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.records import ControlType, RecordBatch, control_type, split_batches
from millstream.storage.log.log_results import FetchIsolation
from tests.simulation.storage.model import ModelBatch, ModelRecord

if TYPE_CHECKING:
    from random import Random

    from millstream.storage.log.log_results import FetchData
    from millstream.storage.log.unified_log import UnifiedLog
    from tests.simulation.storage.model import ModelLog


def read_all(log: UnifiedLog, random: Random) -> list[ModelBatch]:
    """Every batch from the log start to the end, in reads of random sizes."""
    found: list[ModelBatch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, random.choice([1, 100, 1000, 100_000]))
        batches = batches_of(fetched)
        if fetched.records is None:
            break  # the log ends in a gap
        assert batches, f"a read at {offset} has no whole batch"
        found += batches
        offset = batches[-1].last_offset + 1
    return found


def batches_of(fetched: FetchData) -> list[ModelBatch]:
    """The whole batches of a read, their checksums verified."""
    if fetched.records is None:
        return []
    data = fetched.records.read()
    assert len(data) == fetched.size, "the slice reaches beyond the file"
    return [ModelBatch.of(each) for each in split_batches(data) if isinstance(each, RecordBatch)]


def check_content(log: UnifiedLog, model: ModelLog, random: Random, deleted_below: int) -> None:
    """The log has the model's batches, all that were not deleted, and no others."""
    found = read_all(log, random)
    expected = {each.base_offset: each for each in model.visible(log.log_start_offset)}
    for batch in found:
        assert expected.get(batch.base_offset) == batch, f"{batch} is not what was appended"
    must_be_there = [base for base in expected if base >= deleted_below]
    missing = set(must_be_there) - {each.base_offset for each in found}
    assert not missing, f"batches at {sorted(missing)} are lost"


def check_bounds(log: UnifiedLog, model: ModelLog) -> None:
    """The offsets a log keeps are in order and are the model's."""
    assert log.log_end_offset == model.log_end_offset
    assert log.log_start_offset == model.log_start_offset
    assert log.high_watermark == model.high_watermark
    assert log.recovery_point <= log.log_end_offset
    assert model.last_stable_offset() <= log.last_stable_offset <= log.high_watermark


def check_epochs(log: UnifiedLog, model: ModelLog, from_offset: int) -> None:
    """Each batch is in its epoch, and epochs end where the next begins."""
    visible = [each for each in model.visible(from_offset) if each.base_offset >= from_offset]
    for batch in visible:
        assert log.epochs.epoch_for_offset(batch.base_offset) == batch.leader_epoch
    for epoch in {each.leader_epoch for each in visible}:
        found_epoch, end_offset = log.end_offset_for_epoch(epoch)
        last = max(each.last_offset for each in visible if each.leader_epoch == epoch)
        assert found_epoch == epoch
        # Where the log has a gap, a leader without records may have begun within it.
        assert last < end_offset <= model.epoch_end(epoch)


def check_producers(log: UnifiedLog, model: ModelLog, from_offset: int) -> None:
    """The producers with batches that are left are known as they should be."""
    ever, recent = model.producers(), model.producers(from_offset)
    actual = log.producers.producers
    assert recent.keys() <= actual.keys() <= ever.keys()
    for producer_id, expected in recent.items():
        found, full = actual[producer_id], ever[producer_id]
        assert found.epoch == full.epoch
        assert found.last_sequence in (full.last_sequence, expected.last_sequence)
        assert found.last_offset in (full.last_offset, expected.last_offset)
        is_open = full.transaction_first_offset is not None
        assert (found.transaction_first_offset is not None) == is_open
        if found.transaction_first_offset is not None:
            assert full.transaction_first_offset is not None
            # Its beginning may be among the deleted records.
            assert found.transaction_first_offset >= full.transaction_first_offset
            if expected.transaction_first_offset is not None:
                assert found.transaction_first_offset <= expected.transaction_first_offset


def check_committed_read(log: UnifiedLog, model: ModelLog, offset: int, bytes_max: int) -> None:
    """A read_committed consumer gets decided, committed records, and all of them."""
    fetched = log.read(offset, bytes_max, FetchIsolation.TXN_COMMITTED)
    assert fetched.aborted_transactions is not None
    if fetched.records is None:
        return
    data = fetched.records.read()
    pending = sorted(fetched.aborted_transactions, key=lambda each: each.first_offset)
    aborting: set[int] = set()
    found: list[ModelRecord] = []
    end_offset = offset
    for batch in split_batches(data):
        assert isinstance(batch, RecordBatch)
        end_offset = batch.next_offset
        while pending and pending[0].first_offset <= batch.last_offset:
            aborting.add(pending.pop(0).producer_id)
        if batch.is_control:
            if control_type(batch.records()[0]) is ControlType.ABORT:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            found += [
                ModelRecord(each.offset, each.timestamp, each.key, each.value)
                for each in batch.records(offset)
            ]
    assert end_offset <= log.last_stable_offset
    assert found == model.committed_records(offset, end_offset)


def check_time(log: UnifiedLog, model: ModelLog, timestamp: int) -> None:
    """The first record of a time is the first record of that time."""
    found = log.offset_for_timestamp(timestamp)
    expected = model.first_at_or_after(timestamp)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.timestamp, found.offset) == (expected.timestamp, expected.offset)
