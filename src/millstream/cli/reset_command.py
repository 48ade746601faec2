"""What the two `reset-offsets`, of groups and share groups, share: options, and showing a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.offset_reset import offsets_as_csv
from millstream.cli.options import complete_topics
from millstream.cli.output import complain, counted, note, show_json, show_rows
from millstream.cli.times import DURATION_SYNTAX, TIME_SYNTAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.cli.offset_reset import PlannedOffset
    from millstream.types import TopicPartition

TopicsAt = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:0,1]",
        help="A topic, or some of its partitions; repeatable.",
        autocompletion=complete_topics,
    ),
]
EveryTopic = Annotated[
    bool, typer.Option("--all-topics", help="Wherever the group has an offset now.")
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the start of the log.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the end of the log.")]
ToCurrent = Annotated[
    bool, typer.Option("--to-current", help="Where it is, but within the log: for --export.")
]
ToOffset = Annotated[
    int | None, typer.Option("--to-offset", metavar="N", help="To this offset.", show_default=False)
]
ToTime = Annotated[
    str | None,
    typer.Option(
        "--to-time",
        metavar="TIME",
        help=f"To the first record at or after: {TIME_SYNTAX}",
    ),
]
ByDuration = Annotated[
    str | None,
    typer.Option(
        "--by-duration", metavar="DURATION", help=f"To what was so long ago: {DURATION_SYNTAX}"
    ),
]
Shift = Annotated[
    int | None,
    typer.Option("--shift", metavar="N", help="Forward, or back by a negative number."),
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file", metavar="CSV", help="To what a file of topic,partition,offset says."
    ),
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Do it. Without, it is only shown what would be done.")
]
Export = Annotated[
    bool, typer.Option("--export", help="Print the new offsets as CSV, for --from-file.")
]


def require_one_output(*, export: bool, as_json: bool) -> None:
    """Before anything is asked or done."""
    if export and as_json:
        raise UsageFault("say either --export or --json")


def require_changes(plan: Sequence[PlannedOffset], group_id: str) -> None:
    """Fail if a plan leaves everything as it is."""
    if not plan:
        raise CommandFailed(
            f"{group_id!r} has no offsets yet; name the topic with --topic to give it some"
        )
    if all(each.new is None for each in plan):
        reasons = ", ".join(dict.fromkeys(f"{each.place}: {each.note}" for each in plan[:3]))
        raise CommandFailed(f"nothing to change for {group_id!r}: {reasons}")


def new_offsets(plan: Sequence[PlannedOffset]) -> dict[TopicPartition, int]:
    """What is to be set."""
    return {each.place: each.new for each in plan if each.new is not None}


def show_plan(
    plan: Sequence[PlannedOffset], group_id: str, *, is_done: bool, export: bool, as_json: bool
) -> None:
    """Old and new offsets, and whether that is so now."""
    if export:
        typer.echo(offsets_as_csv(plan), nl=False)
    elif as_json:
        rows = [each.row() for each in plan]
        show_json({"group": group_id, "executed": is_done, "partitions": rows})
        return
    else:
        headings = {"topic": "TOPIC", "partition": "PARTITION", "old": "OLD", "new": "NEW"}
        headings |= {"change": "CHANGE"}
        if any(each.note for each in plan):
            headings["note"] = "NOTE"
        show_rows([each.row() for each in plan], headings, as_json=False)
    if is_done:
        moved = counted(sum(each.new is not None for each in plan), "partition")
        said = f"{group_id}: set the offsets of {moved}"
    else:
        said = f"{group_id}: nothing was changed; --execute does it"
    if export:
        complain(said)
    else:
        note(said, as_json=False)
