"""`millstream produce`: records from stdin or files into a topic."""

from __future__ import annotations

import os
import select
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    Topic,
)
from millstream.cli.output import counted, note, show_json
from millstream.cli.record_text import (
    LineParser,
    NewRecord,
    parse_header,
    parse_json_line,
    unescape,
)
from millstream.cli.session import open_session
from millstream.cli.topic_io import Acks, produce_batch
from millstream.errors import MillstreamError
from millstream.records import Compression, RecordBatchBuilder, partition_for_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.cli.session import Session

_READ_BYTES: Final = 1 << 16
BATCH_BYTES: Final = 100_000
"""Below the megabyte that brokers take by default, with room for what a line may add."""


class InputFormat(Enum):
    """What the input's lines are."""

    LINES = "lines"
    JSON = "json"


class AcksChoice(Enum):
    """As `--acks` has it."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


class CompressionChoice(Enum):
    """As `--compression` has it."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


CompressionOption = Annotated[
    CompressionChoice, typer.Option("--compression", "-z", help="How batches are compressed.")
]
AcksOption = Annotated[AcksChoice, typer.Option("--acks", help="Who must have a record.")]


def produce(
    topic: Topic,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Files to read; else stdin.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="SEP", help="Lines are key SEP value."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="The key of every record.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="For every record; repeatable."),
    ] = None,
    null: Annotated[
        str | None,
        typer.Option("--null", metavar="TEXT", help="A key or value of just this text is null."),
    ] = None,
    input_format: Annotated[
        InputFormat,
        typer.Option(
            "--input", help="`json`: objects with key, value, headers, partition, timestamp."
        ),
    ] = InputFormat.LINES,
    whole: Annotated[bool, typer.Option("--whole", help="Each file is one record.")] = False,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", help="Where to; else by key, or in turn."),
    ] = None,
    compression: CompressionOption = CompressionChoice.NONE,
    acks: AcksOption = AcksChoice.ALL,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    r"""Write records: each line of stdin or of the files is one.

    Lines that arrive together travel together. A record may arrive twice if an answer is lost.

    Examples: `echo hello | millstream produce greetings`,
    `millstream produce orders -K '\t' -z zstd -H source=import orders.tsv`
    """
    if key is not None and key_separator is not None:
        raise UsageFault("give either --key or --key-separator")
    parser = LineParser(
        None if key_separator is None else unescape(key_separator).encode(),
        None if null is None else null.encode(),
        tuple(parse_header(each) for each in header or ()),
        None if key is None else key.encode(),
    )
    if key_separator == "":
        raise UsageFault("--key-separator is empty")
    read = parse_json_line if input_format is InputFormat.JSON else parser.parse
    with open_session(bootstrap_server, timeout) as session:
        writer = TopicWriter(
            session, topic, parse_acks(acks), Compression.parse(compression.value), partition
        )
        try:
            _produce_all(writer, files or [], read, whole=whole)
        except MillstreamError as error:
            if not writer.record_count:
                raise
            raise CommandFailed(
                f"{error} (after {counted(writer.record_count, 'record')})"
            ) from error
    if as_json:
        show_json({"topic": topic, "records": writer.record_count, "bytes": writer.byte_count})
    note(f"{topic}: {counted(writer.record_count, 'record')}", as_json=as_json)


def parse_acks(choice: AcksChoice) -> Acks:
    """The number for the choice."""
    return Acks[choice.name]


class TopicWriter:
    """Collects records by partition and sends a batch when it is full or somebody flushes."""

    def __init__(
        self,
        session: Session,
        topic: str,
        acks: Acks,
        compression: Compression,
        partition: int | None = None,
    ) -> None:
        self._session = session
        self._topic = topic
        self._acks = acks
        self._compression = compression
        self._partition_count = len(session.topic(topic).partitions)
        if partition is not None:
            session.topic(topic).partition(partition)
        self._fixed = partition
        self._turn = session.clock.wall_ms() % self._partition_count
        self._builders: dict[int, RecordBatchBuilder] = {}
        self.record_count = 0
        self.byte_count = 0

    def add(self, record: NewRecord) -> None:
        """Take a record; its batch is sent when it is full."""
        partition = self._choose(record)
        builder = self._builders.setdefault(partition, RecordBatchBuilder())
        size = len(record.key or b"") + len(record.value or b"")
        if builder.record_count and builder.size + size > BATCH_BYTES:
            self._send(partition, builder)
        timestamp = record.timestamp
        if timestamp is None:
            timestamp = self._session.clock.wall_ms()
        builder.append(timestamp, record.key, record.value, record.headers)

    def flush(self) -> None:
        """Send what waits; the next records without a key go to the next partition."""
        for partition, builder in self._builders.items():
            if builder.record_count:
                self._send(partition, builder)
        self._turn = (self._turn + 1) % self._partition_count

    def _choose(self, record: NewRecord) -> int:
        if record.partition is not None and self._fixed is None:
            self._session.topic(self._topic).partition(record.partition)
            return record.partition
        if self._fixed is not None:
            return self._fixed
        if record.key is not None:
            return partition_for_key(record.key, self._partition_count)
        return self._turn

    def _send(self, partition: int, builder: RecordBatchBuilder) -> None:
        batch = builder.build(compression=self._compression)
        count = builder.record_count
        builder.clear()
        produce_batch(self._session, self._topic, partition, batch, self._acks)
        self.record_count += count
        self.byte_count += len(batch)
        self._turn = (self._turn + 1) % self._partition_count


def _produce_all(
    writer: TopicWriter, files: list[Path], read: Callable[[bytes], NewRecord], *, whole: bool
) -> None:
    if whole and not files:
        raise UsageFault("--whole needs files")
    if not files:
        if sys.stdin.isatty():
            typer.echo("each line is a record; Ctrl-D ends", err=True)
        _produce_lines(writer, sys.stdin.fileno(), read)
    for path in files:
        try:
            if whole:
                writer.add(read(path.read_bytes()))
                continue
            with path.open("rb") as file:
                _produce_lines(writer, file.fileno(), read)
        except OSError as error:
            raise CommandFailed(f"cannot read {path}: {error.strerror or error}") from error
    writer.flush()


def _produce_lines(
    writer: TopicWriter, descriptor: int, read: Callable[[bytes], NewRecord]
) -> None:
    for lines in _chunks_of_lines(descriptor):
        for line in lines:
            writer.add(read(line))
        # Somebody typing, or a slow pipe, should not wait for a batch to fill.
        if not select.select([descriptor], [], [], 0)[0]:
            writer.flush()


def _chunks_of_lines(descriptor: int) -> Iterator[list[bytes]]:
    rest = b""
    while chunk := os.read(descriptor, _READ_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        yield lines
    if rest:
        yield [rest]
