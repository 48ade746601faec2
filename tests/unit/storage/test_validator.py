"""What a leader refuses, what it changes in a batch, and what it leaves alone."""

from __future__ import annotations

from struct import pack_into

import pytest

from millstream.errors import (
    ApiError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from millstream.records import Compression, RecordBatch, RecordBatchBuilder, TimestampType
from millstream.records.control import ControlType, EndTxnMarker, end_txn_marker
from millstream.records.layout import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
)
from millstream.storage.log.config import LogConfig
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.storage.log.validator import LogValidator, check_replicated
from tests.unit.storage.client_batches import EXPECTED, NOW, ROWS, admit, batch, contents, resealed


def test_an_ordinary_batch_gets_its_place_in_the_callers_own_buffer() -> None:
    data = batch()

    admitted = admit(data)

    assert (admitted.base_offset, admitted.leader_epoch) == (100, 7)
    assert RecordBatch(data).base_offset == 100
    assert admitted.is_intact()
    assert contents(admitted) == EXPECTED


def test_a_read_only_buffer_is_not_touched() -> None:
    data = bytes(batch())

    admitted = admit(data)

    assert admitted.base_offset == 100
    assert RecordBatch(data).base_offset == 0


@pytest.mark.parametrize("codec", list(Compression))
def test_the_producers_codec_is_kept(codec: Compression) -> None:
    data = batch(compression=codec)
    inside = bytes(data[HEADER_SIZE:])

    admitted = admit(data)

    assert bytes(admitted.view[HEADER_SIZE:]) == inside


@pytest.mark.parametrize("from_codec", list(Compression))
@pytest.mark.parametrize("to_codec", list(Compression))
def test_a_topics_own_codec_is_applied(from_codec: Compression, to_codec: Compression) -> None:
    name = "uncompressed" if to_codec == Compression.NONE else to_codec.config_name
    data = batch(compression=from_codec, producer_id=5, producer_epoch=1, base_sequence=9)

    admitted = admit(data, compression_type=name)

    assert admitted.compression == to_codec
    assert admitted.is_intact()
    assert contents(admitted) == EXPECTED
    assert (admitted.producer_id, admitted.base_sequence, admitted.max_timestamp) == (5, 9, NOW)


def test_the_level_of_the_topics_codec_is_used() -> None:
    rows = [(NOW, None, bytes(range(256)) * 50)] * 20
    sizes = {
        level: admit(batch(rows), compression_type="gzip", compression_gzip_level=level).size
        for level in (1, 9)
    }

    assert sizes[1] != sizes[9]


def test_control_batches_are_never_recompressed() -> None:
    marker = end_txn_marker(
        EndTxnMarker(ControlType.COMMIT, 3), producer_id=5, producer_epoch=0, timestamp=NOW
    )

    admitted = admit(marker, AppendOrigin.COORDINATOR, compression_type="zstd")

    assert admitted.compression == Compression.NONE


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_log_append_time_rewrites_the_header_only(codec: Compression) -> None:
    data = batch([(5, b"k", b"v"), (6, b"k", b"v")], compression=codec)
    inside = bytes(data[HEADER_SIZE:])

    admitted = admit(data, message_timestamp_type="LogAppendTime")

    assert admitted.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert admitted.is_intact()
    assert [each.timestamp for each in admitted.records()] == [NOW, NOW]
    assert bytes(admitted.view[HEADER_SIZE:]) == inside


def test_a_wrong_checksum_is_corrupt() -> None:
    data = batch()
    data[-1] ^= 1

    with pytest.raises(CorruptMessage, match="checksum"):
        admit(data)


def test_old_formats_are_refused() -> None:
    data = batch()
    data[16] = 1

    with pytest.raises(InvalidRecord, match="magic 1"):
        admit(data)


def test_two_batches_in_one_produce_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="exactly one batch"):
        admit(batch() + batch())


def test_a_coordinator_may_append_several_batches() -> None:
    validator = LogValidator(LogConfig())

    admitted = validator.inspect(batch() + batch(), NOW, AppendOrigin.COORDINATOR).number(10, 1)

    assert [each.base_offset for each in admitted] == [10, 13]


def test_a_client_does_not_choose_offsets() -> None:
    with pytest.raises(InvalidRecord, match="begins at offset 4, it must be 0"):
        admit(batch(base_offset=4))


def test_a_batch_above_the_topics_limit_is_refused() -> None:
    data = batch()

    assert admit(data[:], max_message_bytes=len(data)).size == len(data)
    with pytest.raises(MessageTooLarge, match=r"max.message.bytes"):
        admit(data, max_message_bytes=len(data) - 1)


def test_the_limit_holds_after_recompression_too() -> None:
    data = batch([(NOW, None, bytes(10_000))], compression=Compression.ZSTD)

    with pytest.raises(MessageTooLarge, match=r"10.*bytes"):
        admit(data, max_message_bytes=1000, compression_type="uncompressed")


def test_an_append_above_the_segment_size_is_refused() -> None:
    data = batch()

    with pytest.raises(RecordListTooLarge, match=r"segment.bytes"):
        admit(data, internal_segment_bytes=len(data) - 1)


@pytest.mark.parametrize("last_offset_delta", [-1, 0, 1, 3])
def test_a_count_that_contradicts_the_last_offset_is_refused(last_offset_delta: int) -> None:
    data = batch()
    pack_into(">i", data, LAST_OFFSET_DELTA_AT, last_offset_delta)

    with pytest.raises(InvalidRecord, match="3 records and last offset delta"):
        admit(resealed(data))


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="0 records"):
        admit(batch([], last_offset_delta=-1, base_timestamp=0))


def test_clients_may_not_write_control_records() -> None:
    with pytest.raises(InvalidRecord, match="control records"):
        admit(batch(is_control=True))


def test_clients_may_not_set_a_delete_horizon() -> None:
    with pytest.raises(InvalidRecord, match="delete horizon"):
        admit(batch(has_delete_horizon=True))


def test_an_unknown_codec_is_refused() -> None:
    data = batch()
    pack_into(">h", data, ATTRIBUTES_AT, 5)

    with pytest.raises(UnsupportedCompressionType):
        admit(resealed(data))


def test_a_producer_needs_a_sequence() -> None:
    with pytest.raises(InvalidRecord, match="sequence -1"):
        admit(batch(producer_id=5, producer_epoch=0))


def test_a_compacted_topic_needs_keys_and_the_records_without_are_named() -> None:
    rows = [(NOW, b"k", b"v"), (NOW, None, b"v"), (NOW, b"", b"v"), (NOW, None, b"v")]

    with pytest.raises(InvalidRecord, match="2 records have no key, the first is number 1") as info:
        admit(batch(rows), cleanup_policy=("compact",))

    assert [index for index, _ in info.value.record_errors] == [1, 3]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_a_compacted_topic_takes_keyed_records_as_they_are(codec: Compression) -> None:
    data = batch(compression=codec)
    inside = bytes(data[HEADER_SIZE:])

    admitted = admit(data, cleanup_policy=("compact", "delete"))

    assert bytes(admitted.view[HEADER_SIZE:]) == inside


def test_only_so_many_faulty_records_are_named() -> None:
    with pytest.raises(InvalidRecord) as info:
        admit(batch([(NOW, None, b"v")] * 500), cleanup_policy=("compact",))

    assert len(info.value.record_errors) == 100


@pytest.mark.parametrize(
    ("ahead", "error"), [(3_600_000, None), (3_600_001, InvalidTimestamp), (-(10**12), None)]
)
def test_the_future_has_a_limit(ahead: int, error: type[ApiError] | None) -> None:
    data = batch([(NOW, b"k", b"v"), (NOW + ahead, b"k", b"v")])

    if error is None:
        assert admit(data).record_count == 2
    else:
        with pytest.raises(error, match=r"message.timestamp.after.max.ms"):
            admit(data)


def test_no_timestamp_is_a_timestamp() -> None:
    admitted = admit(batch([(-1, b"k", b"v")]), message_timestamp_before_max_ms=5)

    assert admitted.max_timestamp == -1


def test_records_that_are_too_old_are_named() -> None:
    rows = [(NOW - 10, b"k", b"v"), (NOW - 11, b"k", b"v"), (NOW, b"k", b"v")]

    with pytest.raises(InvalidTimestamp, match="record 1 has timestamp") as info:
        admit(batch(rows), message_timestamp_before_max_ms=10)

    assert [index for index, _ in info.value.record_errors] == [1]


def test_timestamps_do_not_matter_where_the_broker_sets_them() -> None:
    data = batch([(NOW + 10**9, b"k", b"v")])

    admitted = admit(
        data, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1
    )

    assert admitted.max_timestamp == NOW


def test_records_that_cannot_be_read_are_refused_where_they_are_looked_at() -> None:
    data = batch()
    data[HEADER_SIZE:] = b"\xff" * (len(data) - HEADER_SIZE)

    with pytest.raises(InvalidRecord, match="cannot be read"):
        admit(resealed(data), cleanup_policy=("compact",))


def test_a_lying_newest_timestamp_is_corrected_where_records_are_looked_at() -> None:
    data = batch()
    RecordBatch(data).stamp(TimestampType.CREATE_TIME, NOW + 1000)

    admitted = admit(data, cleanup_policy=("compact",))

    assert admitted.max_timestamp == NOW
    assert admitted.is_intact()


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_offsets_with_holes_are_renumbered_where_records_are_looked_at(codec: Compression) -> None:
    builder = RecordBatchBuilder()
    for delta, (timestamp, key, value) in zip([1, 3, 7], ROWS, strict=True):
        builder.append(timestamp, key, value, [("h", b"x")], offset_delta=delta)
    data = builder.build(
        compression=codec, last_offset_delta=2, producer_id=4, producer_epoch=2, base_sequence=0
    )

    admitted = admit(data, cleanup_policy=("compact",))

    assert contents(admitted) == EXPECTED
    assert admitted.records()[0].headers == (("h", b"x"),)
    assert (admitted.producer_id, admitted.producer_epoch, admitted.compression) == (4, 2, codec)


class TestReplicatedBatches:
    def test_batches_are_taken_as_they_are(self) -> None:
        data = batch(base_offset=5, leader_epoch=2) + batch(base_offset=10, leader_epoch=3)

        accepted = check_replicated(data, expected_offset=5, leader_epoch_max=3)

        assert [(each.base_offset, each.leader_epoch) for each in accepted] == [(5, 2), (10, 3)]

    def test_a_batch_the_fetch_cut_off_is_left_out(self) -> None:
        data = batch(base_offset=0) + batch(base_offset=3)[:-1]

        assert len(check_replicated(data, 0, 5)) == 1

    def test_a_wrong_checksum_is_corrupt(self) -> None:
        data = batch(base_offset=0)
        data[-1] ^= 1

        with pytest.raises(CorruptMessage, match="checksum"):
            check_replicated(data, 0, 5)

    def test_offsets_that_go_back_are_corrupt(self) -> None:
        with pytest.raises(CorruptMessage, match="offsets 2 to 4, this log goes on at 3"):
            check_replicated(batch(base_offset=0) + batch(base_offset=2), 0, 5)

    def test_batches_of_a_later_epoch_than_the_fetch_are_left_for_the_next(self) -> None:
        data = batch(base_offset=0, leader_epoch=2) + batch(base_offset=3, leader_epoch=4)

        assert len(check_replicated(data, 0, 3)) == 1
