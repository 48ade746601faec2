"""Batches written by us are read by the Java client, and the Java client's by us.

All files are exchanged in two runs of the JVM; the tests then look at one case each.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from millstream.records import (
    Compression,
    ControlType,
    EndTxnMarker,
    LegacyBatch,
    RecordBatch,
    RecordBatchBuilder,
    TimestampType,
    end_txn_marker,
    parse_end_txn_marker,
    split_batches,
)
from tests.interop.java_client import require_jars, run_java
from tests.unit.records.kernels import PLAIN, compiled
from tests.wire.records.sample_rows import ROWS, Row

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent / "RecordsPeer.java"
JAVA_BASE_OFFSET = 500
JAVA_APPEND_TIME = 1_800_000_000_000
CODECS = list(Compression)
FORMATS = [
    (magic, codec, kind)
    for magic in (0, 1, 2)
    for codec in CODECS
    for kind in TimestampType
    if (magic == 2 or codec != Compression.ZSTD) and not (magic == 0 and kind)
]
# The Java builder refuses timestamps before 1970, though its reader takes them.
WRITABLE = {name: rows for name, rows in ROWS.items() if name != "before 1970"}


class Exchange(NamedTuple):
    """What both sides left for each other."""

    ours_as_java_reads: Path
    written_by_java: Path


def hexed(value: bytes | None) -> str:
    return "-" if value is None else value.hex()


def line(tag: str, offset: int, row: Row) -> str:
    """A record as RecordsPeer.java describes it."""
    timestamp, key, value, headers = row
    pairs = [f" {name.encode().hex()}:{hexed(content)}" for name, content in headers]
    return f"{tag} {offset} {timestamp} {hexed(key)} {hexed(value)}" + "".join(pairs)


def file_name(case: str) -> str:
    return case.replace(" ", "-")


def our_batches() -> dict[str, bytes]:
    """Every sample through every codec, by each kernel, and some special batches."""
    batches = {}
    for name, rows in ROWS.items():
        for codec in CODECS:
            builder = RecordBatchBuilder()
            builder.extend(rows)
            batches[f"{name}.{codec.config_name}"] = builder.build(
                compression=codec, base_offset=100, leader_epoch=3
            )
    batches["levels"] = b"".join(
        built(ROWS["plain"], compression=codec, level=level)
        for codec, level in [
            (Compression.GZIP, 1),
            (Compression.GZIP, 9),
            (Compression.LZ4, 1),
            (Compression.LZ4, 17),
            (Compression.ZSTD, -10),
            (Compression.ZSTD, 22),
        ]
    )
    batches["stamped"] = built(
        ROWS["plain"], timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=77
    )
    batches["idempotent"] = built(
        ROWS["nulls"],
        producer_id=4000,
        producer_epoch=5,
        base_sequence=2**31 - 2,
        is_transactional=True,
    )
    batches["empty"] = RecordBatchBuilder().build(base_offset=10, last_offset_delta=4)
    horizon = RecordBatchBuilder(base_timestamp=9_000)
    horizon.append(1000, b"k", None)
    batches["horizon"] = horizon.build(has_delete_horizon=True)
    batches["markers"] = b"".join(
        end_txn_marker(
            EndTxnMarker(kind, 7), producer_id=4000, producer_epoch=5, timestamp=99, base_offset=40
        )
        for kind in (ControlType.ABORT, ControlType.COMMIT)
    )
    return batches


def built(rows: Iterable[Row], **options: Any) -> bytes:
    builder = RecordBatchBuilder()
    builder.extend(rows)
    return builder.build(**options)


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Exchange:
    jars = require_jars(tmp_path_factory.mktemp("maven"))
    ours, read, rows_in, written = (
        tmp_path_factory.mktemp(name) for name in ("ours", "read", "rows", "written")
    )
    for name, batch in our_batches().items():
        (ours / f"{file_name(name)}.batch").write_bytes(batch)
    for name, rows in WRITABLE.items():
        lines = [line("R", 0, row) for row in rows]
        (rows_in / f"{file_name(name)}.rows").write_text("\n".join(lines))
    run_java(jars, PROGRAM, "read", ours, read)
    run_java(jars, PROGRAM, "write", rows_in, written)
    return Exchange(read, written)


def described(exchange: Exchange, name: str) -> tuple[list[list[str]], list[str]]:
    """What Java says of a file of ours: the fields of its batches, and its record lines."""
    lines = (exchange.ours_as_java_reads / f"{file_name(name)}.txt").read_text().splitlines()
    batches = [text.split(" ")[1:] for text in lines if text.startswith("B ")]
    return batches, [text for text in lines if not text.startswith("B ")]


@pytest.mark.parametrize("codec", CODECS, ids=[codec.name for codec in CODECS])
@pytest.mark.parametrize("name", ROWS)
def test_java_reads_our_batches(exchange: Exchange, name: str, codec: Compression) -> None:
    batches, records = described(exchange, f"{name}.{codec.config_name}")

    rows = ROWS[name]
    assert records == [line("R", 100 + delta, row) for delta, row in enumerate(rows)]
    ((base_offset, last_offset, _, magic, codec_id, *_, leader_epoch, _, _, _),) = batches
    assert (base_offset, last_offset) == ("100", str(99 + len(rows)))
    assert (magic, codec_id, leader_epoch) == ("2", str(int(codec)), "3")


def test_java_reads_every_level(exchange: Exchange) -> None:
    batches, records = described(exchange, "levels")

    assert len(batches) == 6
    assert len(records) == 6 * len(ROWS["plain"])


def test_java_sees_the_append_time(exchange: Exchange) -> None:
    _, records = described(exchange, "stamped")

    assert {text.split(" ")[2] for text in records} == {"77"}


def test_java_sees_producer_and_sequences(exchange: Exchange) -> None:
    ((*_, producer_id, epoch, first, last, _, is_transactional, is_control, _),), _ = described(
        exchange, "idempotent"
    )

    assert (producer_id, epoch) == ("4000", "5")
    assert (first, last) == (str(2**31 - 2), "0")
    assert (is_transactional, is_control) == ("true", "false")


def test_java_accepts_a_batch_emptied_by_compaction(exchange: Exchange) -> None:
    ((base_offset, last_offset, *_),), records = described(exchange, "empty")

    assert (base_offset, last_offset, records) == ("10", "14", [])


def test_java_sees_the_delete_horizon(exchange: Exchange) -> None:
    ((*_, horizon),), records = described(exchange, "horizon")

    assert horizon == "9000"
    assert records == [line("R", 0, (1000, b"k", None, ()))]


def test_java_reads_our_markers(exchange: Exchange) -> None:
    batches, records = described(exchange, "markers")

    assert records == ["C 40 99 ABORT 7", "C 40 99 COMMIT 7"]
    assert [fields[-3:-1] for fields in batches] == [["true", "true"]] * 2


def format_name(case: tuple[int, Compression, TimestampType]) -> str:
    return f"v{case[0]}-{case[1].name}-{case[2].name}"


@pytest.mark.parametrize("case", FORMATS, ids=map(format_name, FORMATS))
@pytest.mark.parametrize("name", WRITABLE)
def test_we_read_javas_batches(
    exchange: Exchange, name: str, case: tuple[int, Compression, TimestampType]
) -> None:
    magic, codec, kind = case
    file = f"{file_name(name)}.{magic}.{codec.config_name}.{int(kind)}.batch"
    data = (exchange.written_by_java / file).read_bytes()

    batches = list(split_batches(data))

    for batch in batches:
        batch.check_crc()
        assert isinstance(batch, RecordBatch if magic == 2 else LegacyBatch)
        assert (batch.magic, batch.compression, batch.timestamp_type) == case
    found = [record for batch in batches for record in batch.records()]
    assert [
        (record.offset, record.timestamp, record.key, record.value, record.headers)
        for record in found
    ] == [
        (JAVA_BASE_OFFSET + delta, *expected(row, magic, kind))
        for delta, row in enumerate(ROWS[name])
    ]


def expected(row: Row, magic: int, kind: TimestampType) -> Row:
    """What is left of a row in an old format or under the broker's clock."""
    timestamp, key, value, headers = row
    if kind:
        timestamp = JAVA_APPEND_TIME
    return timestamp if magic else -1, key, value, headers if magic == 2 else ()


@pytest.mark.parametrize("codec", CODECS, ids=[codec.name for codec in CODECS])
def test_both_kernels_read_javas_batches(exchange: Exchange, codec: Compression) -> None:
    for name in WRITABLE:
        file = f"{file_name(name)}.2.{codec.config_name}.0.batch"
        batch = RecordBatch((exchange.written_by_java / file).read_bytes())
        arguments = batch.body(), batch.record_count, batch.base_offset, batch.base_timestamp
        plain, fast = (kernel.decode_records(*arguments) for kernel in (PLAIN, compiled()))
        assert list(map(repr, plain)) == list(map(repr, fast))


@pytest.mark.parametrize("name", WRITABLE)
def test_uncompressed_batches_are_the_same_bytes(exchange: Exchange, name: str) -> None:
    java = (exchange.written_by_java / f"{file_name(name)}.2.none.0.batch").read_bytes()

    assert built(ROWS[name], base_offset=JAVA_BASE_OFFSET) == java


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_markers_are_the_same_bytes(exchange: Exchange, kind: ControlType) -> None:
    java = (exchange.written_by_java / f"{kind.name}.marker").read_bytes()
    marker = EndTxnMarker(kind, coordinator_epoch=7)

    (record,) = RecordBatch(java).records()

    assert parse_end_txn_marker(record) == marker
    assert java == end_txn_marker(
        marker,
        producer_id=4000,
        producer_epoch=5,
        timestamp=1_700_000_000_000,
        base_offset=40,
        leader_epoch=3,
    )
