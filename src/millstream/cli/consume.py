"""`millstream consume`: the records of a topic, printed."""

from __future__ import annotations

import select
import sys
from contextlib import closing
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.group_reader import GroupReader
from millstream.cli.offsets import Partitions, choose_partitions, find_ends, find_offsets
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Namespace,
    Timeout,
    Topic,
)
from millstream.cli.output import complain, counted
from millstream.cli.record_format import (
    FORMAT_TOKENS,
    Encoding,
    compile_format,
    json_lines,
    value_lines,
    value_show,
)
from millstream.cli.session import open_session
from millstream.cli.times import TIME_SYNTAX, parse_time
from millstream.cli.topic_reader import Span, TopicReader
from millstream.cli.value_types import (
    BYTES,
    KeyType,
    RegistryUrl,
    ValueType,
    as_text,
    make_sides,
)
from millstream.cli.value_types import (
    as_json as json_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO

    from millstream.cli.record_format import AnyRecord, Render
    from millstream.cli.session import Session
    from millstream.cli.value_types import Sides, TypedRecord
    from millstream.client.admin.partitions import IsolationLevel
    from millstream.client.consumer.consumer import Consumer

WAIT_MS: Final = 500
"""How long a broker waits for records before it says that there are none."""

IDLE_ROUNDS_MAX: Final = 3
"""How often brokers may have nothing before an end that is known, for whatever reason of theirs."""

_TOKENS: Final = ", ".join(f"%{token} {meaning}" for token, meaning in FORMAT_TOKENS.items())


class IsolationChoice(Enum):
    """As `--isolation` has it."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="From the first record on: the default.")
]
FromEnd = Annotated[
    bool, typer.Option("--from-end", help="Only what arrives from now on; needs --follow.")
]
AtOffset = Annotated[
    int | None,
    typer.Option(
        "--offset", "-o", metavar="N", help="From this offset on; -10 is the last 10 offsets."
    ),
]
FromTime = Annotated[
    str | None,
    typer.Option(
        "--from-time", metavar="TIME", help=f"From the first record at or after: {TIME_SYNTAX}."
    ),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Up to the first record at or after that time."),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="Read as a member of this group, from where it is, and commit what was printed.",
    ),
]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Wait for more at the end, until Ctrl-C.")
]
Count = Annotated[
    int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")
]
KeySeparator = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", metavar="SEP", help="Print key SEP value."),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", "-F", metavar="FORMAT", help=f"As in kcat: {_TOKENS}; \\n, \\t, \\x41."
    ),
]
EncodingOption = Annotated[
    Encoding, typer.Option("--encoding", "-e", help="How keys, values and headers are written.")
]
Null = Annotated[str, typer.Option("--null", metavar="TEXT", help="What stands for null.")]
IsolationOption = Annotated[
    IsolationChoice,
    typer.Option("--isolation", help="`read_committed` leaves out what is or may be aborted."),
]
JsonLines = Annotated[bool, typer.Option("--json", help="Print a JSON object on each line.")]


def consume(
    topic: Topic,
    partition: Partitions = None,
    from_beginning: FromBeginning = False,
    from_end: FromEnd = False,
    offset: AtOffset = None,
    from_time: FromTime = None,
    until: Until = None,
    group: Group = None,
    follow: Follow = False,
    count: Count = None,
    key_separator: KeySeparator = None,
    format_: Format = None,
    encoding: EncodingOption = Encoding.TEXT,
    null: Null = "null",
    key_type: KeyType = BYTES,
    value_type: ValueType = BYTES,
    schema_registry: RegistryUrl = None,
    isolation: IsolationOption = IsolationChoice.READ_UNCOMMITTED,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: JsonLines = False,
) -> None:
    r"""Print the records of a topic: all that are there now, then stop.

    With `--follow` it waits for more instead of stopping. Records of one partition are in order.
    With `--group` members share the partitions, and each goes on behind what was printed last; a
    group without offsets begins at the beginning.

    Examples: `millstream consume orders --offset -10`,
    `millstream consume orders --follow --from-end -K '\t'`,
    `millstream consume orders --from-time 2h --json`,
    `millstream consume orders --group readers --follow`,
    `millstream consume orders --value-type avro --schema-registry http://localhost:8081`
    """
    starts = {
        "--from-beginning": from_beginning,
        "--from-end": from_end,
        "--offset": offset is not None,
        "--from-time": from_time is not None,
    }
    if sum(starts.values()) > 1:
        raise UsageFault(f"give one of {', '.join(starts)}")
    if group is not None:
        ends = {"--until": until is not None, "--partition": partition is not None}
        _require_no_place(topic, group, starts | ends)
    if from_end and not follow:
        raise UsageFault("--from-end without --follow has nothing to read: add --follow")
    render = _render(encoding, null, format_, key_separator, as_json=as_json)
    sides = make_sides(key_type, value_type, schema_registry)
    if not sides.are_plain:
        render = _typed(render, sides, json_values if as_json else as_text)
    with open_session(bootstrap_server, timeout, namespace) as session:
        now_ms = session.clock.wall_ms()
        where = Where(
            choose_partitions(session, topic, partition),
            is_from_end=from_end,
            offset=offset,
            from_ms=None if from_time is None else parse_time(from_time, now_ms),
            until_ms=None if until is None else parse_time(until, now_ms),
            is_following=follow,
            isolation=isolation.value,
            group=group,
        )
        read_count = _print_records(session, topic, where, render, count)
    _tell_people(topic, read_count, where)


def _require_no_place(topic: str, group: str, options: Mapping[str, bool]) -> None:
    given = [option for option, is_given in options.items() if is_given]
    if given:
        raise UsageFault(
            f"--group reads from where the group is: leave out {' and '.join(given)}; "
            f"`millstream groups reset-offsets {group} -t {topic}` moves it"
        )


def _render(
    encoding: Encoding, null: str, format_: str | None, key_separator: str | None, *, as_json: bool
) -> Render:
    """How a record is printed."""
    if sum((as_json, format_ is not None, key_separator is not None)) > 1:
        raise UsageFault("give one of --json, --format, --key-separator")
    if as_json:
        return json_lines(encoding)
    show = value_show(encoding, null, is_for_terminal=sys.stdout.isatty())
    return compile_format(format_, show) if format_ else value_lines(show, key_separator)


def _typed(render: Render, sides: Sides, form: Callable[[TypedRecord], TypedRecord]) -> Render:
    """Render what keys and values mean."""

    def render_typed(topic: str, partition: int, record: AnyRecord) -> bytes:
        return render(topic, partition, form(sides.decoded(topic, partition, record)))

    return render_typed


class Where(NamedTuple):
    """Which records are asked for."""

    partitions: list[int]
    is_from_end: bool = False
    offset: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    is_following: bool = False
    isolation: IsolationLevel = "read_uncommitted"
    group: str | None = None
    """Whose offsets say where to begin."""


def spans(session: Session, topic: str, where: Where) -> dict[int, Span]:
    """From where to where to read in each partition."""
    earliest = find_ends(session, topic, where.partitions, "earliest", where.isolation)
    latest = find_ends(session, topic, where.partitions, "latest", where.isolation)
    starts, ends = earliest, dict[int, int | None](latest)
    if where.is_from_end:
        starts = latest
    elif where.offset is not None:
        starts = {
            each: _start(topic, each, where.offset, earliest[each], latest[each])
            for each in where.partitions
        }
    elif where.from_ms is not None:
        starts = _at_time(session, topic, where, where.from_ms, latest)
    if where.until_ms is not None:
        ends |= _at_time(session, topic, where, where.until_ms, latest)
    if where.is_following:
        # What has no record at `until` yet goes on; the reader sees it when it comes.
        is_open = where.until_ms is None
        ends = {
            each: None if is_open or ends[each] == latest[each] else ends[each]
            for each in where.partitions
        }
    return {each: Span(starts[each], ends[each]) for each in where.partitions}


def _at_time(
    session: Session, topic: str, where: Where, timestamp: int, latest: Mapping[int, int]
) -> dict[int, int]:
    """The first offset at or after a time, the end where there is none."""
    found = find_offsets(session, topic, where.partitions, timestamp, where.isolation)
    return {each: latest[each] if at.offset is None else at.offset for each, at in found.items()}


def _start(topic: str, partition: int, wanted: int, earliest: int, latest: int) -> int:
    if wanted < 0:
        return max(latest + wanted, earliest)
    if wanted > latest:
        raise CommandFailed(
            f"{topic}-{partition} ends at offset {latest}, before {wanted}; `millstream offsets "
            f"{topic}` shows all, --partition chooses some"
        )
    if wanted < earliest:
        _tell_of_gap(topic, partition, wanted, earliest)
    return max(wanted, earliest)


def _print_records(
    session: Session, topic: str, where: Where, render: Render, count: int | None
) -> int:
    settings: dict[str, Any] = {
        "isolation_level": where.isolation,
        "fetch_max_wait": WAIT_MS / 1000,
        "auto_offset_reset": "none",
    }
    if where.group is not None:
        settings |= {
            "group_id": where.group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
        }
    with (
        session.consumer(**settings) as consumer,
        closing(_reader(session, consumer, topic, where)) as reader,
    ):
        return _print_all(reader, Patience(session, topic, where), topic, render, count)


def _reader(
    session: Session, consumer: Consumer, topic: str, where: Where
) -> TopicReader | GroupReader:
    if where.group is not None:
        is_endless = where.is_following
        ends = find_ends(session, topic, where.partitions, "latest", where.isolation)
        return GroupReader(session, consumer, topic, None if is_endless else ends)
    return TopicReader(
        consumer,
        topic,
        spans(session, topic, where),
        until_ms=where.until_ms,
        on_gap=lambda partition, start, end: _tell_of_gap(topic, partition, start, end),
    )


def _print_all(
    reader: TopicReader | GroupReader,
    patience: Patience,
    topic: str,
    render: Render,
    count: int | None,
) -> int:
    out = sys.stdout.buffer
    read_count = 0
    while not reader.is_finished and read_count != count:
        for record in reader.poll(WAIT_MS):
            out.write(render(topic, record.partition, record))
            read_count += 1
            if read_count == count:
                break
        out.flush()
        reader.commit()
        if reader.is_idle:
            _require_reader(out)
        if patience.is_over(reader):
            break
    return read_count


class Patience:
    """Decides whether silence is the end, something to wait through, or a fault."""

    def __init__(self, session: Session, topic: str, where: Where) -> None:
        self._session = session
        self._topic = topic
        self._where = where
        self._idle_rounds = 0
        self._next_check = IDLE_ROUNDS_MAX
        self._is_checked = False

    def is_over(self, reader: TopicReader | GroupReader) -> bool:
        """After a round: whether there is no point in another one."""
        if not reader.is_idle:
            self._idle_rounds, self._next_check = 0, IDLE_ROUNDS_MAX
            self._is_checked = False
            return False
        self._idle_rounds += 1
        where = self._where
        now_ms = self._session.clock.wall_ms()
        if where.is_following and where.until_ms is not None and now_ms >= where.until_ms:
            return True
        if self._idle_rounds < self._next_check:
            return False
        if self._is_checked and not where.is_following:
            # Brokers answer and have nothing: compaction has left nothing before the end.
            return True
        # Silence of brokers that are gone is no end: this raises then.
        find_ends(self._session, self._topic, reader.partitions, "latest")
        self._is_checked = True
        self._next_check = self._idle_rounds + (
            int(self._session.timeout_s * 1000 / WAIT_MS) + 1
            if where.is_following
            else IDLE_ROUNDS_MAX
        )
        return False


def _require_reader(out: BinaryIO) -> None:
    """Notice a `| head` that has gone before there is something to write to it."""
    poll = select.poll()
    try:
        poll.register(out.fileno(), 0)
    except OSError:
        return  # Not a real file: a test's.
    if any(events & (select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0)):
        raise BrokenPipeError


def _tell_of_gap(topic: str, partition: int, start: int, end: int) -> None:
    complain(f"{topic}-{partition}: offsets {start} to {end - 1} are deleted; going on at {end}")


def _tell_people(topic: str, read_count: int, where: Where) -> None:
    """The end of a short output looks like a failure without a word."""
    if not sys.stderr.isatty() or where.is_following:
        return
    hint = "" if read_count else "; --follow waits for them"
    typer.echo(f"{topic}: {counted(read_count, 'record')}{hint}", err=True)
