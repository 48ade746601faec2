"""Idempotence and transactions as one partition sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from millstream.records.batch import RecordBatch
from millstream.records.builder import RecordBatchBuilder
from millstream.records.control import ControlType, control_batch
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.storage.log.producer_state import ProducerStateManager
from tests.unit.storage.batches import NOW_MS, batch_bytes, marker_batch, producer_batch

if TYPE_CHECKING:
    from millstream.storage.filesystem import FileSystem

CLIENT, COORDINATOR, REPLICATION = AppendOrigin
DAY_MS = 86_400_000
SEQUENCE_MAX = 2**31 - 1


@pytest.fixture
def manager(filesystem: FileSystem, directory: str) -> ProducerStateManager:
    return ProducerStateManager(
        filesystem, directory, expiration_ms=DAY_MS, verifies_transactions=False
    )


@pytest.fixture
def verifying(filesystem: FileSystem, directory: str) -> ProducerStateManager:
    return ProducerStateManager(filesystem, directory, expiration_ms=DAY_MS)


def append(
    manager: ProducerStateManager, batch: RecordBatch, origin: AppendOrigin = CLIENT
) -> None:
    """What a log does: check, then record, then complete."""
    if not batch.is_control:
        manager.check_append(batch, origin)
    completed = manager.record(batch)
    if completed is not None:
        manager.complete(completed)


# Sequences.


def test_sequences_of_an_epoch_follow_one_another(manager: ProducerStateManager) -> None:
    append(manager, producer_batch(0, sequence=0, records=3))
    append(manager, producer_batch(3, sequence=3))

    for wrong in (3, 5, 0):
        with pytest.raises(OutOfOrderSequenceNumber, match=f"sent sequence {wrong}, expected 4"):
            append(manager, producer_batch(4, sequence=wrong))


def test_a_sequence_wraps_to_zero(manager: ProducerStateManager) -> None:
    append(manager, producer_batch(0, sequence=SEQUENCE_MAX - 1, records=3))

    append(manager, producer_batch(3, sequence=1))

    assert manager.producers[1].last_sequence == 1
    wrapped = manager.producers[1].batches[0]
    assert (wrapped.first_sequence, wrapped.last_sequence) == (SEQUENCE_MAX - 1, 0)


def test_the_last_sequence_is_followed_by_zero(manager: ProducerStateManager) -> None:
    append(manager, producer_batch(0, sequence=SEQUENCE_MAX))

    append(manager, producer_batch(1, sequence=0))

    assert manager.producers[1].last_sequence == 0


def test_an_unknown_producer_may_begin_anywhere(manager: ProducerStateManager) -> None:
    append(manager, producer_batch(0, sequence=17))

    assert manager.producers[1].last_sequence == 17


def test_a_new_epoch_begins_at_zero_and_forgets_the_old_batches(
    manager: ProducerStateManager,
) -> None:
    old = producer_batch(0, sequence=0)
    append(manager, old)

    with pytest.raises(OutOfOrderSequenceNumber, match="expected 0"):
        append(manager, producer_batch(1, epoch=1, sequence=1))
    append(manager, producer_batch(1, epoch=1, sequence=0))

    assert manager.find_duplicate(old) is None


def test_an_older_epoch_is_fenced(manager: ProducerStateManager) -> None:
    append(manager, producer_batch(0, epoch=3, sequence=0))

    with pytest.raises(InvalidProducerEpoch, match="has epoch 2, this partition has seen 3"):
        append(manager, producer_batch(1, epoch=2, sequence=0))


def test_the_coordinator_is_checked_for_its_epoch_only(manager: ProducerStateManager) -> None:
    append(manager, producer_batch(0, epoch=3, sequence=0))

    append(manager, producer_batch(1, epoch=3, sequence=99), COORDINATOR)

    with pytest.raises(InvalidProducerEpoch):
        append(manager, producer_batch(2, epoch=2, sequence=100), COORDINATOR)


def test_replication_is_not_checked(manager: ProducerStateManager) -> None:
    append(manager, producer_batch(0, epoch=3, sequence=0))

    append(manager, producer_batch(1, epoch=2, sequence=50), REPLICATION)

    assert manager.producers[1].epoch == 2


def test_batches_without_a_producer_only_move_the_end(manager: ProducerStateManager) -> None:
    batch = RecordBatch(batch_bytes(7, records=3))

    append(manager, batch)

    assert manager.end_offset == 10
    assert not manager.producers
    assert manager.find_duplicate(batch) is None


# Duplicates.


def test_the_last_five_batches_are_recognised_with_their_offsets(
    manager: ProducerStateManager,
) -> None:
    batches = [producer_batch(10 * i, sequence=2 * i, records=2) for i in range(6)]
    for batch in batches:
        append(manager, batch)

    found = [manager.find_duplicate(batch) for batch in batches]

    assert found[0] is None
    assert [each.first_offset for each in found[1:] if each] == [10, 20, 30, 40, 50]
    assert [each.last_offset for each in found[1:] if each] == [11, 21, 31, 41, 51]


@pytest.mark.parametrize(("sequence", "records", "epoch"), [(0, 1, 0), (1, 1, 0), (0, 2, 1)])
def test_a_batch_is_a_duplicate_only_with_exactly_the_same_sequences(
    manager: ProducerStateManager, sequence: int, records: int, epoch: int
) -> None:
    append(manager, producer_batch(0, sequence=0, records=2))

    other = producer_batch(5, sequence=sequence, records=records, epoch=epoch)

    assert manager.find_duplicate(other) is None


# Transactions.


def test_an_open_transaction_holds_the_first_unstable_offset(manager: ProducerStateManager) -> None:
    assert manager.first_unstable_offset() is None
    append(manager, producer_batch(5, pid=1, is_transactional=True))
    append(manager, producer_batch(6, pid=2, is_transactional=True))
    append(manager, producer_batch(7, pid=1, sequence=1, is_transactional=True))

    assert manager.first_unstable_offset() == 5
    assert manager.has_open_transaction(1, 0)
    assert not manager.has_open_transaction(1, 1)
    assert not manager.has_open_transaction(9, 0)


def test_a_completed_transaction_holds_until_its_marker_is_committed(
    manager: ProducerStateManager,
) -> None:
    append(manager, producer_batch(5, pid=1, is_transactional=True))
    append(manager, marker_batch(6, pid=1))

    assert manager.first_unstable_offset() == 5
    manager.on_high_watermark(6)
    assert manager.first_unstable_offset() == 5
    manager.on_high_watermark(7)
    assert manager.first_unstable_offset() is None


def test_the_first_unstable_offset_is_the_smallest_of_open_and_completed(
    manager: ProducerStateManager,
) -> None:
    append(manager, producer_batch(1, pid=1, is_transactional=True))
    append(manager, producer_batch(2, pid=2, is_transactional=True))
    append(manager, producer_batch(3, pid=3, is_transactional=True))
    append(manager, marker_batch(4, pid=3))
    append(manager, marker_batch(5, pid=1))

    assert manager.first_unstable_offset() == 1
    manager.on_high_watermark(6)
    assert manager.first_unstable_offset() == 2


def test_an_abort_tells_where_the_transaction_was_and_what_is_stable_after(
    manager: ProducerStateManager,
) -> None:
    manager.record(producer_batch(5, pid=1, is_transactional=True))
    manager.record(producer_batch(8, pid=2, is_transactional=True))

    completed = manager.record(marker_batch(9, pid=1, is_abort=True))

    assert completed == (1, 5, 9, True)
    assert manager.last_stable_offset_after(completed) == 8
    manager.complete(completed)
    committed = manager.record(marker_batch(10, pid=2))
    assert committed == (2, 8, 10, False)
    assert manager.last_stable_offset_after(committed) == 11


def test_a_marker_without_a_transaction_completes_nothing(manager: ProducerStateManager) -> None:
    assert manager.record(marker_batch(0, pid=1, epoch=4, coordinator_epoch=6)) is None

    assert manager.producers[1].epoch == 4
    assert manager.producers[1].coordinator_epoch == 6


def test_a_batch_outside_of_the_open_transaction_is_refused(manager: ProducerStateManager) -> None:
    append(manager, producer_batch(0, sequence=0, is_transactional=True))

    with pytest.raises(InvalidTxnState, match="transaction open"):
        append(manager, producer_batch(1, sequence=1, is_transactional=False))


def test_a_marker_of_a_later_epoch_fences_the_producer(manager: ProducerStateManager) -> None:
    append(manager, producer_batch(0, epoch=1, is_transactional=True))
    append(manager, marker_batch(1, epoch=2, is_abort=True))

    with pytest.raises(InvalidProducerEpoch):
        append(manager, producer_batch(2, epoch=1, sequence=1, is_transactional=True))
    append(manager, producer_batch(2, epoch=2, sequence=0, is_transactional=True))


@pytest.mark.parametrize(
    ("version", "epoch", "is_allowed"),
    [(1, 4, False), (1, 5, True), (1, 6, True), (2, 5, False), (2, 6, True)],
)
def test_the_marker_of_an_open_transaction_needs_an_epoch_new_enough(
    manager: ProducerStateManager, version: int, epoch: int, is_allowed: bool
) -> None:
    append(manager, producer_batch(0, epoch=5, is_transactional=True))

    if is_allowed:
        manager.check_marker(1, epoch, coordinator_epoch=0, transaction_version=version)
    else:
        with pytest.raises(InvalidProducerEpoch, match=f"epoch {epoch}"):
            manager.check_marker(1, epoch, coordinator_epoch=0, transaction_version=version)


def test_the_retry_of_a_marker_is_accepted_in_both_versions(manager: ProducerStateManager) -> None:
    append(manager, producer_batch(0, epoch=5, is_transactional=True))
    append(manager, marker_batch(1, epoch=6))

    manager.check_marker(1, 6, coordinator_epoch=0, transaction_version=2)
    manager.check_marker(1, 6, coordinator_epoch=0, transaction_version=1)
    manager.check_marker(99, 0, coordinator_epoch=0, transaction_version=2)


def test_the_marker_of_an_old_coordinator_is_refused(manager: ProducerStateManager) -> None:
    append(manager, marker_batch(0, epoch=1, coordinator_epoch=7))

    with pytest.raises(TransactionCoordinatorFenced, match="coordinator epoch 6"):
        manager.check_marker(1, 2, coordinator_epoch=6, transaction_version=2)


def test_control_batches_that_end_nothing_are_passed_over(manager: ProducerStateManager) -> None:
    leader_change = RecordBatch(
        control_batch([(ControlType.LEADER_CHANGE, b"")], timestamp=NOW_MS, producer_id=1)
    )

    assert manager.record(leader_change) is None
    assert manager.end_offset == 1
    assert not manager.producers


def test_a_marker_that_compaction_emptied_still_fences_older_epochs(
    manager: ProducerStateManager,
) -> None:
    emptied = RecordBatch(
        RecordBatchBuilder().build(
            base_offset=5,
            last_offset_delta=0,
            base_timestamp=-1,
            max_timestamp=NOW_MS,
            producer_id=1,
            producer_epoch=3,
            is_control=True,
            is_transactional=True,
        )
    )

    assert manager.record(emptied) is None
    assert manager.end_offset == 6
    with pytest.raises(InvalidProducerEpoch, match="has seen 3"):
        manager.check_append(producer_batch(6, epoch=2, is_transactional=True), CLIENT)
    assert manager.remove_expired(NOW_MS + DAY_MS - 1) == 0
    assert manager.remove_expired(NOW_MS + DAY_MS) == 1


# Verification.


def test_the_first_batch_of_a_transaction_needs_the_guard_of_its_verification(
    verifying: ProducerStateManager,
) -> None:
    batch = producer_batch(0, is_transactional=True)

    with pytest.raises(InvalidTxnState, match="verified"):
        verifying.check_append(batch, CLIENT)
    guard = verifying.begin_verification(1, 0, 0, NOW_MS, supports_epoch_bump=False)
    with pytest.raises(InvalidTxnState, match="verified"):
        verifying.check_append(batch, CLIENT)
    verifying.check_append(batch, CLIENT, guard)
    verifying.record(batch)

    assert verifying.begin_verification(1, 0, 1, NOW_MS, supports_epoch_bump=False) is None
    verifying.check_append(producer_batch(1, sequence=1, is_transactional=True), CLIENT)


def test_a_marker_that_lands_meanwhile_makes_the_guard_worthless(
    verifying: ProducerStateManager,
) -> None:
    guard = verifying.begin_verification(1, 0, 0, NOW_MS, supports_epoch_bump=False)

    verifying.record(marker_batch(0, is_abort=True))

    with pytest.raises(InvalidTxnState):
        verifying.check_append(producer_batch(1, is_transactional=True), CLIENT, guard)


def test_a_new_transaction_of_version_2_begins_at_zero(manager: ProducerStateManager) -> None:
    guard = manager.begin_verification(1, 0, 4, NOW_MS, supports_epoch_bump=True)

    with pytest.raises(OutOfOrderSequenceNumber, match="expected 0"):
        manager.check_append(producer_batch(0, sequence=4, is_transactional=True), CLIENT, guard)


def test_a_batch_does_not_overtake_another_that_waits_for_verification(
    verifying: ProducerStateManager,
) -> None:
    guard = verifying.begin_verification(1, 0, 3, NOW_MS, supports_epoch_bump=False)
    assert guard is verifying.begin_verification(1, 0, 2, NOW_MS, supports_epoch_bump=False)

    with pytest.raises(OutOfOrderSequenceNumber, match="at most 2"):
        verifying.check_append(producer_batch(0, sequence=3, is_transactional=True), CLIENT, guard)
    verifying.check_append(producer_batch(0, sequence=2, is_transactional=True), CLIENT, guard)


def test_a_verification_of_a_later_epoch_begins_anew(verifying: ProducerStateManager) -> None:
    verifying.begin_verification(1, 0, 0, NOW_MS, supports_epoch_bump=False)
    guard = verifying.begin_verification(1, 1, 5, NOW_MS, supports_epoch_bump=False)

    verifying.check_append(
        producer_batch(0, epoch=1, sequence=5, is_transactional=True), CLIENT, guard
    )


def test_verification_can_be_turned_off_and_on_while_brokers_run(
    verifying: ProducerStateManager,
) -> None:
    batch = producer_batch(0, is_transactional=True)
    verifying.verifies_transactions = False

    assert verifying.begin_verification(1, 0, 0, NOW_MS, supports_epoch_bump=False) is None
    verifying.check_append(batch, CLIENT)

    verifying.verifies_transactions = True
    with pytest.raises(InvalidTxnState, match="verified"):
        verifying.check_append(batch, CLIENT)


def test_partitions_of_newer_clients_are_added_though_nothing_is_verified(
    manager: ProducerStateManager,
) -> None:
    assert manager.begin_verification(1, 0, 0, NOW_MS, supports_epoch_bump=True) is not None


# Time.


def test_idle_producers_are_forgotten_unless_a_transaction_is_open(
    manager: ProducerStateManager,
) -> None:
    append(manager, producer_batch(0, pid=1, timestamp=NOW_MS))
    append(manager, producer_batch(1, pid=2, timestamp=NOW_MS + 1))
    append(manager, producer_batch(2, pid=3, timestamp=NOW_MS, is_transactional=True))

    assert manager.remove_expired(NOW_MS + DAY_MS) == 1
    assert set(manager.producers) == {2, 3}


def test_stale_verifications_are_forgotten(filesystem: FileSystem, directory: str) -> None:
    manager = ProducerStateManager(filesystem, directory, expiration_ms=DAY_MS)
    guard = manager.begin_verification(1, 0, 0, NOW_MS, supports_epoch_bump=False)

    manager.remove_expired(NOW_MS + DAY_MS)

    with pytest.raises(InvalidTxnState):
        manager.check_append(producer_batch(0, is_transactional=True), CLIENT, guard)
