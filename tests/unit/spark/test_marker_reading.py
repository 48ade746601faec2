"""How a marker is asked for, of brokers old and new."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import GroupAuthorizationFailed, UnstableOffsetCommit
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from millstream.spark.sink.marker_reading import _code_in, _partitions, _request

UNSTABLE = UnstableOffsetCommit.code


def test_a_marker_in_doubt_is_waited_for_where_brokers_can() -> None:
    build: Any = _request("g").build

    newer, older, oldest = build(9), build(7), build(5)

    assert [group.group_id for group in newer.groups] == ["g"]
    assert newer.groups[0].topics is None
    assert (older.group_id, older.topics) == ("g", None)
    assert [each.require_stable for each in (newer, older, oldest)] == [True, True, False]


def test_both_shapes_of_an_answer_are_read() -> None:
    old = OffsetFetchResponseTopic(
        name="a", partitions=[OffsetFetchResponsePartition(committed_offset=1)]
    )
    new = OffsetFetchResponseTopics(
        name="b", partitions=[OffsetFetchResponsePartitions(committed_offset=2)]
    )
    answers = [
        OffsetFetchResponse(topics=[old]),
        OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[new])]),
    ]

    found = [
        (name, each.committed_offset) for answer in answers for name, each in _partitions(answer)
    ]

    assert found == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (OffsetFetchResponse(), 0),
        (OffsetFetchResponse(error_code=GroupAuthorizationFailed.code), 30),
        (OffsetFetchResponse(groups=[OffsetFetchResponseGroup(error_code=30)]), 30),
        (
            OffsetFetchResponse(
                groups=[
                    OffsetFetchResponseGroup(
                        topics=[
                            OffsetFetchResponseTopics(
                                partitions=[OffsetFetchResponsePartitions(error_code=UNSTABLE)]
                            )
                        ]
                    )
                ]
            ),
            UNSTABLE,
        ),
    ],
)
def test_an_error_anywhere_in_an_answer_counts(answer: OffsetFetchResponse, code: int) -> None:
    assert _code_in(answer) == code
