"""What is read from the logs for share groups: transactions, and limits of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import (
    NotCoordinator,
)
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from millstream.storage.log.producer_entry import AppendOrigin
from tests.unit.server.share_members import (
    RELEASE,
    ShareMember,
    acquired,
    configure,
    offsets_in,
    produce,
)
from tests.unit.storage.batches import NOW_MS, batch_bytes

if TYPE_CHECKING:
    import pytest

    from tests.unit.server.harness import Broker

LOCK_MS = 30_000


# Transactions.


def aborted_then_plain(broker: Broker) -> None:
    """Offsets 0 and 1 are of an aborted transaction, 2 is its marker, 3 is plain."""
    partition = broker.partition()
    records = batch_bytes(records=2, pid=7, epoch=0, sequence=0, is_transactional=True)
    partition.append_as_leader(bytearray(records), NOW_MS, 0, origin=AppendOrigin.COORDINATOR)
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0])],
    )
    broker.ask(WriteTxnMarkersRequest(markers=[marker]))
    produce(broker, 1)
    assert partition.log.high_watermark == 4


def test_markers_are_for_nobody(broker: Broker, ann: ShareMember) -> None:
    aborted_then_plain(broker)

    assert ann.take() == {0: [(0, 1, 1), (3, 3, 1)]}


def test_what_was_aborted_is_not_for_groups_that_read_what_is_committed(
    broker: Broker, ann: ShareMember
) -> None:
    configure(broker, ("share.isolation.level", "read_committed"))
    aborted_then_plain(broker)

    assert ann.take() == {0: [(3, 3, 1)]}


def test_an_open_transaction_is_waited_for(broker: Broker, ann: ShareMember) -> None:
    configure(broker, ("share.isolation.level", "read_committed"))
    records = batch_bytes(records=2, pid=7, epoch=0, sequence=0, is_transactional=True)
    broker.partition().append_as_leader(
        bytearray(records), NOW_MS, 0, origin=AppendOrigin.COORDINATOR
    )
    call = ann.call_fetch(max_wait_ms=500)
    assert call.is_pending

    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0])],
    )
    broker.ask(WriteTxnMarkersRequest(markers=[marker]))
    broker.settle()

    assert acquired(call.response) == {0: [(0, 1, 1)]}


# Bytes.


def test_large_batches_are_read_piece_by_piece(broker: Broker, ann: ShareMember) -> None:
    for _ in range(4):
        broker.produce(batch_bytes(records=2, value_bytes=100_000))

    answer = ann.fetch()

    assert acquired(answer) == {0: [(0, 1, 1), (2, 3, 1), (4, 5, 1), (6, 7, 1)]}
    assert offsets_in(answer) == list(range(8))


def test_the_limit_of_bytes_lets_one_batch_through(broker: Broker, ann: ShareMember) -> None:
    for _ in range(3):
        produce(broker, 2)

    answer = ann.fetch(max_bytes=1)

    assert acquired(answer) == {0: [(0, 1, 1)]}
    assert offsets_in(answer) == [0, 1]


def test_only_batches_with_records_for_the_member_are_sent(
    broker: Broker, ann: ShareMember, bob: ShareMember
) -> None:
    for _ in range(3):
        produce(broker, 2)
    ann.take(max_records=2)
    bob.take(max_records=2)
    ann.acknowledge({0: [(0, 1, [RELEASE])]})

    answer = ann.fetch()

    assert acquired(answer) == {0: [(0, 1, 2), (4, 5, 1)]}
    assert {0, 1, 4, 5} <= set(offsets_in(answer))


def test_who_does_not_wait_is_answered_while_the_state_cannot_be_read(
    broker: Broker, ann: ShareMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = broker.coordinators.facades.shares.states
    monkeypatch.setattr(states, "read", lambda *given: given[-1](NotCoordinator("not here")))

    assert ann.take(max_wait_ms=0) == {}
