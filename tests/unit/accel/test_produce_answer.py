"""Which answers to Produce requests keep a lane open: those that say that all is well."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from millstream.client.producer import kernel

if not kernel.COMPILED or sys.platform != "linux":
    pytest.skip("the compiled accumulator is not built (make build)", allow_module_level=True)

from millstream._accel.partition_queues import is_plain_success
from millstream.protocol.messages.produce import BatchIndexAndErrorMessage, LeaderIdAndEpoch
from tests.unit.accel.lane_bench import response

VERSIONS = range(3, 14)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_is_well(version: int) -> None:
    assert is_plain_success(response(version), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("change", [{"error_code": 1}, {"error_code": -1}, {"throttle_time_ms": 5}])
def test_something_is_not(version: int, change: dict[str, Any]) -> None:
    assert not is_plain_success(response(version, **change), version)


@pytest.mark.parametrize("version", [8, 9, 13])
def test_words_about_records_are_for_python(version: int) -> None:
    wrong = BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no")

    assert not is_plain_success(response(version, record_errors=[wrong]), version)
    assert not is_plain_success(response(version, error_message="hm"), version)


def test_tags_that_mean_nothing_here_are_skipped() -> None:
    leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=4)

    assert is_plain_success(response(12, current_leader=leader), 12)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_cut_and_no_byte_too_many_is_well(version: int) -> None:
    whole = response(version)

    for end in range(len(whole)):
        assert not is_plain_success(bytes(whole[:end]), version)
    assert not is_plain_success(whole + b"\0", version)


def test_claims_of_size_are_not_believed() -> None:
    assert not is_plain_success(b"\0\0\0\1" + b"\xff" * 40, 9)
    assert not is_plain_success(b"\0\0\0\1" + b"\x7f" * 40, 3)
