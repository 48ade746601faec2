"""What compaction keeps of a batch, rule by rule."""

from __future__ import annotations

import zlib
from struct import pack
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from millstream.errors import CorruptMessage
from millstream.records import (
    Compression,
    ControlType,
    EndTxnMarker,
    LegacyBatch,
    RecordBatch,
    RecordBatchBuilder,
    TimestampType,
    control_batch,
    end_txn_marker,
    split_batches,
)
from millstream.records.layout import HEADER_SIZE
from millstream.storage.cleaner.compaction import (
    BatchCompactor,
    CleanedTransactions,
    LastRecord,
    index_batch,
)
from millstream.storage.cleaner.offset_map import ENTRY_BYTES, OffsetMap
from millstream.storage.log.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = 1_700_000_000_000
DAY = 86_400_000
Row: TypeAlias = tuple[bytes | None, bytes | None]


def batch(rows: list[Row], base_offset: int = 0, **build: Any) -> RecordBatch:
    builder = RecordBatchBuilder()
    for index, (key, value) in enumerate(rows):
        builder.append(NOW - 100 + index, key, value, [("h", b"x")])
    return RecordBatch(builder.build(base_offset=base_offset, leader_epoch=3, **build))


def marker(kind: ControlType, offset: int, producer_id: int = 7, epoch: int = 0) -> RecordBatch:
    return RecordBatch(
        end_txn_marker(
            EndTxnMarker(kind, 1),
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=NOW,
            base_offset=offset,
        )
    )


def transactional(rows: list[Row], base_offset: int, producer_id: int = 7) -> RecordBatch:
    return batch(
        rows,
        base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_offset,
        is_transactional=True,
    )


def message(magic: int, offset: int, key: bytes, value: bytes | None, timestamp: int = -1) -> bytes:
    """A message of an old format."""
    checked = pack(">bb", magic, 0)
    if magic:
        checked += pack(">q", timestamp)
    checked += pack(">i", len(key)) + key
    checked += pack(">i", -1) if value is None else pack(">i", len(value)) + value
    return pack(">qiI", offset, len(checked) + 4, zlib.crc32(checked)) + checked


class Pass:
    """One pass of the cleaner over a list of batches."""

    def __init__(
        self,
        batches: Sequence[RecordBatch | LegacyBatch],
        *,
        aborted: list[AbortedTransaction] | None = None,
        last_records: dict[int, LastRecord] | None = None,
        now_ms: int = NOW,
        up_to: int | None = None,
    ) -> None:
        offsets = OffsetMap(1 << 16)
        indexing = CleanedTransactions(aborted or [])
        for each in batches[:up_to]:
            assert index_batch(each, offsets, indexing, 0)
        self.transactions = CleanedTransactions(aborted or [])
        compactor = BatchCompactor(offsets, self.transactions, last_records or {}, now_ms, DAY)
        self.kept: list[RecordBatch] = []
        for each in batches:
            data = compactor.compact(each)
            if data is not None:
                self.kept.append(RecordBatch(data))
        assert all(each.is_intact() for each in self.kept)

    @property
    def records(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [
            (record.offset, record.key, record.value)
            for each in self.kept
            for record in each.records()
        ]


def aborted(first: int, last: int, producer_id: int = 7) -> AbortedTransaction:
    return AbortedTransaction(producer_id, first, last, last + 1)


def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    done = Pass(
        [batch([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]), batch([(b"b", b"2"), (b"c", b"1")], 3)]
    )

    assert done.records == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_thinned_batch_keeps_its_bounds_header_and_codec(codec: Compression) -> None:
    original = batch(
        [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2")],
        compression=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
    )

    (kept,) = Pass([original]).kept

    assert (kept.base_offset, kept.last_offset, kept.record_count) == (0, 3, 2)
    assert (kept.producer_id, kept.producer_epoch, kept.base_sequence) == (7, 2, 40)
    assert (kept.leader_epoch, kept.compression) == (3, codec)
    assert kept.records() == original.records(from_offset=2)


def test_the_newest_timestamp_is_that_of_the_records_left() -> None:
    (kept, _) = Pass([batch([(b"a", b"1"), (b"b", b"1")]), batch([(b"b", b"2")], 2)]).kept

    assert kept.max_timestamp == NOW - 100


def test_a_batch_that_loses_nothing_is_the_same_bytes() -> None:
    original = batch([(b"a", b"1")], compression=Compression.ZSTD)

    (kept,) = Pass([original]).kept

    assert kept.view == original.view


def test_log_append_time_survives() -> None:
    original = batch(
        [(b"a", b"1"), (b"a", b"2")],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=NOW,
    )

    (kept,) = Pass([original]).kept

    assert kept.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in kept.records()] == [NOW]


def test_records_beyond_the_map_stay() -> None:
    done = Pass([batch([(b"a", b"1")]), batch([(b"a", b"2"), (None, b"x")], 1)], up_to=1)

    assert [offset for offset, _, _ in done.records] == [0, 1, 2]


def test_records_without_a_key_go() -> None:
    assert Pass([batch([(None, b"1"), (b"a", b"1")])]).records == [(1, b"a", b"1")]


class TestTombstones:
    def test_the_first_pass_sets_the_horizon_and_keeps_them(self) -> None:
        (kept,) = Pass([batch([(b"a", b"1"), (b"a", None), (b"b", b"1")])]).kept

        assert kept.delete_horizon_ms == NOW + DAY
        assert [(each.offset, each.timestamp) for each in kept.records()] == [
            (1, NOW - 99),
            (2, NOW - 98),
        ]
        assert kept.records()[0].headers == (("h", b"x"),)
        assert (kept.base_offset, kept.last_offset, kept.max_timestamp) == (0, 2, NOW - 98)

    def test_before_the_horizon_they_stay_and_the_horizon_does_not_move(self) -> None:
        (first,) = Pass([batch([(b"a", None)])]).kept

        (second,) = Pass([first], now_ms=NOW + DAY - 1).kept

        assert second.view == first.view

    def test_after_the_horizon_they_go_and_the_others_keep_their_times(self) -> None:
        (first,) = Pass([batch([(b"a", None), (b"b", b"1")])]).kept

        (second,) = Pass([first], now_ms=NOW + DAY).kept

        assert [(each.offset, each.key, each.timestamp) for each in second.records()] == [
            (1, b"b", NOW - 99)
        ]

    def test_a_tombstone_that_was_overwritten_goes_at_once(self) -> None:
        done = Pass([batch([(b"a", None), (b"a", b"2")])])

        assert done.records == [(1, b"a", b"2")]
        assert done.kept[0].delete_horizon_ms is None


class TestTransactions:
    def test_committed_data_is_compacted_like_any_other(self) -> None:
        done = Pass(
            [
                transactional([(b"a", b"1"), (b"b", b"1")], 0),
                marker(ControlType.COMMIT, 2),
                batch([(b"a", b"2")], 3),
            ]
        )

        assert done.records[0] == (1, b"b", b"1")
        assert [each.is_control for each in done.kept] == [False, True, False]
        assert done.kept[1].delete_horizon_ms is None

    def test_aborted_data_goes_and_hides_nothing(self) -> None:
        done = Pass(
            [
                batch([(b"a", b"good")], 0),
                transactional([(b"a", b"aborted")], 1),
                marker(ControlType.ABORT, 2),
            ],
            aborted=[aborted(1, 2)],
        )

        assert done.records[0] == (0, b"a", b"good")
        assert [each.base_offset for each in done.kept] == [0, 2]
        assert done.transactions.retained_aborted == [aborted(1, 2)]

    def test_a_marker_goes_only_after_its_data_is_gone_and_the_horizon_has_passed(self) -> None:
        first = Pass(
            [transactional([(b"a", b"1")], 0), marker(ControlType.ABORT, 1)],
            aborted=[aborted(0, 1)],
        ).kept
        assert [each.delete_horizon_ms for each in first] == [None]

        second = Pass([*first], aborted=[aborted(0, 1)])
        assert [each.delete_horizon_ms for each in second.kept] == [NOW + DAY]
        assert second.transactions.retained_aborted == []

        assert len(Pass([*second.kept], now_ms=NOW + DAY - 1).kept) == 1
        assert Pass([*second.kept], now_ms=NOW + DAY).kept == []

    def test_the_marker_of_an_emptied_committed_transaction_gets_a_horizon(self) -> None:
        (kept,) = Pass([marker(ControlType.COMMIT, 5)]).kept

        assert kept.delete_horizon_ms == NOW + DAY
        assert kept.records()[0].timestamp == NOW
        assert kept.is_control
        assert kept.is_transactional

    def test_transactions_of_several_producers_are_told_apart(self) -> None:
        done = Pass(
            [
                transactional([(b"a", b"aborted")], 0, producer_id=1),
                transactional([(b"b", b"good")], 1, producer_id=2),
                marker(ControlType.ABORT, 2, producer_id=1),
                marker(ControlType.COMMIT, 3, producer_id=2),
                transactional([(b"c", b"good")], 4, producer_id=1),
                marker(ControlType.COMMIT, 5, producer_id=1),
            ],
            aborted=[aborted(0, 2, producer_id=1)],
        )

        assert [each.base_offset for each in done.kept] == [1, 2, 3, 4, 5]

    def test_other_control_records_always_stay(self) -> None:
        leader_change = RecordBatch(control_batch([(ControlType.LEADER_CHANGE, b"")], timestamp=1))

        (kept,) = Pass([leader_change]).kept

        assert kept.view == leader_change.view


class TestActiveProducers:
    def test_the_last_batch_stays_empty_for_its_sequence(self) -> None:
        old = batch([(b"a", b"1")] * 3, producer_id=7, producer_epoch=1, base_sequence=10)

        kept, _ = Pass([old, batch([(b"a", b"2")], 3)], last_records={7: LastRecord(2, 1)}).kept

        assert (kept.record_count, kept.size, kept.base_timestamp) == (0, HEADER_SIZE, -1)
        assert (kept.base_offset, kept.last_offset, kept.last_sequence) == (0, 2, 12)
        assert (kept.producer_epoch, kept.max_timestamp) == (1, old.max_timestamp)

    def test_an_empty_batch_stays_as_long_as_the_producer_and_no_longer(self) -> None:
        old = batch([(b"a", b"1")], producer_id=7, producer_epoch=1, base_sequence=0)
        empty, new = Pass([old, batch([(b"a", b"2")], 1)], last_records={7: LastRecord(0, 1)}).kept

        assert Pass([empty, new], last_records={7: LastRecord(0, 1)}).kept[0].view == empty.view
        assert [each.base_offset for each in Pass([empty, new]).kept] == [1]

    def test_earlier_batches_of_the_producer_may_go(self) -> None:
        old = batch([(b"a", b"1")], producer_id=7, producer_epoch=1, base_sequence=0)

        done = Pass([old, batch([(b"a", b"2")], 1)], last_records={7: LastRecord(50, 1)})

        assert [each.base_offset for each in done.kept] == [1]

    def test_the_last_batch_of_an_aborted_transaction_stays_empty(self) -> None:
        done = Pass(
            [transactional([(b"a", b"1")], 0), marker(ControlType.ABORT, 1)],
            aborted=[aborted(0, 1)],
            last_records={7: LastRecord(0, 0)},
        )

        assert [each.record_count for each in done.kept] == [0, 1]

    def test_a_marker_stays_where_the_producer_left_no_data(self) -> None:
        (first,) = Pass([marker(ControlType.COMMIT, 5)]).kept

        (kept,) = Pass([first], now_ms=NOW + DAY, last_records={7: LastRecord(None, 0)}).kept

        assert (kept.record_count, kept.is_control, kept.last_offset) == (0, True, 5)
        assert Pass([kept], now_ms=NOW + DAY).kept == []


class TestOldFormats:
    def test_messages_become_batches_of_today(self) -> None:
        data = message(0, 4, b"a", b"1") + message(1, 5, b"a", b"2", timestamp=9)
        data += message(1, 6, b"b", None, timestamp=10)

        done = Pass(list(split_batches(data)))

        assert done.records == [(5, b"a", b"2"), (6, b"b", None)]
        assert [each.delete_horizon_ms for each in done.kept] == [None, NOW + DAY]
        assert [each.records()[0].timestamp for each in done.kept] == [9, 10]


class TestIndexing:
    def test_a_batch_that_does_not_fit_ends_the_map_before_it(self) -> None:
        offsets = OffsetMap(ENTRY_BYTES * 5)
        rows: list[Row] = [(b"%d" % number, b"v") for number in range(offsets.capacity)]
        transactions = CleanedTransactions()

        assert index_batch(batch(rows[:2]), offsets, transactions, 0)
        assert not index_batch(batch([*rows[2:], (b"x", b"v")], 2), offsets, transactions, 0)

        assert offsets.latest_offset == 1

    def test_records_before_the_dirty_part_are_not_noted(self) -> None:
        offsets = OffsetMap(1024)

        index_batch(batch([(b"a", b"1"), (b"b", b"1")]), offsets, CleanedTransactions(), 1)

        assert (offsets.get(b"a"), offsets.get(b"b"), offsets.latest_offset) == (-1, 1, 1)

    def test_records_that_cannot_be_read_name_their_batch(self) -> None:
        original = bytearray(batch([(b"a", b"1")], 42).view)
        original[HEADER_SIZE:] = b"\xff" * (len(original) - HEADER_SIZE)

        with pytest.raises(CorruptMessage, match="the batch at offset 42: record 0"):
            index_batch(RecordBatch(original), OffsetMap(1024), CleanedTransactions(), 0)
