"""Reading a topic from here to there: ends, gaps, transactions, faults on the way."""

from __future__ import annotations

import struct
import zlib

import pytest

from millstream.cli.faults import CommandFailed, Unreachable
from millstream.cli.topic_io import Isolation
from millstream.cli.topic_reader import Span, TopicReader
from millstream.errors import CorruptMessage, NotLeaderOrFollower, OffsetOutOfRange
from millstream.protocol.messages import FetchRequest
from millstream.protocol.messages.fetch import AbortedTransaction
from millstream.records import (
    ControlType,
    EndTxnMarker,
    RecordBatch,
    RecordBatchBuilder,
    end_txn_marker,
)
from tests.unit.cli.fake_cluster import TOPIC, FakeCluster


def read_all(reader: TopicReader) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    for _ in range(20):
        if reader.is_finished:
            return found
        found += [(partition, record.value) for partition, record in reader.poll(0)]
    raise AssertionError(f"the reader does not end; it read {found}")


def reader_of(cluster: FakeCluster, **spans: Span) -> TopicReader:
    by_partition = {int(name.removeprefix("p")): span for name, span in spans.items()}
    return TopicReader(cluster.session(), TOPIC, by_partition)


def test_a_reader_ends_where_its_spans_do_within_a_batch() -> None:
    cluster = FakeCluster(partitions=2)
    cluster.append(0, b"0", b"1", b"2")
    cluster.append(0, b"3")
    cluster.append(1, b"a", b"b")

    found = read_all(reader_of(cluster, p0=Span(1, 3), p1=Span(0, 2)))

    assert found == [(0, b"1"), (0, b"2"), (1, b"a"), (1, b"b")]


def test_a_reader_of_nothing_is_finished_at_once() -> None:
    cluster = FakeCluster()

    assert reader_of(cluster, p0=Span(0, 0)).is_finished
    assert cluster.requests == []


def test_a_reader_without_an_end_goes_on() -> None:
    cluster = FakeCluster()
    cluster.append(0, b"0")
    reader = reader_of(cluster, p0=Span(0, None))

    assert [record.value for _, record in reader.poll(0)] == [b"0"]
    assert list(reader.poll(0)) == []
    cluster.append(0, b"1")
    assert [record.value for _, record in reader.poll(0)] == [b"1"]
    assert not reader.is_finished


def test_a_reader_without_an_end_stops_at_a_time() -> None:
    cluster = FakeCluster()
    cluster.append(0, b"early", timestamp=10)
    reader = TopicReader(cluster.session(), TOPIC, {0: Span(0, None)}, until_ms=20)
    assert [record.value for _, record in reader.poll(0)] == [b"early"]

    cluster.append(0, b"late", timestamp=20)

    assert list(reader.poll(0)) == []
    assert reader.is_finished


def test_deleted_offsets_are_skipped_and_told() -> None:
    cluster = FakeCluster()
    cluster.starts[0] = 5
    cluster.append(0, b"5")
    gaps = []
    reader = TopicReader(
        cluster.session(),
        TOPIC,
        {0: Span(2, 6)},
        on_gap=lambda partition, start, end: gaps.append((partition, start, end)),
    )

    assert read_all(reader) == [(0, b"5")]
    assert gaps == [(0, 2, 5)]


def test_a_span_that_is_deleted_as_a_whole_ends() -> None:
    cluster = FakeCluster()
    cluster.starts[0] = 5

    assert read_all(reader_of(cluster, p0=Span(2, 4))) == []


def test_a_log_that_became_shorter_is_not_read_as_if_it_went_on() -> None:
    cluster = FakeCluster()
    cluster.append(0, b"0")

    with pytest.raises(CommandFailed, match="created anew"):
        read_all(reader_of(cluster, p0=Span(7, None)))


def test_records_of_aborted_transactions_are_left_out() -> None:
    cluster = FakeCluster()
    cluster.append(0, b"aborted", producer_id=7)
    cluster.append(0, b"other", producer_id=8)
    cluster.append(0, batch=marker(ControlType.ABORT, 7, offset=2))
    cluster.append(0, b"committed later", producer_id=7)
    cluster.aborted[0] = [AbortedTransaction(producer_id=7, first_offset=0)]
    reader = TopicReader(
        cluster.session(), TOPIC, {0: Span(0, 4)}, isolation=Isolation.READ_COMMITTED
    )

    # The fake gives two batches at a time, so that the producer is free in the second fetch.
    first = [record.value for _, record in reader.poll(0)]
    cluster.aborted[0] = []
    assert first + [value for _, value in read_all(reader)] == [b"other", b"committed later"]
    assert all(
        request.isolation_level == Isolation.READ_COMMITTED
        for request in cluster.requests
        if isinstance(request, FetchRequest)
    )


def test_an_abort_marker_frees_its_producer_within_a_fetch() -> None:
    cluster = FakeCluster()
    cluster.append(0, batch=marker(ControlType.ABORT, 7, offset=0))
    cluster.append(0, b"good", producer_id=7)
    cluster.aborted[0] = [AbortedTransaction(producer_id=7, first_offset=0)]

    assert read_all(reader_of(cluster, p0=Span(0, 2))) == [(0, b"good")]


def test_control_records_are_never_shown() -> None:
    cluster = FakeCluster()
    cluster.append(0, b"0", producer_id=7)
    cluster.append(0, batch=marker(ControlType.COMMIT, 7, offset=1))

    assert read_all(reader_of(cluster, p0=Span(0, 2))) == [(0, b"0")]


def test_a_leader_that_moved_is_asked_again() -> None:
    cluster = FakeCluster()
    cluster.append(0, b"0")
    cluster.errors[FetchRequest] = [NotLeaderOrFollower(), Unreachable("gone")]

    assert read_all(reader_of(cluster, p0=Span(0, 1))) == [(0, b"0")]
    assert cluster.connect_count > 1


def test_a_damaged_batch_is_not_shown() -> None:
    cluster = FakeCluster()
    builder = RecordBatchBuilder()
    builder.append(0, None, b"value")
    damaged = bytearray(builder.build())
    damaged[-2] ^= 1
    cluster.logs[0].append(RecordBatch(damaged))

    with pytest.raises(CorruptMessage, match="checksum"):
        read_all(reader_of(cluster, p0=Span(0, 1)))


def test_other_errors_of_a_partition_are_raised() -> None:
    cluster = FakeCluster()
    cluster.errors[FetchRequest] = [OffsetOutOfRange("made up")]

    with pytest.raises(OffsetOutOfRange):
        read_all(reader_of(cluster, p0=Span(0, 1)))


def marker(kind: ControlType, producer_id: int, offset: int) -> bytes:
    return end_txn_marker(
        EndTxnMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=0,
        base_offset=offset,
    )


def legacy_message(offset: int, value: bytes) -> bytes:
    """A message of format 0."""
    body = b"\0\0" + struct.pack(">ii", -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


def test_messages_of_the_old_formats_are_read() -> None:
    cluster = FakeCluster()
    cluster.raw[0] = legacy_message(0, b"old") + legacy_message(1, b"older")

    assert read_all(reader_of(cluster, p0=Span(0, 2))) == [(0, b"old"), (0, b"older")]


def test_a_batch_before_the_position_is_passed_over() -> None:
    cluster = FakeCluster()
    cluster.raw[0] = legacy_message(0, b"before") + legacy_message(1, b"here")

    assert read_all(reader_of(cluster, p0=Span(1, 2))) == [(0, b"here")]
