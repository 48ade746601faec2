"""Progress of a query as offsets of a group: what is committed, when, and what is left alone."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.errors import GroupAuthorizationFailed
from millstream.types import TopicPartition

pytest.importorskip("pyspark", reason="PySpark is not installed")

from millstream.spark.group_offsets import GroupCommitter, GroupOffsetsListener, ends_of


class Admin:
    """Notes what is committed; the first commit waits until it may go on."""

    def __init__(self, error: Exception | None = None) -> None:
        self.commits: list[dict[TopicPartition, int]] = []
        self.is_closed = False
        self.has_begun = threading.Event()
        self.may_go_on = threading.Event()
        self.error = error

    def alter_group_offsets(self, group: str, offsets: dict[TopicPartition, int]) -> Admin:
        self.has_begun.set()
        assert self.may_go_on.wait(10)
        self.commits.append(offsets)
        return self

    def raise_first(self) -> None:
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.is_closed = True


def at(offset: int, partition: int = 0) -> dict[TopicPartition, int]:
    return {TopicPartition("orders", partition): offset}


def source(end: str | None) -> SimpleNamespace:
    return SimpleNamespace(endOffset=end)


def test_only_sources_that_read_topics_have_offsets_to_commit() -> None:
    sources = [
        source('{"orders": {"0": 7, "1": 0}}'),
        source('{"logOffset": 3}'),
        source("12"),
        source(None),
        source('{"payments": {"4": 1}}'),
    ]

    assert ends_of(sources) == {
        TopicPartition("orders", 0): 7,
        TopicPartition("orders", 1): 0,
        TopicPartition("payments", 4): 1,
    }


def test_a_committer_that_is_behind_commits_the_latest_only() -> None:
    admin = Admin()
    committer = GroupCommitter(admin, "reports")
    committer.tell(at(1))
    assert admin.has_begun.wait(10)

    committer.tell(at(2))
    committer.tell(at(3) | at(9, partition=1))
    committer.close()
    admin.may_go_on.set()

    assert committer.wait(10)
    assert admin.commits == [at(1), at(3) | at(9, partition=1)]
    assert admin.is_closed


def test_a_commit_that_fails_is_told_and_the_next_one_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin = Admin(GroupAuthorizationFailed("not yours"))
    admin.may_go_on.set()
    committer = GroupCommitter(admin, "reports")

    committer.tell(at(1))
    committer.close()

    assert committer.wait(10)
    assert "offsets are not committed to group reports: not yours" in caplog.text


def test_a_listener_minds_its_own_query_and_no_old_news_and_ends_with_it() -> None:
    admin = Admin()
    admin.may_go_on.set()
    listener = GroupOffsetsListener("mine", GroupCommitter(admin, "reports"))

    listener.onQueryStarted(SimpleNamespace(runId="mine"))
    listener.onQueryProgress(progress("other", 5))
    listener.onQueryTerminated(SimpleNamespace(runId="other"))
    listener.onQueryProgress(progress("mine", 6))
    assert admin.has_begun.wait(10)
    listener.note(progress("mine", 4, batch=0).progress)
    listener.onQueryTerminated(SimpleNamespace(runId="mine"))

    assert listener.wait(10)
    assert admin.commits == [at(6)]


def test_the_late_end_of_the_run_before_does_not_end_a_listener() -> None:
    admin = Admin()
    admin.may_go_on.set()
    listener = GroupOffsetsListener("second-run", GroupCommitter(admin, "reports"))

    # Spark tells of the same query, by its id, that was started again from its checkpoint.
    listener.onQueryTerminated(SimpleNamespace(id="query", runId="first-run"))
    listener.onQueryProgress(progress("second-run", 6))
    listener.onQueryTerminated(SimpleNamespace(id="query", runId="second-run"))

    assert listener.wait(10)
    assert admin.commits == [at(6)]


def progress(run_id: str, end: int, batch: int = 1) -> Any:
    sources = [source(f'{{"orders": {{"0": {end}}}}}')]
    told = SimpleNamespace(id="query", runId=run_id, batchId=batch, sources=sources)
    return SimpleNamespace(progress=told)
