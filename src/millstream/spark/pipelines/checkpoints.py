"""Whether a query may go on from its checkpoint: refused at the start, before a row is lost.

`runner` calls `check_checkpoints` once a pipeline's directory is its own. Two things are kept
beside Spark's own files:

    <checkpoint>/definition.json                which definition made the checkpoint, and its id
    <path>/_spark_metadata/owner.json           which checkpoint wrote the files of a sink

A checkpoint that another definition made holds offsets of other topics. Files of a sink are worse:
Spark keeps the numbers of their batches beside them, not in the checkpoint, and leaves out in
silence every batch whose number is there, whoever wrote it. The rules are functions of values;
`CheckpointFiles` reads and writes wherever Spark has its checkpoints.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.errors import CheckpointMismatch
from millstream.spark.pipelines.state_directory import StateDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from millstream.spark.pipelines.assembly import Flow
    from millstream.spark.pipelines.definition import Pipeline

_DEFINITION: Final = "definition.json"
_OWNER: Final = "owner.json"
_COMPACTED: Final = ".compact"
NO_BATCH: Final = -1
_LOSS: Final = (
    ", and Spark would leave out every batch whose number is there. Give the sink another "
    "directory, move this one away, or go on with the --storage that wrote it"
)


class Files(Protocol):
    """Where checkpoints are."""

    def read(self, path: str) -> str | None:
        """A file's text; None if it is absent."""
        ...

    def write(self, path: str, text: str) -> None:
        """Write a file: readers see nothing of it, or all."""
        ...

    def last_batch(self, directory: str) -> int:
        """The largest number that names a file of a log of Spark's; NO_BATCH if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """What a query reads and writes: the parts of its definition that its offsets depend on."""

    pipeline: str
    reads: tuple[str, ...]
    writes: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Of the checkpoint, from its first start on."""

    def changes_since(self, made: QueryDefinition) -> list[str]:
        """What is different from the definition that made the checkpoint, in words."""
        changes = []
        if self.pipeline != made.pipeline:
            changes.append(f"it belonged to the pipeline {made.pipeline}")
        if self.reads != made.reads:
            before, now = ", ".join(made.reads), ", ".join(self.reads)
            changes.append(f"it read {before} and reads {now} now")
        if self.writes != made.writes:
            changes.append(f"it wrote {made.writes} and writes {self.writes} now")
        return changes


@dataclass(frozen=True, slots=True)
class Owner:
    """The checkpoint whose query wrote the files of a sink."""

    id: str
    pipeline: str
    storage: str


@dataclass(frozen=True, slots=True)
class Batches:
    """The last batch that each log knows."""

    planned: int
    """In the checkpoint: begun, or done."""
    committed: int
    """In the checkpoint: done."""
    written: int
    """Beside the sink's files."""


def check_checkpoints(
    pipeline: Pipeline,
    flows: Mapping[str, Flow],
    files: Files,
    *,
    accepts_changes: bool = False,
) -> None:
    """Raise CheckpointMismatch for the first query that must not go on; note who goes on where."""
    directory = StateDirectory(pipeline.storage, pipeline.checkpoints)
    for name, flow in flows.items():
        checkpoint = directory.checkpoint(name)
        planned = files.last_batch(f"{checkpoint}/offsets")
        if pipeline.is_first_run and planned != NO_BATCH:
            raise CheckpointMismatch(
                f"query {name}: its checkpoint {checkpoint} says where to go on, and a time to "
                "begin at would change nothing. Begin anew with another --storage"
            )
        made = _checked_definition(pipeline, flow, checkpoint, files, accepts_changes)
        log = flow.sink.batch_log
        if log is None:
            continue
        batches = Batches(
            planned=planned,
            committed=files.last_batch(f"{checkpoint}/commits"),
            written=files.last_batch(log),
        )
        owner = Owner(made.id, pipeline.name, pipeline.storage)
        found = _parsed(Owner, files.read(f"{log}/{_OWNER}"))
        problem = log_problem(owner, found, batches)
        if problem is not None:
            raise CheckpointMismatch(f"query {name}: {flow.sink.subject} {problem}")
        if found != owner:
            files.write(f"{log}/{_OWNER}", json.dumps(asdict(owner)))


def definition_of(pipeline: Pipeline, flow: Flow) -> QueryDefinition:
    """What a query reads and writes now."""
    sources = (pipeline.sources.get(each) for each in pipeline.upstream_of(flow.sink.from_))
    reads = (each.subject for each in sources if each is not None and each.is_streaming)
    return QueryDefinition(pipeline.name, tuple(sorted(reads)), flow.sink.subject)


def log_problem(owner: Owner, found: Owner | None, batches: Batches) -> str | None:
    """Why rows would be lost in a directory that has a log of batches; None if none would."""
    is_others = found is not None and found.id != owner.id
    if is_others and batches.written == NO_BATCH:
        assert found is not None
        # Nothing is written yet. A run that ended before its first batch has no rights here.
        is_others = found.storage != owner.storage and StateDirectory(found.storage).is_running
    if is_others:
        assert found is not None
        return (
            f"has batches of the pipeline {found.pipeline} with the storage {found.storage}{_LOSS}"
        )
    if batches.written > batches.planned:
        return (
            f"has batches up to {batches.written}, of which the checkpoint knows nothing, so that "
            f"another query wrote them{_LOSS}"
        )
    if batches.written < batches.committed:
        return (
            f"lacks batches: the checkpoint is at batch {batches.committed}, and the rows before "
            "are not there any more. Put the directory back, or begin anew with another --storage, "
            "which writes all rows again"
        )
    return None


def _checked_definition(
    pipeline: Pipeline, flow: Flow, checkpoint: str, files: Files, accepts_changes: bool
) -> QueryDefinition:
    """The definition of a query with the id of its checkpoint, noted there."""
    now = definition_of(pipeline, flow)
    file = f"{checkpoint}/{_DEFINITION}"
    made: QueryDefinition | None = _parsed(QueryDefinition, files.read(file))
    if made is None:
        files.write(file, json.dumps(asdict(now)))
        return now
    made = replace(made, reads=tuple(made.reads))
    changes = now.changes_since(made)
    if not changes:
        return made
    if not accepts_changes:
        raise CheckpointMismatch(
            f"query {flow.name}: its checkpoint {checkpoint} was made by another definition: "
            f"{'; '.join(changes)}. Begin anew with another --storage, or set the definition back; "
            "--accept-changes goes on from the checkpoint all the same"
        )
    now = replace(now, id=made.id)
    files.write(file, json.dumps(asdict(now)))
    return now


def _parsed(cls: type[Any], text: str | None) -> Any:
    return None if text is None else cls(**json.loads(text))


class CheckpointFiles:
    """Files of any system that Hadoop knows, as Spark itself sees them."""

    def __init__(self, spark: SparkSession) -> None:
        session: Any = spark
        self._jvm = session._jvm
        self._configuration = session._jsc.hadoopConfiguration()

    def read(self, path: str) -> str | None:
        """A file's text; None if it is absent."""
        system, file = self._located(path)
        if not system.exists(file):
            return None
        stream = system.open(file)
        try:
            content: bytes = self._jvm.org.apache.hadoop.io.IOUtils.readFullyToByteArray(stream)
        finally:
            stream.close()
        return content.decode("utf-8")

    def write(self, path: str, text: str) -> None:
        """Write a file: readers see nothing of it, or all."""
        system, file = self._located(path)
        unfinished = file.suffix(".unfinished")
        stream = system.create(unfinished, True)
        try:
            stream.write(text.encode("utf-8"))
        finally:
            stream.close()
        system.delete(file, False)  # Hadoop renames to no name that is there.
        system.rename(unfinished, file)

    def last_batch(self, directory: str) -> int:
        """The largest number that names a file of a log of Spark's; NO_BATCH if there is none."""
        system, path = self._located(directory)
        if not system.exists(path):
            return NO_BATCH
        names = (each.getPath().getName() for each in system.listStatus(path))
        numbers = (each.removesuffix(_COMPACTED) for each in names)
        return max((int(each) for each in numbers if each.isdecimal()), default=NO_BATCH)

    def _located(self, path: str) -> tuple[Any, Any]:
        located = self._jvm.org.apache.hadoop.fs.Path(path)
        return located.getFileSystem(self._configuration), located
