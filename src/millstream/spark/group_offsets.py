"""A query's progress as a consumer group: `millstream groups describe` and every monitor show lag.

Spark keeps offsets in its checkpoint, where nobody else sees them. `commit_offsets_of` listens to a
query and commits the end of each finished batch to a group. The group is for looking at, and for
starting another query with `startingGroup`; the query itself goes on from its checkpoint. A commit
that fails is logged and never ends the query.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from millstream.client.admin.admin import Admin
from millstream.errors import InvalidArgument, MillstreamError
from millstream.spark.source.offsets import AtOffsets, parse_bound

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    from millstream.client.admin.config import AdminSettings
    from millstream.spark.source.offsets import Offsets

_logger = logging.getLogger(__name__)


def commit_offsets_of(
    query: Any, group: str, bootstrap: str, **settings: Unpack[AdminSettings]
) -> GroupOffsetsListener:
    """Commit the end of each batch that a streaming query finishes to a consumer group.

    `settings` are those of an `Admin`. The group must have no members. The listener ends with the
    query, one that is started again needs a new one; `wait` on it to know that the last batch is
    committed.
    """
    committer = GroupCommitter(Admin(bootstrap, **settings), group)
    listener = GroupOffsetsListener(str(query.runId), committer)
    SparkSession.active().streams.addListener(listener)
    # What happened before that is not told again.
    if query.lastProgress is not None:
        listener.note(query.lastProgress)
    if not query.isActive:
        committer.close()
    return listener


class GroupCommitter:
    """Commits the latest offsets it was told, on a thread of its own: Spark's must not wait."""

    def __init__(self, admin: Any, group: str) -> None:
        self.group = group
        self._admin = admin
        self._changed = threading.Condition()
        self._pending: Offsets = {}
        self._is_closing = False
        self._thread = threading.Thread(
            target=self._run, name=f"millstream-offsets-of-{group}", daemon=True
        )
        self._thread.start()

    def tell(self, offsets: Offsets) -> None:
        """These are to be committed next; those of the same partitions that wait are outdated."""
        with self._changed:
            self._pending.update(offsets)
            self._changed.notify()

    def close(self) -> None:
        """Commit what waits, then end; returns at once."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it came in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._pending or self._is_closing)
                    offsets, self._pending = self._pending, {}
                if not offsets:
                    return
                self._commit(offsets)
        finally:
            self._admin.close()

    def _commit(self, offsets: Offsets) -> None:
        try:
            self._admin.alter_group_offsets(self.group, offsets).raise_first()
        except MillstreamError as error:
            _logger.warning("offsets are not committed to group %s: %s", self.group, error)


class GroupOffsetsListener(StreamingQueryListener):
    """What Spark tells of one run of a query, handed on to a committer.

    By the run and not the query: the end of the run before may be told late.
    """

    def __init__(self, run_id: str, committer: GroupCommitter) -> None:
        self._run_id = run_id
        self._committer = committer
        self._lock = threading.Lock()
        self._last_batch = -1

    def note(self, progress: Any) -> None:
        """A batch is finished; one before the last is old news."""
        with self._lock:
            if progress.batchId >= self._last_batch:
                self._last_batch = progress.batchId
                self._committer.tell(ends_of(progress.sources))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the query has ended and its last batch is committed; whether it is in time."""
        return self._committer.wait(timeout)

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is finished yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is finished."""
        if str(event.progress.runId) == self._run_id:
            self.note(event.progress)

    def onQueryTerminated(self, event: Any) -> None:
        """The query has ended, well or not."""
        if str(event.runId) == self._run_id:
            self._committer.close()


def ends_of(sources: Iterable[Any]) -> Offsets:
    """Where a finished batch ends, of those sources of a query that read topics."""
    found: Offsets = {}
    for source in sources:
        try:
            bound = parse_bound(source.endOffset or "")
        except InvalidArgument:
            continue  # Of a file, a table or a clock.
        if isinstance(bound, AtOffsets):
            found.update(bound.offsets)
    return found
