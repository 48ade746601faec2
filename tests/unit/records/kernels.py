"""The two record kernels side by side, for tests that must hold on both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from millstream import _accel
from millstream.records.plain import arrow as plain_arrow
from millstream.records.plain import consumer_record as plain_consumer_record
from millstream.records.plain import consumer_records as plain_consumer
from millstream.records.plain import crc32c as plain_crc32c
from millstream.records.plain import murmur2 as plain_murmur2
from millstream.records.plain import record_codec as plain_codec

if TYPE_CHECKING:
    from types import ModuleType

NOT_BUILT = "the compiled kernel is not built (make build)"


def _namespace(name: str, *modules: ModuleType) -> SimpleNamespace:
    crc, murmur, codec, arrow, consumer, record = modules
    return SimpleNamespace(
        name=name,
        crc32c=crc.crc32c,
        murmur2=murmur.murmur2,
        partition_for_key=murmur.partition_for_key,
        Record=codec.Record,
        BatchWriter=codec.BatchWriter,
        decode_records=codec.decode_records,
        find_since=codec.find_since,
        inspect_records=codec.inspect_records,
        scan_records=codec.scan_records,
        ArrowRecordsBuilder=arrow.ArrowRecordsBuilder,
        ArrowRecordsReader=arrow.ArrowRecordsReader,
        ArrowStream=arrow.ArrowStream,
        ConsumerRecord=record.ConsumerRecord,
        FetchedBatches=consumer.FetchedBatches,
    )


PLAIN = _namespace(
    "plain",
    plain_crc32c,
    plain_murmur2,
    plain_codec,
    plain_arrow,
    plain_consumer,
    plain_consumer_record,
)


def compiled() -> Any:
    """The compiled kernel; the test is skipped where it was not built."""
    if not _accel.COMPILED:
        pytest.skip(NOT_BUILT)
    from millstream._accel.arrow import records as arrow
    from millstream._accel.codec import (
        consumer_record,
        consumer_records,
        crc32c,
        murmur2,
        record_codec,
    )

    return _namespace(
        "compiled",
        crc32c,
        murmur2,
        record_codec,
        arrow,
        consumer_records,
        consumer_record,
    )


def available() -> list[Any]:
    """The kernels that can run here."""
    return [PLAIN, compiled()] if _accel.COMPILED else [PLAIN]


@pytest.fixture(params=["plain", "compiled"])
def kernel(request: pytest.FixtureRequest) -> Any:
    """Each kernel in turn."""
    return PLAIN if request.param == "plain" else compiled()
