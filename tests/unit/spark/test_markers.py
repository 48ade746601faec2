"""What the exactly-once sink does, given what is written: decisions, and every refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.groups import OffsetAndMetadata
from millstream.errors import SinkRefused
from millstream.records.fingerprint import Fingerprint
from millstream.spark.sink.markers import (
    Decision,
    Marker,
    TaskIdentity,
    TaskReport,
    audit,
    decide,
    latest_marker,
    verify,
)
from millstream.types import TopicPartition

TASK = TaskIdentity("p", "query", batch_id=7, partition=2)
ROWS = Fingerprint(10, keys=0xA, content=0xB)
MARKER = Marker(7, ROWS, "first")


def test_identities_name_the_task_and_not_the_batch() -> None:
    assert TASK.transactional_id == "p.query.2"
    assert TASK.family == "p.query."
    assert replace(TASK, batch_id=8).transactional_id == TASK.transactional_id
    assert str(TASK) == "batch 7 of query query, task 2"


@pytest.mark.parametrize("marker", [None, replace(MARKER, batch_id=6), replace(MARKER, batch_id=0)])
def test_a_batch_that_is_not_written_is_written(marker: Marker | None) -> None:
    assert decide(TASK, marker) is Decision.WRITE


def test_a_batch_that_is_written_is_only_verified() -> None:
    assert decide(TASK, MARKER) is Decision.VERIFY


def test_a_batch_before_the_one_that_is_written_is_refused() -> None:
    with pytest.raises(SinkRefused, match=r"batch 7 of query query, task 2: batch 8 is written"):
        decide(TASK, replace(MARKER, batch_id=8))


@pytest.mark.parametrize("compare", ["content", "keys", "count", "none"])
def test_the_same_rows_again_are_fine(compare: str) -> None:
    verify(TASK, MARKER, ROWS, compare)


@pytest.mark.parametrize(
    ("rows", "refusing", "detail"),
    [
        (replace(ROWS, rows=11), {"content", "keys", "count"}, "10 rows were written and there"),
        (replace(ROWS, keys=1, content=1), {"content", "keys"}, "10 rows .* other keys"),
        (replace(ROWS, content=1), {"content"}, "10 rows .* other values"),
    ],
)
def test_other_rows_are_refused_as_strictly_as_was_asked_for(
    rows: Fingerprint, refusing: set[str], detail: str
) -> None:
    for compare in ("content", "keys", "count", "none"):
        if compare in refusing:
            with pytest.raises(SinkRefused, match=detail):
                verify(TASK, MARKER, rows, compare)
        else:
            verify(TASK, MARKER, rows, compare)


def test_an_audit_finds_a_task_that_is_gone() -> None:
    reports = [TaskReport(0, fingerprint=ROWS), TaskReport(1, fingerprint=ROWS)]

    with pytest.raises(SinkRefused, match=r"task 3 had written 10 rows, and of its 2 tasks now"):
        audit(7, reports, {3: MARKER}, "content")


def test_an_audit_finds_a_task_that_has_no_rows_any_more() -> None:
    with pytest.raises(SinkRefused, match="batch 7 was begun before with other tasks"):
        audit(7, [TaskReport(0)], {0: MARKER}, "count")


def test_an_audit_minds_neither_other_batches_nor_what_is_not_compared() -> None:
    reports = [TaskReport(0, fingerprint=ROWS)]

    audit(7, reports, {0: MARKER, 3: replace(MARKER, batch_id=6)}, "content")
    audit(7, reports, {3: MARKER}, "none")


@given(
    st.builds(
        Marker,
        st.integers(0, 2**63 - 1),
        st.builds(
            Fingerprint,
            st.integers(0, 2**40),
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**64 - 1),
        ),
        st.text("0123456789abcdef", min_size=1, max_size=32),
    )
)
def test_markers_survive_being_committed(marker: Marker) -> None:
    assert Marker.from_offset("g", marker.to_offset()) == marker


@pytest.mark.parametrize(
    "metadata", ["", "mine", "millstream-spark-1 x y z e", "millstream-spark-9 1 a b e"]
)
def test_offsets_that_are_no_markers_are_refused(metadata: str) -> None:
    with pytest.raises(SinkRefused, match="group g has a commit that is no marker"):
        Marker.from_offset("g", OffsetAndMetadata(3, metadata))


def test_a_tasks_latest_marker_counts_whichever_topic_it_is_beside() -> None:
    older = replace(MARKER, batch_id=5)
    offsets = {
        TopicPartition("a", 0): MARKER.to_offset(),
        TopicPartition("b", 0): older.to_offset(),
    }

    assert latest_marker("g", offsets) == MARKER
    assert latest_marker("g", {}) is None
