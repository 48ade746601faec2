"""A batch passes the short inspection only if the validator would take it as it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.records.batch import RecordBatch
from millstream.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER, HEADER_SIZE
from millstream.records.plain.crc32c import crc32c
from millstream.storage.config import LogConfig
from millstream.storage.validator import LogValidator
from tests.unit.records.kernels import available
from tests.unit.storage.batches import NOW_MS, batch_bytes

KERNELS = available()
LIMIT_MS = 100
FIELDS = (
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)

batches = st.builds(
    batch_bytes,
    records=st.integers(1, 3),
    value_bytes=st.sampled_from([0, 10, 2000, 200_000]),
    pid=st.integers(-2, 1),
    epoch=st.integers(-1, 1),
    sequence=st.integers(-1, 2),
)


@st.composite
def tampered(draw: st.DrawFn) -> bytearray:
    """A batch with another byte in its header, its checksum perhaps made right again."""
    data = bytearray(draw(batches))
    data[draw(st.integers(0, HEADER_SIZE - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        data[CRC_AT:ATTRIBUTES_AT] = crc32c(data[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 50]))]


@given(st.one_of(batches.map(bytearray), tampered()), st.sampled_from([150, 10**6]))
def test_what_passes_is_what_the_validator_admits(data: bytearray, size_max: int) -> None:
    found = {kernel.inspect_client_batch(data, size_max, NOW_MS + LIMIT_MS) for kernel in KERNELS}

    assert len(found) == 1, "the twins agree"
    (fields,) = found
    if fields is None:
        return
    config = LogConfig(max_message_bytes=size_max, message_timestamp_after_max_ms=LIMIT_MS)
    (admitted,) = LogValidator(config).admit(bytearray(data), 7, 3, NOW_MS)
    assert fields == (
        admitted.last_offset_delta,
        admitted.max_timestamp,
        admitted.producer_id,
        admitted.producer_epoch,
        admitted.base_sequence,
    )
    for kernel in KERNELS:
        numbered = bytearray(data)
        kernel.number_batch(numbered, 7, 3)
        assert numbered == admitted.view


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
class TestWhatIsLeftToTheValidator:
    @staticmethod
    def inspect(kernel: Any, **fields: int) -> Any:
        data = bytearray(batch_bytes(records=2, pid=1, epoch=0, sequence=0))
        batch = RecordBatch(data)
        values = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True)) | fields
        HEADER.pack_into(data, 0, *values.values())
        data[CRC_AT:ATTRIBUTES_AT] = crc32c(data[ATTRIBUTES_AT:]).to_bytes(4, "big")
        return kernel.inspect_client_batch(data, batch.size, NOW_MS + LIMIT_MS)

    def test_an_ordinary_batch_passes(self, kernel: Any) -> None:
        assert self.inspect(kernel) == (1, NOW_MS + 1, 1, 0, 0)

    @pytest.mark.parametrize("attributes", [5, 0x08, 0x10, 0x20, 0x40, 0x100, -1])
    def test_attributes_beyond_a_codec(self, kernel: Any, attributes: int) -> None:
        assert self.inspect(kernel, attributes=attributes) is None

    @pytest.mark.parametrize(
        "field",
        [
            {"base_offset": 1},
            {"length": 10},
            {"magic": 1},
            {"last_offset_delta": 0},
            {"last_offset_delta": -1, "record_count": 0},
            {"max_timestamp": NOW_MS + LIMIT_MS + 1},
            {"base_timestamp": NOW_MS + 2},
            {"max_timestamp": -1},
            {"producer_id": -2},
            {"base_sequence": -1},
        ],
        ids=str,
    )
    def test_fields(self, kernel: Any, field: dict[str, int]) -> None:
        assert self.inspect(kernel, **field) is None

    def test_bytes_that_cannot_be_numbered_in_place(self, kernel: Any) -> None:
        assert kernel.inspect_client_batch(batch_bytes(), 1000, NOW_MS + LIMIT_MS) is None
