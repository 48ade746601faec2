"""`millstream offsets`: where partitions begin and end, and what was when."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    Topic,
)
from millstream.cli.output import show_rows
from millstream.cli.session import Session, open_session
from millstream.cli.times import TIME_SYNTAX, parse_time, show_time
from millstream.cli.topic_io import EARLIEST, LATEST, MAX_TIMESTAMP, list_offsets

Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="Only this one; repeatable.")
]

_NAMED = {"earliest": EARLIEST, "latest": LATEST, "max-timestamp": MAX_TIMESTAMP}


def offsets(
    topic: Topic,
    partition: Partitions = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            "-t",
            metavar="TIME",
            help=f"The first offset at or after: earliest, latest, max-timestamp, or {TIME_SYNTAX}",
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the offsets of each partition: both ends, or the one of a time.

    Examples: `millstream offsets orders`, `millstream offsets orders --time 2h`
    """
    with open_session(bootstrap_server, timeout) as session:
        chosen = choose_partitions(session, topic, partition)
        if time is None:
            rows, headings = _ends(session, topic, chosen)
        else:
            asked = _NAMED.get(time)
            if asked is None:
                asked = parse_time(time, session.clock.wall_ms())
            rows, headings = _at(session, topic, chosen, asked)
    show_rows(rows, {"partition": "PARTITION"} | headings, as_json=as_json)


def choose_partitions(session: Session, topic: str, wanted: list[int] | None) -> list[int]:
    """The partitions asked for, all if none are; an error for one that is not there."""
    view = session.topic(topic)
    indexes = [each.index for each in view.partitions] if not wanted else sorted(set(wanted))
    return [view.partition(each).index for each in indexes]


def _ends(
    session: Session, topic: str, partitions: list[int]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    earliest = list_offsets(session, topic, partitions, EARLIEST)
    latest = list_offsets(session, topic, partitions, LATEST)
    rows = [
        {
            "partition": each,
            "earliest": earliest[each].offset,
            "latest": latest[each].offset,
            "count": latest[each].offset - earliest[each].offset,
        }
        for each in partitions
    ]
    return rows, {"earliest": "EARLIEST", "latest": "LATEST", "count": "COUNT"}


def _at(
    session: Session, topic: str, partitions: list[int], timestamp: int
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    found = list_offsets(session, topic, partitions, timestamp)
    rows = [
        {
            "partition": each,
            "offset": at.offset if at.offset >= 0 else None,
            "timestamp": at.timestamp if at.timestamp >= 0 else None,
            "time": show_time(at.timestamp),
        }
        for each, at in found.items()
    ]
    return rows, {"offset": "OFFSET", "time": "TIME"}
