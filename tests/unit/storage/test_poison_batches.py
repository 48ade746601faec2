"""A right checksum around records that no consumer could read: a leader refuses them."""

from __future__ import annotations

import gzip
from random import Random
from struct import pack, pack_into
from typing import Any

import pytest

from millstream import _accel
from millstream.errors import InvalidRecord, MessageTooLarge
from millstream.records import Compression, RecordBatch
from millstream.records.layout import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
)
from millstream.storage.log.config import LogConfig
from millstream.storage.log.producer_entry import AppendOrigin
from millstream.storage.log.validator import LogValidator, TooMuchToUnpack
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.client_batches import EXPECTED, NOW, ROWS, admit, batch, contents, resealed
from tests.unit.storage.logs import open_log

PACKED = [codec for codec in Compression if codec]


def counted(data: bytearray, count: int) -> bytearray:
    """The batch with another record count, and the last offset delta that belongs to it."""
    pack_into(">i", data, RECORD_COUNT_AT, count)
    pack_into(">i", data, LAST_OFFSET_DELTA_AT, count - 1)
    return resealed(data)


def with_body(body: bytes, codec: int = 0, count: int = 3) -> bytearray:
    """The header of a good batch over other records."""
    data = batch()[:HEADER_SIZE] + body
    pack_into(">i", data, LENGTH_AT, len(data) - LOG_OVERHEAD)
    data[ATTRIBUTES_AT + 1] = codec
    return counted(data, count)


def record(delta: int, *, timestamp: int = 0, length: int = 0) -> bytes:
    """A small record; its length field may lie by so much."""
    body = pack(">B", 0) + _zigzag(timestamp) + _zigzag(delta) + _zigzag(1) + b"k" + b"\x02v\x00"
    return _zigzag(len(body) + length) + body


def _zigzag(number: int) -> bytes:
    assert -64 <= number < 64
    return bytes([number << 1 if number >= 0 else (-number << 1) - 1])


BODY = bytes(batch()[HEADER_SIZE:])
POISON: dict[str, bytearray] = {
    "more records than there are": counted(batch(), 9),
    "fewer records than there are": counted(batch(), 1),
    "a count of 2^31-1": counted(batch(), (1 << 31) - 1),
    "no body": with_body(b""),
    "garbage": with_body(b"\xff" * 30),
    "zeros": with_body(bytes(30)),
    "bytes behind the records": with_body(BODY + b"xyz"),
    "a record cut off": with_body(BODY[:-2]),
    "a record's length too large": with_body(record(0) + record(1, length=1), count=2),
    "a record's length too small": with_body(record(0) + record(1, length=-1), count=2),
    "an offset delta below 0": with_body(record(0) + record(-1), count=2),
    "records that are not gzip": with_body(BODY, codec=Compression.GZIP),
    "gzip that nobody told of": with_body(gzip.compress(BODY)),
    "garbage in gzip": with_body(gzip.compress(b"\xff" * 60), codec=Compression.GZIP),
    **{f"garbage as {codec.config_name}": with_body(b"garbage!" * 8, codec) for codec in PACKED},
    **{
        f"{codec.config_name} cut off": with_body(
            bytes(batch(compression=codec)[HEADER_SIZE:-5]), codec
        )
        for codec in PACKED
    },
    **{f"more in {codec.config_name}": counted(batch(compression=codec), 9) for codec in PACKED},
}


@pytest.mark.parametrize("kind", POISON)
def test_a_leader_refuses_what_no_consumer_could_pass(kind: str) -> None:
    data = bytearray(POISON[kind])

    assert RecordBatch(data).is_intact()
    with pytest.raises(InvalidRecord, match="the records cannot be read"):
        admit(data)


@pytest.mark.skipif(not _accel.COMPILED, reason="the compiled kernel is not built (make build)")
@pytest.mark.parametrize("kind", POISON)
def test_the_fast_path_declines_what_no_consumer_could_pass(kind: str) -> None:
    log: Any = open_log(SimFileSystem(Random(1)), "/logs/t-0", LogConfig())
    log.append_as_leader(batch(), 3, NOW)

    assert log.tail.append_fast(bytearray(POISON[kind]), 3, NOW) is None
    assert log.log_end_offset == 3


@pytest.mark.skipif(not _accel.COMPILED, reason="the compiled kernel is not built (make build)")
@pytest.mark.parametrize("codec", Compression)
def test_the_fast_path_takes_sound_records_of_every_codec(codec: Compression) -> None:
    log: Any = open_log(SimFileSystem(Random(1)), "/logs/t-0", LogConfig())
    log.append_as_leader(batch(), 3, NOW)

    assert log.tail.append_fast(batch(compression=codec), 3, NOW) == 3


@pytest.mark.parametrize("is_packed", [False, True])
def test_offsets_that_do_not_count_from_0_are_written_anew(*, is_packed: bool) -> None:
    body = record(2) + record(2) + record(7)
    data = with_body(gzip.compress(body), Compression.GZIP) if is_packed else with_body(body)

    admitted = admit(data)

    assert [each.offset for each in admitted.records()] == [100, 101, 102]
    assert admitted.is_intact()


@pytest.mark.parametrize("claimed", [NOW + 999, NOW - 999])
def test_the_newest_timestamp_is_that_of_the_records(claimed: int) -> None:
    data = batch()
    pack_into(">q", data, MAX_TIMESTAMP_AT, claimed)

    admitted = admit(resealed(data))

    assert admitted.max_timestamp == NOW
    assert contents(admitted) == EXPECTED


def test_a_coordinators_own_records_are_read_too() -> None:
    with pytest.raises(InvalidRecord, match="the records cannot be read"):
        admit(counted(batch(), 9), AppendOrigin.COORDINATOR)


class TestWhatUnpacksToTooMuch:
    ROW = (NOW, b"k", bytes(100_000))

    @pytest.mark.parametrize("codec", PACKED)
    def test_more_than_the_topic_allows_is_too_large(self, codec: Compression) -> None:
        data = batch([self.ROW], compression=codec)

        with pytest.raises(MessageTooLarge, match=r"millstream\.max\.decompressed\.bytes"):
            admit(data, max_decompressed_bytes=99_999)
        admit(data, max_decompressed_bytes=100_100)

    @pytest.mark.parametrize("codec", PACKED)
    def test_more_than_the_caller_waits_for_is_no_verdict(self, codec: Compression) -> None:
        data = batch([self.ROW], compression=codec)
        validator = LogValidator(LogConfig())

        with pytest.raises(TooMuchToUnpack):
            validator.inspect(data, NOW, unpack_max=99_999)
        assert validator.inspect(data, NOW, unpack_max=200_000).unpacked_bytes > 100_000

    def test_compressing_again_counts_as_much(self) -> None:
        validator = LogValidator(LogConfig(compression_type="gzip"))
        data = batch([self.ROW])

        assert validator.takes_work(data)
        with pytest.raises(TooMuchToUnpack):
            validator.inspect(data, NOW, unpack_max=99_999)

    def test_plain_records_cost_nothing(self) -> None:
        validator = LogValidator(LogConfig())
        data = batch([self.ROW])

        assert not validator.takes_work(data)
        assert validator.inspect(data, NOW, unpack_max=0).unpacked_bytes == 0

    def test_what_is_no_batch_takes_no_work(self) -> None:
        assert not LogValidator(LogConfig(compression_type="gzip")).takes_work(batch(ROWS)[:60])
