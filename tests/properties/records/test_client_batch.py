"""The fast path takes a batch only if the validator would take it as it is."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import _accel
from millstream.records.compression import Compression
from millstream.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER, HEADER_SIZE
from millstream.records.plain.crc32c import crc32c
from millstream.storage.log.config import LogConfig
from millstream.storage.log.producer_entry import ProducerEntry
from millstream.storage.log.validator import LogValidator
from millstream.testing.sim_filesystem import SimFileSystem
from tests.unit.storage.batches import NOW_MS, batch_bytes
from tests.unit.storage.logs import open_log

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
    compression=st.sampled_from(Compression),
)


@st.composite
def tampered(draw: st.DrawFn) -> bytearray:
    """A batch with another byte somewhere, its checksum perhaps made right again."""
    data = bytearray(draw(batches))
    place = draw(st.one_of(st.integers(0, HEADER_SIZE - 1), st.integers(0, HEADER_SIZE + 12)))
    data[min(place, len(data) - 1)] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        data[CRC_AT:ATTRIBUTES_AT] = crc32c(data[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 50]))]


pytestmark = pytest.mark.skipif(
    not _accel.COMPILED, reason="the compiled kernel is not built (make build)"
)


def written(data: bytearray, size_max: int) -> bytes | None:
    """What the fast path writes into a log of leader epoch 3 that ends at 7; None: declined."""
    config = LogConfig(max_message_bytes=size_max, message_timestamp_after_max_ms=LIMIT_MS)
    log = open_log(SimFileSystem(Random(1)), "/logs/t-0", config)
    for _ in range(7):
        log.append_as_leader(bytearray(batch_bytes(value_bytes=0)), 3, NOW_MS)
    # The producer is known and has sent nothing in its epoch, so that any first batch is its next.
    log.producers._producers |= {pid: ProducerEntry(pid, 0) for pid in range(-2, 2)}
    position = log.size
    before = bytes(data)
    tail: Any = log.tail
    if tail.append_fast(data, 3, NOW_MS) is None:
        assert data == before
        return None
    return log.segments.active.open_file().pread(len(data), position)


@given(st.one_of(batches.map(bytearray), tampered()), st.sampled_from([150, 10**6]))
def test_what_passes_is_what_the_validator_admits(data: bytearray, size_max: int) -> None:
    received = bytearray(data)
    found = written(data, size_max)
    if found is None:
        return
    config = LogConfig(max_message_bytes=size_max, message_timestamp_after_max_ms=LIMIT_MS)
    (admitted,) = LogValidator(config).inspect(received, NOW_MS).number(7, 3)
    assert found == admitted.view


class TestWhatIsLeftToTheValidator:
    @staticmethod
    def takes(**fields: int) -> bool:
        data = bytearray(batch_bytes(records=2, pid=1, epoch=0, sequence=0))
        values = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True)) | fields
        HEADER.pack_into(data, 0, *values.values())
        data[CRC_AT:ATTRIBUTES_AT] = crc32c(data[ATTRIBUTES_AT:]).to_bytes(4, "big")
        return written(data, 1000) is not None

    def test_an_ordinary_batch_passes(self) -> None:
        assert self.takes()

    @pytest.mark.parametrize("attributes", [5, 0x08, 0x10, 0x20, 0x40, 0x100, -1])
    def test_attributes_beyond_a_codec(self, attributes: int) -> None:
        assert not self.takes(attributes=attributes)

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
    def test_fields(self, field: dict[str, int]) -> None:
        assert not self.takes(**field)
