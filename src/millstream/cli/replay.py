"""`millstream replay`: dead letters back to where they failed, or any records to another topic."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.offsets import Partitions
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    Topic,
)
from millstream.cli.output import complain, counted, show_json
from millstream.cli.times import TIME_SYNTAX, parse_time
from millstream.client.retrying.attempt import ERROR_MESSAGE, ERROR_TYPE, history
from millstream.client.retrying.replay import ReplayPlan, ReplayReport
from millstream.client.retrying.replay import replay as run_replay
from millstream.clock import SystemClock

if TYPE_CHECKING:
    from millstream.records.kernel import ConsumerRecord

_PROGRESS_STEPS: Final = 1000

To = Annotated[
    str | None,
    typer.Option("--to", metavar="TOPIC", help="Where to; else where each dead letter came from."),
]
FromOffset = Annotated[
    int | None, typer.Option("--offset", "-o", min=0, help="From this offset on.")
]
ToOffset = Annotated[
    int | None, typer.Option("--to-offset", min=0, help="Up to and without this offset.")
]
FromTime = Annotated[
    str | None,
    typer.Option("--from-time", metavar="TIME", help=f"From that time on: {TIME_SYNTAX}."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Up to that time.")]
KeyPattern = Annotated[
    str | None, typer.Option("--key", metavar="REGEX", help="Only records whose key has this.")
]
ValuePattern = Annotated[
    str | None, typer.Option("--value", metavar="REGEX", help="Only records whose value has this.")
]
HeaderPattern = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME[=REGEX]", help="Only records with this header."),
]
ErrorPattern = Annotated[
    str | None,
    typer.Option("--error", metavar="REGEX", help="Only dead letters whose error has this."),
]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="At most so many records a second.")
]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="At most so many records.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Send nothing; tell what would be sent where.")
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="Topics of this namespace: NAME.topic."),
]


def replay(
    topic: Topic,
    to: To = None,
    partition: Partitions = None,
    offset: FromOffset = None,
    to_offset: ToOffset = None,
    from_time: FromTime = None,
    until: Until = None,
    key: KeyPattern = None,
    value: ValuePattern = None,
    header: HeaderPattern = None,
    error: ErrorPattern = None,
    rate: Rate = None,
    count: Count = None,
    dry_run: DryRun = False,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Send records of a topic once more: dead letters to where they failed, others with `--to`.

    What was read stays where it is. Records get the header `millstream.replay.from`.

    Examples: `millstream replay orders.billing.dead --dry-run`,
    `millstream replay orders.billing.dead --error Timeout --rate 50`,
    `millstream replay orders --from-time 2h --until 1h --to orders-again`
    """
    if offset is not None and from_time is not None:
        raise UsageFault("give one of --offset and --from-time")
    if to_offset is not None and until is not None:
        raise UsageFault("give one of --to-offset and --until")
    now_ms = SystemClock().wall_ms()
    plan = ReplayPlan(
        source=topic,
        to=to,
        start=_bound(offset, from_time, now_ms, "earliest"),
        end=_bound(to_offset, until, now_ms, "latest"),
        partitions=partition or None,
        where=filter_of(key, value, header or [], error),
        rate=rate,
        limit=count,
        dry_run=dry_run,
        timeout=timeout,
    )
    settings = {} if namespace is None else {"namespace": namespace}
    report = ReplayReport()
    try:
        with _progress(is_shown=sys.stderr.isatty()) as show:
            run_replay(bootstrap_server, plan, on_progress=show, report=report, **settings)
    except KeyboardInterrupt:
        _tell(plan, report, as_json=as_json)
        raise CommandFailed(_how_to_go_on(report)) from None
    _tell(plan, report, as_json=as_json)


def _bound(offset: int | None, time: str | None, now_ms: int, default: Any) -> Any:
    if offset is not None:
        return offset
    if time is not None:
        return datetime.fromtimestamp(parse_time(time, now_ms) / 1000, UTC)
    return default


def filter_of(
    key: str | None, value: str | None, headers: list[str], error: str | None
) -> Callable[[ConsumerRecord], bool] | None:
    """All that was asked of a record must hold; None if nothing was."""
    tests: list[Callable[[ConsumerRecord], bool]] = []
    if key is not None:
        of_key = _pattern(key, "--key")
        tests.append(lambda record: _has(of_key, record.key))
    if value is not None:
        of_value = _pattern(value, "--value")
        tests.append(lambda record: _has(of_value, record.value))
    if error is not None:
        of_error = _pattern(error, "--error")
        tests.append(lambda record: _has(of_error, _error_text(record)))
    tests += [_header_test(each) for each in headers]
    return (lambda record: all(test(record) for test in tests)) if tests else None


def _header_test(given: str) -> Callable[[ConsumerRecord], bool]:
    name, equals, text = given.partition("=")
    pattern = _pattern(text, "--header")
    return lambda record: any(
        each == name and (not equals or _has(pattern, found)) for each, found in record.headers
    )


def _pattern(text: str, option: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as fault:
        raise UsageFault(f"{option} {text!r} is no regular expression: {fault}") from fault


def _has(pattern: re.Pattern[bytes], found: bytes | None) -> bool:
    return found is not None and pattern.search(found) is not None


def _error_text(record: ConsumerRecord) -> bytes:
    told = history(record.headers)
    return f"{told.get(ERROR_TYPE, '')}: {told.get(ERROR_MESSAGE, '')}".encode()


@contextmanager
def _progress(*, is_shown: bool) -> Iterator[Callable[[ReplayReport], None]]:
    """A bar on stderr while somebody looks."""
    if not is_shown:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("replaying", total=_PROGRESS_STEPS)

        def show(report: ReplayReport) -> None:
            share = report.passed / report.total if report.total else 1.0
            text = f"replaying, {counted(report.sent.total(), 'record')} sent"
            bar.update(task, completed=share * _PROGRESS_STEPS, description=text)

        yield show


def _tell(plan: ReplayPlan, report: ReplayReport, *, as_json: bool) -> None:
    if as_json:
        show_json(
            {
                "source": plan.source,
                "dry_run": plan.dry_run,
                "read": report.read,
                "sent": dict(report.sent),
                "filtered": report.filtered,
                "without_origin": report.homeless,
                "next_offsets": {str(each): at for each, at in sorted(report.positions.items())},
            }
        )
        return
    verb = "would be sent" if plan.dry_run else "sent"
    for target, number in sorted(report.sent.items()):
        typer.echo(f"{counted(number, 'record')} {verb} to {target}")
    if not report.sent:
        typer.echo(f"no record {verb}: {counted(report.read, 'record')} read")
    if report.filtered:
        typer.echo(f"{counted(report.filtered, 'record')} left out by the filter")
    if report.homeless:
        complain(
            f"{counted(report.homeless, 'record')} without a header that says where "
            "they came from; --to TOPIC sends them too"
        )


def _how_to_go_on(report: ReplayReport) -> str:
    places = ", ".join(f"{each} at {at}" for each, at in sorted(report.positions.items()))
    return f"interrupted; what is counted is sent. To go on: --partition and --offset of {places}"
