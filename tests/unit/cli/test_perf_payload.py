"""The values that `millstream perf produce` sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.faults import CommandFailed
from millstream.cli.perf_payload import Payload, random_values, values_of_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("size", [1, 100, 5000, 5 << 20])
def test_values_have_the_size_asked_for(size: int) -> None:
    values = random_values(size)

    assert {len(value) for value in values} == {size}
    assert values == random_values(size)


def test_chunks_go_on_where_the_last_one_ended() -> None:
    payload = Payload([b"a", b"bb", b"ccc"], 10_000)

    made = [payload.chunk(2) for _ in range(3)]

    assert [value for each in made for value in each.values] == [b"a", b"bb", b"ccc"] * 2
    assert [each.value_bytes for each in made] == [3, 4, 5]


@pytest.mark.parametrize("size", [1, 10, 100, 1000])
def test_a_full_chunk_is_about_as_large_as_asked_for(size: int) -> None:
    payload = Payload(random_values(size), 16_384)

    chunk = payload.chunk(payload.records_per_chunk)

    assert len(chunk.values) == payload.records_per_chunk
    assert 0.85 * 16_384 < chunk.value_bytes + 7 * len(chunk.values) <= 16_384


def test_a_chunk_has_a_record_even_if_that_is_larger() -> None:
    assert Payload(random_values(1000), 10).records_per_chunk == 1


def test_values_are_the_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"one\n\ntwo\n")

    assert values_of_file(tmp_path / "lines") == [b"one", b"two"]


def test_a_file_that_is_of_no_use_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()

    with pytest.raises(CommandFailed, match="empty has no lines"):
        values_of_file(tmp_path / "empty")
    with pytest.raises(CommandFailed, match=r"cannot read .*nowhere"):
        values_of_file(tmp_path / "nowhere")
