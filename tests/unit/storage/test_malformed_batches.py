"""What a leader says about bytes that are no batch, or one that lies about its timestamps."""

from __future__ import annotations

from struct import pack_into

import pytest

from millstream.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, MessageTooLarge
from millstream.records import TimestampType
from millstream.records.layout import LENGTH_AT, MAGIC_AT
from tests.unit.storage.client_batches import EXPECTED, NOW, admit, batch, contents


@pytest.mark.parametrize("size", [0, 1, 11, 12, 16, 17, 60, len(batch()) - 1])
def test_less_than_a_whole_batch_is_no_record(size: int) -> None:
    with pytest.raises(InvalidRecord, match=f"no whole batch in these {size} bytes"):
        admit(batch()[:size])


@pytest.mark.parametrize("length", [-1, 0, 13])
def test_a_length_that_no_format_allows_is_corrupt(length: int) -> None:
    data = batch()
    pack_into(">i", data, LENGTH_AT, length)

    with pytest.raises(CorruptMessage, match=f"length {length}"):
        admit(data)


def test_a_length_that_only_old_formats_allow_is_corrupt() -> None:
    data = batch()[: 12 + 48]
    pack_into(">i", data, LENGTH_AT, 48)

    with pytest.raises(CorruptMessage, match="at least 61 bytes"):
        admit(data)


@pytest.mark.parametrize("magic", [3, 255])
def test_a_magic_that_never_was_is_corrupt(magic: int) -> None:
    data = batch()
    data[MAGIC_AT] = magic

    with pytest.raises(CorruptMessage, match=f"magic {magic}"):
        admit(data)


@pytest.mark.parametrize("behind", [bytes(5), bytes(batch()[:-3])])
def test_the_beginning_of_another_batch_is_left_out(behind: bytes) -> None:
    admitted = admit(batch() + behind)

    assert admitted.size == len(batch())
    assert contents(admitted) == EXPECTED


def test_zeros_behind_a_batch_are_corrupt() -> None:
    with pytest.raises(CorruptMessage, match="length 0"):
        admit(batch() + bytes(20))


def test_the_first_fault_is_the_one_kafka_finds_first() -> None:
    data = batch([(NOW, b"k", b"v" * 500)])
    data[-2] ^= 1

    with pytest.raises(MessageTooLarge):
        admit(data, max_message_bytes=400)
    pack_into(">q", data, 0, 7)
    with pytest.raises(InvalidRecord, match="offset 7"):
        admit(data, max_message_bytes=400)


def test_clients_may_not_claim_log_append_time_where_the_broker_sets_it() -> None:
    data = batch(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=NOW)

    with pytest.raises(InvalidTimestamp, match="LogAppendTime"):
        admit(data, message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_claim_of_log_append_time_is_not_kept(kind: type[bytes]) -> None:
    data = batch(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=NOW)

    admitted = admit(kind(data))

    assert admitted.timestamp_type is TimestampType.CREATE_TIME
    assert admitted.max_timestamp == NOW
    assert admitted.is_intact()


@pytest.mark.parametrize("claimed", [NOW + 7_200_000, 5, -1])
def test_a_newest_timestamp_that_is_doubtful_is_corrected(claimed: int) -> None:
    data = batch(max_timestamp=claimed)

    admitted = admit(data)

    assert admitted.max_timestamp == NOW
    assert admitted.is_intact()


def test_records_behind_an_innocent_header_are_found_to_be_too_new() -> None:
    late = [(NOW + 7_200_000, b"k", b"v")]

    with pytest.raises(InvalidTimestamp) as caught:
        admit(batch(late, max_timestamp=NOW))

    assert [index for index, _ in caught.value.record_errors] == [0]
