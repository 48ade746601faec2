"""The batches that `millstream perf produce` sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.faults import CommandFailed
from millstream.cli.perf_payload import Payload, random_values, values_of_file
from millstream.records import Compression, RecordBatch

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("size", [1, 100, 5000, 5 << 20])
def test_values_have_the_size_asked_for(size: int) -> None:
    values = random_values(size)

    assert {len(value) for value in values} == {size}
    assert values == random_values(size)


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_has_its_records_at_the_time_it_was_made(codec: Compression) -> None:
    payload = Payload([b"a", b"bb", b"ccc"], 10_000, codec)

    batch = RecordBatch(payload.batch(4, NOW_MS).data)

    batch.check_crc()
    assert [record.value for record in batch.records()] == [b"a", b"bb", b"ccc", b"a"]
    assert {record.timestamp for record in batch.records()} == {NOW_MS}
    assert batch.max_timestamp == NOW_MS


def test_batches_go_on_where_the_last_one_ended() -> None:
    payload = Payload([b"a", b"bb", b"ccc"], 10_000, Compression.NONE)

    made = [payload.batch(2, NOW_MS) for _ in range(3)]

    values = [record.value for each in made for record in RecordBatch(each.data).records()]
    assert values == [b"a", b"bb", b"ccc"] * 2
    assert [each.value_bytes for each in made] == [3, 4, 5]
    assert [each.records for each in made] == [2, 2, 2]


@pytest.mark.parametrize("size", [1, 10, 100, 1000])
def test_a_full_batch_is_about_as_large_as_asked_for(size: int) -> None:
    payload = Payload(random_values(size), 16_384, Compression.NONE)

    data = payload.batch(payload.records_per_batch, NOW_MS).data

    assert 0.85 * 16_384 < len(data) <= 1.05 * 16_384


def test_a_batch_has_a_record_even_if_that_is_larger() -> None:
    assert Payload(random_values(1000), 10, Compression.NONE).records_per_batch == 1


def test_values_are_the_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\n\ntwo\n")

    assert values_of_file(tmp_path / "lines") == [b"one", b"two"]


def test_a_file_that_is_of_no_use_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    with pytest.raises(CommandFailed, match="empty has no lines"):
        values_of_file(tmp_path / "empty")
    with pytest.raises(CommandFailed, match=r"cannot read .*nowhere"):
        values_of_file(tmp_path / "nowhere")
