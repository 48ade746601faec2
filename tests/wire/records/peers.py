"""The record codecs of aiokafka and kafka-python, behind one small interface."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python 3.0 reads its schemas by a deprecated function
    # Neither project ships type information.
    from aiokafka.record import (  # type: ignore[import-untyped]
        default_records as aiokafka_default,
    )
    from aiokafka.record import legacy_records as aiokafka_legacy
    from kafka.record import (  # type: ignore[import-untyped]
        default_records as kafka_python_default,
    )
    from kafka.record import legacy_records as kafka_python_legacy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.records import Compression
    from tests.wire.records.sample_rows import Row


class Peer(NamedTuple):
    """Another project's reader and writer."""

    name: str
    default: Any
    legacy: Any

    def write(self, rows: Iterable[Row], codec: Compression) -> bytes:
        """A v2 batch."""
        builder = self.default.DefaultRecordBatchBuilder(
            magic=2,
            compression_type=int(codec),
            is_transactional=False,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 24,
        )
        for offset, (timestamp, key, value, headers) in enumerate(rows):
            appended = builder.append(offset, timestamp, key, value, list(headers))
            assert appended is not None
        return bytes(builder.build())

    def read(self, batch: bytes) -> list[tuple[Any, ...]]:
        """(offset, timestamp, key, value, headers) of each record, the checksum checked."""
        view = self.default.DefaultRecordBatch(batch)
        assert view.validate_crc()
        return [
            (
                record.offset,
                record.timestamp,
                record.key,
                record.value,
                tuple((name, value) for name, value in record.headers),
            )
            for record in view
        ]

    def write_legacy(self, magic: int, rows: Iterable[Row], codec: Compression) -> bytes:
        """A message set of format 0 or 1; a wrapper if compressed."""
        builder = self.legacy.LegacyRecordBatchBuilder(
            magic=magic, compression_type=int(codec), batch_size=1 << 24
        )
        for offset, (timestamp, key, value, _) in enumerate(rows):
            appended = builder.append(offset, timestamp=timestamp, key=key, value=value)
            assert appended is not None
        return bytes(builder.build())


PEERS = [
    Peer("aiokafka", aiokafka_default, aiokafka_legacy),
    Peer("kafka-python", kafka_python_default, kafka_python_legacy),
]
