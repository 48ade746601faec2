"""From encoded records to a batch: raw copies, the body, the header and its checksum."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.records.layout import HEADER
from tests.unit.records.test_decoding import fields
from tests.unit.records.test_writing import TIME, Index, state


def test_encoded_records_are_copied_as_they_are(kernel: Any) -> None:
    source = kernel.BatchWriter()
    source.extend([(TIME + i, b"%d" % i, b"v") for i in range(5)])
    body = bytes(source.body())
    writer = kernel.BatchWriter()

    for offset_delta, timestamp_delta, key, _, start, end in kernel.scan_records(body, 5):
        if key in (b"1", b"3"):
            size = writer.append_raw(body[start:end], offset_delta, TIME + timestamp_delta)

    assert size == writer.size
    assert state(writer)[1:] == (2, TIME + 1, TIME + 3, 3)
    records = kernel.decode_records(writer.body(), 2, 0, TIME)
    assert [fields(record)[:3] for record in records] == [(1, TIME + 1, b"1"), (3, TIME + 3, b"3")]


def test_only_bytes_are_copied_as_records(kernel: Any) -> None:
    writer = kernel.BatchWriter()

    for other in ("text", None, 5):
        with pytest.raises(TypeError, match="a bytes-like object is required, not"):
            writer.append_raw(other, 0, 0)

    assert writer.record_count == 0


def test_the_body_is_the_records(kernel: Any) -> None:
    writer = kernel.BatchWriter()
    writer.append(0, b"k", b"v")

    first = bytes(writer.body())
    writer.append(0, b"k", b"v")
    second = bytes(writer.body())

    assert isinstance(writer.body(), memoryview)
    assert second.startswith(first)
    assert writer.seal()[61:] == second


def test_every_header_field_is_sealed(kernel: Any) -> None:
    writer = kernel.BatchWriter()
    writer.append(5, None, b"x")

    batch = writer.seal(
        base_offset=1,
        leader_epoch=2,
        attributes=3,
        last_offset_delta=4,
        base_timestamp=5,
        max_timestamp=6,
        producer_id=7,
        producer_epoch=8,
        base_sequence=9,
        body=bytearray(b"compressed"),
    )

    unpacked = HEADER.unpack_from(batch)
    assert unpacked == (1, 59, 2, 2, kernel.crc32c(batch[21:]), 3, 4, 5, 6, 7, 8, 9, 1)
    assert batch[61:] == b"compressed"


def test_sealing_leaves_the_records(kernel: Any) -> None:
    writer = kernel.BatchWriter()
    writer.append(5, None, b"x")

    first = writer.seal()
    writer.append(6, None, b"y")

    assert writer.record_count == 2
    assert len(writer.seal()) > len(first)


def test_a_batch_without_records_needs_its_last_offset(kernel: Any) -> None:
    writer = kernel.BatchWriter()

    with pytest.raises(ValueError, match="an empty batch has no last offset: pass last_offset_del"):
        writer.seal()
    batch = writer.seal(base_offset=10, last_offset_delta=4)

    assert len(batch) == 61
    assert HEADER.unpack_from(batch)[6:] == (4, -1, -1, -1, -1, -1, 0)


LIMITS = {
    "base_offset": 64,
    "leader_epoch": 32,
    "attributes": 16,
    "last_offset_delta": 32,
    "base_timestamp": 64,
    "max_timestamp": 64,
    "producer_id": 64,
    "producer_epoch": 16,
    "base_sequence": 32,
}


@pytest.mark.parametrize(("name", "bits"), LIMITS.items())
def test_header_numbers_must_fit(kernel: Any, name: str, bits: int) -> None:
    writer = kernel.BatchWriter()
    writer.append(5, None, b"x")
    smallest, largest = -(1 << bits - 1), (1 << bits - 1) - 1

    for value in (smallest, largest, Index(largest)):
        writer.seal(**{name: value})
    for value in (smallest - 1, largest + 1, 1 << 100):
        with pytest.raises(OverflowError) as caught:
            writer.seal(**{name: value})
        assert str(caught.value) == f"{name} {value} does not fit {bits} bits"
    with pytest.raises(TypeError) as wrong:
        writer.seal(**{name: 1.0})
    assert str(wrong.value) == f"{name} must be an integer, not float"


def test_a_writer_can_be_extended_by_a_class(kernel: Any) -> None:
    class Builder(kernel.BatchWriter):  # type: ignore[misc]  # the class is only known at run time
        def twice(self) -> bytes:
            sealed: bytes = self.seal()
            return sealed * 2

    builder = Builder(100)
    builder.append(0, None, b"x")

    assert builder.twice() == builder.seal() * 2
