"""`RecordBatchBuilder`: compression, attributes, and combinations that make no sense."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidArgument
from millstream.records import Compression, RecordBatch, RecordBatchBuilder, TimestampType


def filled() -> RecordBatchBuilder:
    builder = RecordBatchBuilder()
    builder.extend([(1000 + i, b"key", b"value" * 100) for i in range(10)])
    return builder


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_is_intact_through_every_codec(codec: Compression) -> None:
    batch = RecordBatch(filled().build(compression=codec))

    batch.check_crc()
    assert batch.compression is codec
    assert batch.record_count == len(batch.records()) == 10
    assert (batch.size < 1000) == (codec != Compression.NONE)


def test_a_level_is_passed_on() -> None:
    with pytest.raises(InvalidArgument, match="gzip has no level 99"):
        filled().build(compression=Compression.GZIP, level=99)


def test_what_is_given_is_in_the_header() -> None:
    batch = RecordBatch(
        filled().build(
            base_offset=1,
            last_offset_delta=20,
            leader_epoch=3,
            base_timestamp=999,
            max_timestamp=5000,
            producer_id=4,
            producer_epoch=5,
            base_sequence=6,
            is_transactional=True,
        )
    )

    assert (batch.base_offset, batch.last_offset_delta, batch.leader_epoch) == (1, 20, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (999, 5000)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4, 5, 6)
    assert batch.attributes == 0x10


def test_the_append_time_must_be_given() -> None:
    with pytest.raises(InvalidArgument, match="LOG_APPEND_TIME needs the time of the append"):
        filled().build(timestamp_type=TimestampType.LOG_APPEND_TIME)


def test_a_control_batch_is_not_compressed() -> None:
    assert RecordBatch(filled().build(is_control=True)).is_control
    with pytest.raises(InvalidArgument, match="a control batch is never compressed"):
        filled().build(is_control=True, compression=Compression.LZ4)


def test_timestamps_survive_a_delete_horizon() -> None:
    builder = RecordBatchBuilder(base_timestamp=9_000)
    builder.extend([(1000, b"a", None), (1001, b"b", b"x")])

    batch = RecordBatch(builder.build(has_delete_horizon=True))

    assert batch.delete_horizon_ms == 9_000
    assert batch.max_timestamp == 1001
    assert [record.timestamp for record in batch.records()] == [1000, 1001]


def test_a_builder_can_be_used_again() -> None:
    builder = filled()
    first = builder.build(compression=Compression.LZ4)

    assert builder.build(compression=Compression.LZ4) == first
    builder.clear()
    builder.append(0, None, b"next")
    assert RecordBatch(builder.build()).records()[0].value == b"next"
