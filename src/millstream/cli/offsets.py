"""`millstream offsets`: where partitions begin and end, and what was when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Namespace,
    Timeout,
    Topic,
)
from millstream.cli.output import show_rows
from millstream.cli.session import open_session
from millstream.cli.times import TIME_SYNTAX, parse_time, show_time
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.cli.session import Session
    from millstream.client.admin.partitions import IsolationLevel, ListedOffset, OffsetSpec

Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", help="Only this one; repeatable.")
]

_NAMED: Final[Mapping[str, OffsetSpec]] = {
    "earliest": "earliest",
    "latest": "latest",
    "max-timestamp": "max_timestamp",
}


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
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the offsets of each partition: both ends, or the one of a time.

    Examples: `millstream offsets orders`, `millstream offsets orders --time 2h`
    """
    with open_session(bootstrap_server, timeout, namespace) as session:
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
    if not wanted:
        return [each.index for each in session.topic(topic).partitions]
    return [session.partition(topic, each).index for each in sorted(set(wanted))]


def find_offsets(
    session: Session,
    topic: str,
    partitions: Iterable[int],
    spec: OffsetSpec,
    isolation_level: IsolationLevel = "read_uncommitted",
) -> dict[int, ListedOffset]:
    """For each partition the first offset at or after a time, or one of its ends."""
    specs = {TopicPartition(topic, each): spec for each in partitions}
    found = session.admin.list_offsets(specs, isolation_level=isolation_level)
    return {each.partition: found[each] for each in sorted(specs)}


def find_ends(
    session: Session,
    topic: str,
    partitions: Iterable[int],
    spec: Literal["earliest", "latest"],
    isolation_level: IsolationLevel = "read_uncommitted",
) -> dict[int, int]:
    """One of the ends of each partition."""
    found = find_offsets(session, topic, partitions, spec, isolation_level)
    return {each: at.offset or 0 for each, at in found.items()}


def _ends(
    session: Session, topic: str, partitions: list[int]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    earliest = find_ends(session, topic, partitions, "earliest")
    latest = find_ends(session, topic, partitions, "latest")
    rows = [
        {
            "partition": each,
            "earliest": earliest[each],
            "latest": latest[each],
            "count": latest[each] - earliest[each],
        }
        for each in partitions
    ]
    return rows, {"earliest": "EARLIEST", "latest": "LATEST", "count": "COUNT"}


def _at(
    session: Session, topic: str, partitions: list[int], spec: OffsetSpec
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    found = find_offsets(session, topic, partitions, spec)
    rows = [
        {
            "partition": each,
            "offset": at.offset,
            "timestamp": at.timestamp,
            "time": show_time(-1 if at.timestamp is None else at.timestamp),
        }
        for each, at in found.items()
    ]
    return rows, {"offset": "OFFSET", "time": "TIME"}
