"""Fingerprints of rows: what they notice, what they do not mind, and that both versions agree."""

from __future__ import annotations

import importlib.util
import random
from typing import Any

import pytest

from millstream import _accel
from millstream.errors import InvalidArgument
from millstream.records.fingerprint import Fingerprint, fingerprint_of
from millstream.records.plain import arrow_reader as plain_reader
from millstream.records.plain import row_fingerprint as plain

pa: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
EVERYTHING = pa.RecordBatch.from_arrays(
    [
        pa.array([b"a", b"", None, b"twelve bytes"], pa.binary()),
        pa.array([b"1", None, b"", b"x" * 1000], pa.binary()),
        pa.array([None, 0, 2, 7], pa.int32()),
        pa.array([None, 0, -5, 1_700_000_000_000], pa.timestamp("ms")),
        pa.array(
            [None, [], [{"key": "h", "value": b"v"}, {"key": "", "value": None}], None], HEADERS
        ),
    ],
    names=["key", "value", "partition", "timestamp", "headers"],
)


def test_both_versions_give_the_same_numbers() -> None:
    (chunk,) = plain_reader.ArrowRecordsReader(EVERYTHING)

    keys, content = plain.fold_rows(chunk, b"orders")

    assert fingerprint_of(EVERYTHING, "orders") == Fingerprint(4, keys, content)


def test_without_the_kernel_the_plain_version_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec("millstream.records.kernel")
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.setattr(_accel, "COMPILED", False)
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)

    assert fresh.fold_rows is plain.fold_rows


def test_the_numbers_are_those_that_were_stored_by_earlier_versions() -> None:
    table = pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"0123456789"]})

    found = fingerprint_of(table, "t")

    assert found == Fingerprint(1, 0x3229533694DD5E84, 0x71DAE3F1B2264304)


def test_the_order_of_rows_and_their_chunks_do_not_count() -> None:
    rows = [(b"%d" % (n % 5), b"value %d" % n) for n in range(50)]
    table = pa.table({"key": [k for k, _ in rows], "value": [v for _, v in rows]})
    random.Random(3).shuffle(rows)
    parts = [rows[:20], rows[20:]]
    shuffled = pa.concat_tables(
        [pa.table({"key": [k for k, _ in part], "value": [v for _, v in part]}) for part in parts]
    )

    assert fingerprint_of(shuffled, "t") == fingerprint_of(table, "t")


@pytest.mark.parametrize(
    "other",
    [
        {"key": [b"a", b"c"], "value": [b"1", b"2"]},
        {"key": [b"a", None], "value": [b"1", b"2"]},
        {"key": [b"a", b"b"], "value": [b"1", b"2"], "partition": [0, 0]},
        {"key": [b"a", b"b", b"b"], "value": [b"1", b"2", b"2"]},
    ],
)
def test_another_key_partition_or_count_shows_in_the_keys(other: dict[str, Any]) -> None:
    table = pa.RecordBatch.from_pydict({"key": [b"a", b"b"], "value": [b"1", b"2"]})

    changed = fingerprint_of(pa.RecordBatch.from_pydict(other), "t")

    assert changed.keys != fingerprint_of(table, "t").keys
    assert changed.content != fingerprint_of(table, "t").content


@pytest.mark.parametrize(
    "other",
    [
        {"value": [b"2", b"1"], "key": [b"a", b"b"]},
        {"value": [b"1", b"2\0"], "key": [b"a", b"b"]},
        {"value": [b"1", None], "key": [b"a", b"b"]},
        {"value": [b"1", b"2"], "key": [b"a", b"b"], "timestamp": pa.array([1, 2])},
    ],
)
def test_other_values_show_in_the_content_only(other: dict[str, Any]) -> None:
    table = pa.RecordBatch.from_pydict({"key": [b"a", b"b"], "value": [b"1", b"2"]})
    if "timestamp" in other:
        other = {**other, "timestamp": other["timestamp"].cast(pa.timestamp("ms"))}

    changed = fingerprint_of(pa.RecordBatch.from_pydict(other), "t")

    assert changed.keys == fingerprint_of(table, "t").keys
    assert changed.content != fingerprint_of(table, "t").content


def test_the_topic_counts() -> None:
    assert fingerprint_of(EVERYTHING, "a").keys != fingerprint_of(EVERYTHING, "b").keys


def test_a_row_that_cannot_be_read_is_named() -> None:
    table = pa.RecordBatch.from_arrays(
        [
            pa.array([b"1", b"2"], pa.binary()),
            pa.array([None, [{"key": None, "value": b"v"}]], HEADERS),
        ],
        names=["value", "headers"],
    )

    with pytest.raises(InvalidArgument, match="row 1"):
        fingerprint_of(table, "t")


def test_sums_wrap_around() -> None:
    most = Fingerprint(1, (1 << 64) - 1, (1 << 64) - 1)

    assert most + Fingerprint(2, 1, 3) == Fingerprint(3, 0, 2)
