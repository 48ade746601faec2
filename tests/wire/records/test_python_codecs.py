"""Batches written by us are read by aiokafka and kafka-python, and theirs by us."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.records import Compression, RecordBatch, compress, split_batches
from tests.wire.records.peers import PEERS, Peer
from tests.wire.records.sample_rows import ROWS, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

BASE_OFFSET = 1_000
peers = pytest.mark.parametrize("peer", PEERS, ids=[peer.name for peer in PEERS])
codecs = pytest.mark.parametrize("codec", Compression, ids=[codec.name for codec in Compression])
samples = pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
# Neither project writes lz4 into format 0 with what it installs; the Java client does, in
# tests/interop, and with the checksum that is wrong by tradition.
LEGACY_FORMATS = [(magic, codec) for magic in (0, 1) for codec in list(Compression)[: 3 + magic]]
legacy_formats = pytest.mark.parametrize(
    ("magic", "codec"), LEGACY_FORMATS, ids=[f"{m}-{codec.name}" for m, codec in LEGACY_FORMATS]
)


def written(kernel: Any, rows: Sequence[Row], codec: Compression) -> bytes:
    """A batch by one of our kernels."""
    writer = kernel.BatchWriter()
    writer.extend(rows)
    body = compress(codec, writer.body())
    sealed: bytes = writer.seal(base_offset=BASE_OFFSET, attributes=int(codec), body=body)
    return sealed


def read(kernel: Any, batch: RecordBatch) -> list[tuple[Any, ...]]:
    """The records by one of our kernels."""
    records = kernel.decode_records(
        batch.body(), batch.record_count, batch.base_offset, batch.base_timestamp
    )
    return [
        (record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in records
    ]


@peers
@codecs
@samples
def test_our_batches_are_read_by_others(
    kernel: Any, peer: Peer, codec: Compression, rows: list[Row]
) -> None:
    found = peer.read(written(kernel, rows, codec))

    assert found == [(BASE_OFFSET + delta, *row) for delta, row in enumerate(rows)]


@peers
@codecs
@samples
def test_the_batches_of_others_are_read_by_us(
    kernel: Any, peer: Peer, codec: Compression, rows: list[Row]
) -> None:
    (batch,) = split_batches(peer.write(rows, codec))

    assert isinstance(batch, RecordBatch)
    batch.check_crc()
    assert read(kernel, batch) == [(delta, *row) for delta, row in enumerate(rows)]
    assert (batch.base_timestamp, batch.max_timestamp) == (
        rows[0][0],
        max(timestamp for timestamp, *_ in rows),
    )


@peers
@samples
def test_uncompressed_batches_are_the_same_bytes(kernel: Any, peer: Peer, rows: list[Row]) -> None:
    theirs = peer.write(rows, Compression.NONE)

    writer = kernel.BatchWriter()
    writer.extend(rows)

    assert writer.seal(leader_epoch=RecordBatch(theirs).leader_epoch) == theirs


@peers
@legacy_formats
@samples
def test_message_sets_of_others_are_read_by_us(
    peer: Peer, codec: Compression, magic: int, rows: list[Row]
) -> None:
    messages = peer.write_legacy(magic, rows, codec)

    found = []
    for batch in split_batches(messages):
        batch.check_crc()
        assert (batch.magic, batch.compression) == (magic, codec)
        found += batch.records(from_offset=-len(rows))

    assert [(record.key, record.value) for record in found] == [row[1:3] for row in rows]
    assert [record.timestamp for record in found] == [row[0] if magic else -1 for row in rows]
    first = found[0].offset
    assert [record.offset - first for record in found] == list(range(len(rows)))
