"""Whatever is written is read: every codec, every kernel, and against a slow obvious model."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.records import (
    Compression,
    RecordBatch,
    RecordBatchBuilder,
    compress,
    decompress,
    split_batches,
)
from tests.properties.records.strategies import Row, codecs, outcome, plain_value, rows, timestamps
from tests.unit.records.kernels import PLAIN, compiled

# A fixture that gives a module's functions is the same for every example.
shared_fixture = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def model_varint(value: int) -> bytes:
    value = value * 2 if value >= 0 else -value * 2 - 1
    groups = []
    while True:
        groups.append(value % 128)
        value //= 128
        if not value:
            return bytes([*(group + 128 for group in groups[:-1]), groups[-1]])


def model_sized(value: bytes | None) -> bytes:
    return model_varint(-1) if value is None else model_varint(len(value)) + value


def model_record(row: Row, base_timestamp: int, offset_delta: int) -> bytes:
    """A record by the words of the format, with no thought for speed."""
    timestamp, key, value, headers = row
    encoded = b"\0" + model_varint(timestamp - base_timestamp) + model_varint(offset_delta)
    encoded += model_sized(key) + model_sized(value) + model_varint(len(headers))
    for name, content in headers:
        encoded += model_sized(name.encode("utf-8", "surrogateescape")) + model_sized(content)
    return model_varint(len(encoded)) + encoded


@shared_fixture
@given(drawn=st.lists(rows, min_size=1, max_size=10))
def test_records_are_written_as_the_model_writes_them(kernel: Any, drawn: list[Row]) -> None:
    writer = kernel.BatchWriter()
    for row in drawn:
        writer.append(*row)

    assert bytes(writer.body()) == b"".join(
        model_record(row, drawn[0][0], delta) for delta, row in enumerate(drawn)
    )
    assert writer.max_timestamp == max(row[0] for row in drawn)


@shared_fixture
@given(drawn=st.lists(rows, min_size=1, max_size=10), base_offset=st.integers(0, 2**62))
def test_records_come_back_as_they_were(kernel: Any, drawn: list[Row], base_offset: int) -> None:
    writer = kernel.BatchWriter()
    writer.extend(drawn)

    records = kernel.decode_records(writer.body(), len(drawn), base_offset, writer.base_timestamp)

    assert [plain_value(record) for record in records] == [
        (base_offset + delta, *row) for delta, row in enumerate(drawn)
    ]


@given(drawn=st.lists(rows, min_size=1, max_size=10), split=st.integers(0, 10))
def test_both_versions_write_the_same_bytes(drawn: list[Row], split: int) -> None:
    batches = []
    for kernel in (PLAIN, compiled()):
        writer = kernel.BatchWriter()
        writer.extend(row[:3] if not row[3] else row for row in drawn[:split])
        for row in drawn[split:]:
            writer.append(*row)
        batches.append(writer.seal(producer_id=5, base_offset=9))

    assert batches[0] == batches[1]


@given(
    row=st.tuples(
        st.one_of(timestamps, st.floats(), st.none(), st.integers(-(2**70), 2**70)),
        st.one_of(st.none(), st.binary(), st.text(), st.integers()),
        st.one_of(st.none(), st.binary(), st.text(), st.booleans()),
        st.one_of(
            st.none(),
            st.integers(),
            st.text(),
            st.lists(st.one_of(st.text(), st.tuples(st.text(), st.binary()), st.tuples(st.text()))),
            st.dictionaries(st.text(), st.one_of(st.none(), st.binary(), st.text())),
            st.lists(st.tuples(st.one_of(st.text(), st.binary()), st.none())),
        ),
        st.one_of(st.none(), st.integers(-5, 5), st.integers(), st.text()),
    )
)
def test_both_versions_refuse_the_same_with_the_same_words(row: tuple[Any, ...]) -> None:
    outcomes = []
    for kernel in (PLAIN, compiled()):
        writer = kernel.BatchWriter()
        writer.append(0, None, b"first")
        outcomes.append((outcome(writer.append, *row), bytes(writer.body()), writer.size))

    assert outcomes[0] == outcomes[1]


@given(codec=codecs, drawn=st.lists(rows, min_size=1, max_size=10), base_offset=st.integers(0, 99))
def test_batches_come_back_through_every_codec(
    codec: Compression, drawn: list[Row], base_offset: int
) -> None:
    builder = RecordBatchBuilder()
    builder.extend(drawn)
    data = builder.build(compression=codec, base_offset=base_offset)

    (batch,) = split_batches(data + data[:50])

    assert isinstance(batch, RecordBatch)
    assert batch.is_intact()
    assert [plain_value(record) for record in batch.records()] == [
        (base_offset + delta, *row) for delta, row in enumerate(drawn)
    ]


@given(codec=codecs, data=st.binary(max_size=2000), repeats=st.integers(1, 100))
def test_compressed_data_comes_back(codec: Compression, data: bytes, repeats: int) -> None:
    original = data * repeats

    assert decompress(codec, compress(codec, original), len(original)) == original


@given(data=st.binary(max_size=300), cut=st.integers(0, 300), seed=st.integers(0, 2**32 - 1))
def test_both_versions_agree_on_checksums_and_hashes(data: bytes, cut: int, seed: int) -> None:
    kernel = compiled()
    cut_off = memoryview(data)[cut:]

    assert PLAIN.crc32c(cut_off, seed) == kernel.crc32c(cut_off, seed)
    assert PLAIN.murmur2(cut_off) == kernel.murmur2(cut_off)
    assert PLAIN.partition_for_key(data, cut + 1) == kernel.partition_for_key(data, cut + 1)
