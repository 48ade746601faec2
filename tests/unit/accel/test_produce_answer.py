"""Which answers to Produce requests need no closer look: those that say that all is well."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from millstream.client.producer import kernel

if not kernel.COMPILED or sys.platform != "linux":
    pytest.skip("the compiled accumulator is not built (make build)", allow_module_level=True)

from millstream._accel.client.produce_sink import read_produced
from millstream.protocol.messages.produce import BatchIndexAndErrorMessage, LeaderIdAndEpoch
from tests.unit.accel.sink_bench import response

VERSIONS = range(3, 14)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_is_well(version: int) -> None:
    produced = read_produced(response(version), version)

    assert produced == [(0, 5, -1), (1, 7, -1)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("change", [{"error_code": 1}, {"error_code": -1}, {"throttle_time_ms": 5}])
def test_something_is_not(version: int, change: dict[str, Any]) -> None:
    assert read_produced(response(version, **change), version) is None


@pytest.mark.parametrize("version", [8, 9, 13])
def test_words_about_records_are_for_python(version: int) -> None:
    wrong = BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no")

    assert read_produced(response(version, record_errors=[wrong]), version) is None
    assert read_produced(response(version, error_message="hm"), version) is None


def test_tags_that_mean_nothing_here_are_skipped() -> None:
    leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=4)

    assert read_produced(response(12, current_leader=leader), 12) == [(0, 5, -1), (1, 7, -1)]


@pytest.mark.parametrize("version", VERSIONS)
def test_no_cut_and_no_byte_too_many_is_well(version: int) -> None:
    whole = response(version)

    for end in range(len(whole)):
        assert read_produced(bytes(whole[:end]), version) is None
    assert read_produced(whole + b"\0", version) is None


def test_claims_of_size_are_not_believed() -> None:
    assert read_produced(b"\0\0\0\1" + b"\xff" * 40, 9) is None
    assert read_produced(b"\0\0\0\1" + b"\x7f" * 40, 3) is None
