"""Rare things in what a fetch brought: markers without a type, old messages taken on trust."""

from __future__ import annotations

from typing import Any

from millstream.records import RecordBatchBuilder
from tests.unit.records.test_consumer_records import fetched, transaction, values
from tests.unit.records.test_legacy import message


def test_a_marker_without_a_type_ends_nothing(kernel: Any) -> None:
    builder = RecordBatchBuilder()
    builder.append(1000, None, b"")
    untyped = builder.build(
        base_offset=1, is_control=True, is_transactional=True, producer_id=1, producer_epoch=0
    )
    data = transaction(b"x", 0, 1) + untyped + transaction(b"y", 2, 1)

    assert values(fetched(kernel, data, aborted=[(1, 0)])) == []


def test_an_old_message_is_read_without_its_checksum_if_that_is_asked_for(kernel: Any) -> None:
    data = message(0, key=b"k", value=b"old")

    assert values(fetched(kernel, data, check_crc=False)) == [b"old"]
