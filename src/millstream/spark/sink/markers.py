"""The exactly-once sink's memory: what a task has written, and what follows from it.

Each task writes its rows and a `Marker` in one transaction: the number of the batch and the
fingerprint of the rows, kept as the committed offset of a consumer group that nobody reads with.
Before it writes, a task reads its marker and asks `decide`; after the first batch of a run, the
driver asks `audit`. All of it is a function of values: no broker, no Spark, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from millstream.client.groups import OffsetAndMetadata
from millstream.errors.sinks import SinkRefused
from millstream.records.fingerprint import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.types import TopicPartition

NOTHING: Final = Fingerprint()
"""The fingerprint of no rows."""

_FORM: Final = "millstream-spark-1"
_SEE: Final = "See docs/topics/exactly-once-on-spark.md."


class Decision(Enum):
    """What a task does with its rows."""

    WRITE = "write"
    VERIFY = "verify"
    """They are written; see that they are the same, and write nothing."""


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Whose rows these are, the same at every try."""

    prefix: str
    query_id: str
    batch_id: int
    partition: int
    """The task's number in its stage, which has nothing to do with partitions of topics."""

    @property
    def family(self) -> str:
        """How the names of all tasks of the query begin."""
        return f"{self.prefix}.{self.query_id}."

    @property
    def transactional_id(self) -> str:
        """By which a new try shuts out those before it; the group with the marker is called so too.

        A group for each task, because an offset belongs to a partition that must exist, and there
        may be more tasks than partitions.
        """
        return f"{self.family}{self.partition}"

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}, task {self.partition}"


@dataclass(frozen=True, slots=True)
class Marker:
    """What a task has written last."""

    batch_id: int
    fingerprint: Fingerprint
    run: str
    """The life of the query in which it was written, from one start to the next."""

    def to_offset(self) -> OffsetAndMetadata:
        """As it is committed."""
        rows = self.fingerprint
        return OffsetAndMetadata(
            self.batch_id,
            f"{_FORM} {rows.rows} {rows.keys:016x} {rows.content:016x} {self.run}",
        )

    @classmethod
    def from_offset(cls, group: str, committed: OffsetAndMetadata) -> Marker:
        """Read one; SinkRefused if the group has been used for something else."""
        try:
            form, rows, keys, content, run = committed.metadata.split(" ")
            fingerprint = Fingerprint(int(rows), int(keys, 16), int(content, 16))
        except ValueError:
            form = ""
        if form != _FORM:
            raise SinkRefused(
                f"group {group} has a commit that is no marker of this sink: "
                f"{committed.metadata!r}. Choose another transactionalIdPrefix. {_SEE}"
            )
        return cls(committed.offset, fingerprint, run)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task tells the driver."""

    partition: int
    family: str = ""
    """How the names of the query's groups begin; empty where there are no markers."""
    fingerprint: Fingerprint = NOTHING
    is_repeated: bool = False
    """Whether the rows were there already."""
    is_later: bool = False
    """Whether the task had written an earlier batch in this run: then this one was never begun
    before, because a run that fails ends."""


def latest_marker(group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Marker | None:
    """A task's marker; it is kept beside whichever topic the task wrote to first."""
    found = [Marker.from_offset(group, committed) for committed in offsets.values()]
    return max(found, key=lambda marker: marker.batch_id, default=None)


def decide(task: TaskIdentity, marker: Marker | None) -> Decision:
    """What to do, given the task's own marker; SinkRefused if it is from the future."""
    if marker is None or marker.batch_id < task.batch_id:
        return Decision.WRITE
    if marker.batch_id == task.batch_id:
        return Decision.VERIFY
    raise SinkRefused(
        f"{task}: batch {marker.batch_id} is written already. Either this task is left over from "
        "an earlier run, and nothing is wrong; or the checkpoint was set back, and batches would "
        "be written again with rows that may differ: then start with a new checkpoint, or with "
        f"another transactionalIdPrefix if the rows are to be written again. {_SEE}"
    )


def verify(task: TaskIdentity, marker: Marker, rows: Fingerprint, compare: str) -> None:
    """SinkRefused unless the rows of a batch that is written are the rows it has now."""
    if _are_same(marker.fingerprint, rows, compare):
        return
    written = marker.fingerprint
    detail = (
        f"{written.rows} rows were written and there are {rows.rows} now"
        if written.rows != rows.rows
        else f"{rows.rows} rows were written with other {_what_differs(written, rows)} than now"
    )
    raise SinkRefused(
        f"{task} is written already, but not with these rows: {detail}. A batch that is run again "
        "must give each task the same rows: set the number of tasks back to what it was "
        "(repartition, minPartitions, cores for files), and use no random values. If only values "
        "differ (sums of doubles, uuid(), rand()) and keys decide which task has a row, "
        f"fingerprint=keys goes on; fingerprint=none goes on whatever the rows are. {_SEE}"
    )


def audit(
    batch_id: int,
    reports: Iterable[TaskReport],
    markers: Mapping[int, Marker],
    compare: str,
) -> None:
    """SinkRefused if an earlier run of a batch has written what no task of this run stands for."""
    by_partition = {report.partition: report for report in reports}
    for partition, marker in sorted(markers.items()):
        if marker.batch_id != batch_id or compare == "none":
            continue
        report = by_partition.get(partition)
        if report is None or not _are_same(marker.fingerprint, report.fingerprint, compare):
            raise _begun_otherwise(batch_id, partition, marker, len(by_partition))


def _begun_otherwise(batch_id: int, partition: int, marker: Marker, tasks: int) -> SinkRefused:
    return SinkRefused(
        f"batch {batch_id} was begun before with other tasks: task {partition} had written "
        f"{marker.fingerprint.rows} rows, and of its {tasks} tasks now none has the same. Some "
        "rows are there twice. Find them by the batch's input, then go on with fingerprint=none "
        "for one run; and keep the number of tasks (repartition, minPartitions, cores for files) "
        f"when a query is restarted. {_SEE}"
    )


def _are_same(written: Fingerprint, rows: Fingerprint, compare: str) -> bool:
    if compare == "none":
        return True
    if compare == "count":
        return written.rows == rows.rows
    if compare == "keys":
        return (written.rows, written.keys) == (rows.rows, rows.keys)
    return (written.rows, written.content) == (rows.rows, rows.content)


def _what_differs(written: Fingerprint, rows: Fingerprint) -> str:
    return "values" if written.keys == rows.keys else "keys"
