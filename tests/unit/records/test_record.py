"""`Record` is a read-only value on both kernels."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

FIELDS = (7, 1_700_000_000_000, b"key", b"value", (("h", b"x"), ("n", None)))


def test_a_record_has_its_fields(kernel: Any) -> None:
    record = kernel.Record(*FIELDS)

    assert (record.offset, record.timestamp, record.key, record.value, record.headers) == FIELDS


def test_headers_are_optional_and_all_fields_have_names(kernel: Any) -> None:
    record = kernel.Record(offset=1, timestamp=2, key=None, value=None)

    assert record == kernel.Record(1, 2, None, None, ())


def test_records_are_compared_by_value(kernel: Any) -> None:
    record = kernel.Record(*FIELDS)

    assert record == kernel.Record(*FIELDS)
    assert hash(record) == hash(kernel.Record(*FIELDS))
    assert record != kernel.Record(8, *FIELDS[1:])
    assert record != FIELDS
    assert record.__eq__(FIELDS) is NotImplemented


@pytest.mark.parametrize("name", ["offset", "timestamp", "key", "value", "headers", "other"])
def test_a_record_cannot_be_changed(kernel: Any, name: str) -> None:
    record = kernel.Record(*FIELDS)

    with pytest.raises(AttributeError):
        setattr(record, name, None)
    with pytest.raises(AttributeError):
        delattr(record, name)


def test_a_record_shows_its_fields(kernel: Any) -> None:
    assert repr(kernel.Record(0, 1, b"k", b"v")) == (
        "Record(offset=0, timestamp=1, key=b'k', value=b'v', headers=())"
    )


def test_a_record_can_be_pickled(kernel: Any) -> None:
    record = kernel.Record(*FIELDS)

    assert pickle.loads(pickle.dumps(record)) == record


def test_a_record_can_be_matched_by_position(kernel: Any) -> None:
    match kernel.Record(*FIELDS):
        case kernel.Record(offset, _, key):
            assert (offset, key) == (7, b"key")
        case _:
            pytest.fail("a record matches its own class")
