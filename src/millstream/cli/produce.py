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
    Namespace,
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
from millstream.cli.value_types import (
    BYTES,
    KeySchema,
    KeyType,
    RegistryUrl,
    ValueSchema,
    ValueType,
    make_sides,
)
from millstream.errors import DeliveryFailed, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.cli.session import Session
    from millstream.cli.value_types import Sides
    from millstream.client.producer.producer import Producer

_READ_BYTES: Final = 1 << 16
RECORD_BYTES_MAX: Final = 64 << 20
"""Whether a record is too large is for the topic to say."""


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
Files = Annotated[
    list[Path] | None, typer.Argument(metavar="FILE", help="Files to read; else stdin.")
]
KeySeparator = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", metavar="SEP", help="Lines are key SEP value."),
]
Key = Annotated[
    str | None, typer.Option("--key", "-k", metavar="KEY", help="The key of every record.")
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="For every record; repeatable."),
]
NullText = Annotated[
    str | None,
    typer.Option("--null", metavar="TEXT", help="A key or value of just this text is null."),
]
Input = Annotated[
    InputFormat,
    typer.Option("--input", help="`json`: objects with key, value, headers, partition, timestamp."),
]
Whole = Annotated[bool, typer.Option("--whole", help="Each file is one record.")]
FixedPartition = Annotated[
    int | None,
    typer.Option("--partition", "-p", help="Where to; else by key, or where there is room."),
]
AcksOption = Annotated[AcksChoice, typer.Option("--acks", help="Who must have a record.")]


def produce(
    topic: Topic,
    files: Files = None,
    key_separator: KeySeparator = None,
    key: Key = None,
    header: HeaderOption = None,
    null: NullText = None,
    input_format: Input = InputFormat.LINES,
    key_type: KeyType = BYTES,
    value_type: ValueType = BYTES,
    key_schema: KeySchema = None,
    value_schema: ValueSchema = None,
    schema_registry: RegistryUrl = None,
    whole: Whole = False,
    partition: FixedPartition = None,
    compression: CompressionOption = CompressionChoice.NONE,
    acks: AcksOption = AcksChoice.ALL,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    r"""Write records: each line of stdin or of the files is one.

    Lines that arrive together travel together. With `--acks all` none arrives twice.

    Examples: `echo hello | millstream produce greetings`,
    `millstream produce orders -K '\t' -z zstd -H source=import orders.tsv`,
    `millstream produce orders --value-type avro --value-schema order.avsc orders.jsonl`
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
    sides = make_sides(key_type, value_type, schema_registry, key_schema, value_schema)
    with open_session(bootstrap_server, timeout, namespace) as session:
        producer = session.producer(
            acks=acks.value,
            compression_type=compression.value,
            max_request_size=RECORD_BYTES_MAX,
            buffer_memory=2 * RECORD_BYTES_MAX,
        )
        with producer:
            writer = TopicWriter(session, producer, topic, partition, sides)
            _produce_all(writer, files or [], read, whole=whole)
    if as_json:
        show_json({"topic": topic, "records": writer.record_count, "bytes": writer.byte_count})
    note(f"{topic}: {counted(writer.record_count, 'record')}", as_json=as_json)


class TopicWriter:
    """Gives records to a producer and counts those that have arrived."""

    def __init__(
        self,
        session: Session,
        producer: Producer,
        topic: str,
        partition: int | None,
        sides: Sides,
    ) -> None:
        self._session = session
        self._producer = producer
        self._topic = topic
        self._sides = None if sides.are_plain else sides
        session.topic(topic)
        if partition is not None:
            session.partition(topic, partition)
        self._fixed = partition
        self.record_count = 0
        self.byte_count = 0

    def add(self, record: NewRecord) -> None:
        """Take a record; it is sent when there are enough, or somebody flushes."""
        if self._sides is not None:
            record = self._sides.encoded(self._topic, record)
        partition = self._fixed
        if partition is None and record.partition is not None:
            partition = self._session.partition(self._topic, record.partition).index
        self._producer.send(
            self._topic,
            record.value,
            key=record.key,
            partition=partition,
            timestamp=record.timestamp,
            headers=record.headers or None,
        )
        self.record_count += 1
        self.byte_count += len(record.key or b"") + len(record.value or b"")

    def flush(self) -> None:
        """Send what waits, until it has arrived."""
        try:
            self._producer.flush()
        except DeliveryFailed as failed:
            self.record_count -= failed.count
            raise failed.errors[0] from failed


def _produce_all(
    writer: TopicWriter, files: list[Path], read: Callable[[bytes], NewRecord], *, whole: bool
) -> None:
    """Write everything; a fault says how much was written before."""
    try:
        try:
            _add_all(writer, files, read, whole=whole)
        finally:
            # What came before a line that cannot be read is written all the same.
            writer.flush()
    except MillstreamError as error:
        if not writer.record_count:
            raise
        after = f"(after {counted(writer.record_count, 'record')})"
        raise CommandFailed(f"{error} {after}") from error


def _add_all(
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
