"""Control batches: transaction markers, raft's records, and what the future may bring."""

from __future__ import annotations

import pytest

from millstream.errors import CorruptMessage
from millstream.records import (
    ControlType,
    EndTxnMarker,
    Record,
    RecordBatch,
    control_batch,
    control_type,
    end_txn_marker,
    parse_end_txn_marker,
)
from tests.unit.records.test_writing import COMMIT_MARKER, TIME

COMMIT_KEY, COMMIT_VALUE = bytes.fromhex("00000001"), bytes.fromhex("000000000007")


def test_the_golden_marker_is_written_and_read() -> None:
    marker = EndTxnMarker(ControlType.COMMIT, coordinator_epoch=7)

    batch = end_txn_marker(
        marker,
        producer_id=4000,
        producer_epoch=0,
        timestamp=TIME + 10,
        base_offset=2,
        leader_epoch=0,
    )

    assert batch == COMMIT_MARKER
    view = RecordBatch(batch)
    assert view.is_control
    assert view.is_transactional
    assert [parse_end_txn_marker(record) for record in view.records()] == [marker]


def test_an_abort_is_told_from_a_commit() -> None:
    marker = EndTxnMarker(ControlType.ABORT, coordinator_epoch=0)
    batch = end_txn_marker(marker, producer_id=1, producer_epoch=2, timestamp=3)

    (record,) = RecordBatch(batch).records()

    assert control_type(record) is ControlType.ABORT
    assert parse_end_txn_marker(record) == marker


def test_a_control_batch_may_have_several_records() -> None:
    batch = RecordBatch(
        control_batch(
            [(ControlType.KRAFT_VERSION, b"v"), (ControlType.KRAFT_VOTERS, b"w")], timestamp=5
        )
    )

    assert [control_type(record) for record in batch.records()] == [
        ControlType.KRAFT_VERSION,
        ControlType.KRAFT_VOTERS,
    ]
    assert (batch.is_control, batch.is_transactional, batch.producer_id) == (True, False, -1)


def test_types_and_versions_of_the_future_are_tolerated() -> None:
    unknown = Record(0, 0, bytes.fromhex("00000063"), b"")
    later = Record(0, 0, bytes.fromhex("00050001ffff"), bytes.fromhex("000900000007ffff"))

    assert control_type(unknown) is None
    assert parse_end_txn_marker(later) == EndTxnMarker(ControlType.COMMIT, 7)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (None, COMMIT_VALUE, "the control record at offset 9 has no whole key"),
        (b"\0\0\0", COMMIT_VALUE, "the control record at offset 9 has no whole key"),
        (
            bytes.fromhex("ffff0001"),
            COMMIT_VALUE,
            "the control record at offset 9 has key version -1",
        ),
        (bytes.fromhex("00000002"), b"", "the control record at offset 9 ends no transaction"),
        (bytes.fromhex("00000063"), b"", "the control record at offset 9 ends no transaction"),
        (COMMIT_KEY, None, "the control record at offset 9 has no whole value"),
        (COMMIT_KEY, b"\0\0\0\0\0", "the control record at offset 9 has no whole value"),
        (
            COMMIT_KEY,
            bytes.fromhex("fffe00000007"),
            "the control record at offset 9 has value version -2",
        ),
    ],
)
def test_what_is_no_marker_is_refused(key: bytes | None, value: bytes | None, text: str) -> None:
    with pytest.raises(CorruptMessage) as caught:
        parse_end_txn_marker(Record(9, 0, key, value))

    assert str(caught.value) == text
