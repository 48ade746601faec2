"""`millstream share-groups`: list, describe, members, reset-offsets, delete, delete-offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.group_offsets import end_offsets, share_offsets
from millstream.cli.group_text import (
    choose_states,
    delete_chosen,
    group_facts,
    has_members,
    require_no_members,
    show_deleted,
    show_groups,
    show_listed,
    show_members,
    total_lag,
)
from millstream.cli.group_view import SHARE_TYPES, find_groups, list_groups, no_such_group
from millstream.cli.offset_reset import TargetOptions, choose_places, plan_offsets
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Namespace,
    Timeout,
    Yes,
    complete_share_groups,
    complete_topics,
    new_family,
    require_ids,
)
from millstream.cli.output import complain, note, require_consent, show_json
from millstream.cli.reset_command import (
    ByDuration,
    EveryTopic,
    Execute,
    Export,
    FromFile,
    Shift,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToOffset,
    TopicsAt,
    ToTime,
    new_offsets,
    require_changes,
    require_one_output,
    show_plan,
)
from millstream.cli.session import open_session
from millstream.errors import NonEmptyGroup, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.cli.session import Session
    from millstream.client.admin.group_descriptions import GroupDescription
    from millstream.client.admin.group_offsets import ShareOffset
    from millstream.types import TopicPartition

family = new_family("Share groups: consumers that take records of the same partitions by turns.")

Group = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="A share group's id.",
        autocompletion=complete_share_groups,
        callback=require_ids,
    ),
]
_TYPES = SHARE_TYPES
_COLUMNS = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "start": "START",
    "end": "END",
    "lag": "LAG",
}


@family.command("list")
def list_all(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only those: Stable, Empty; repeatable."),
    ] = None,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List share groups.

    Example: `millstream share-groups list --state empty`
    """
    states = choose_states(state or ())
    with open_session(bootstrap_server, timeout, namespace) as session:
        found = list_groups(session, states, _TYPES)
    nothing = "no share group is like that" if states else "there are no share groups"
    show_listed(found, nothing, as_json=as_json)


@family.command("describe")
def describe(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUP",
            help="Ids of share groups.",
            autocompletion=complete_share_groups,
            callback=require_ids,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All share groups.")] = False,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show how a share group stands, and what each partition has for it still.

    Records from START on may still be delivered; some of them may be done already.

    Examples: `millstream share-groups describe workers`,
    `millstream share-groups describe --all --json`
    """
    if bool(groups) == every:
        raise UsageFault("say which share groups: GROUP…, or --all")
    with open_session(bootstrap_server, timeout, namespace) as session:
        names = groups or [each.group_id for each in list_groups(session, (), _TYPES)]
        views = _views(session, names, may_be_gone=every)
        offsets = share_offsets(session, views)
        ends = end_offsets(session, {place for each in offsets.values() for place in each})
        brokers = session.brokers()
    described = []
    for view in views.values():
        rows = _rows(offsets.get(view.group_id, {}), ends)
        described.append((group_facts(view, brokers) | {"lag": total_lag(rows)}, rows))
    show_groups(described, _COLUMNS, as_json=as_json)


@family.command("members")
def members(
    group: Group,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the members of a share group, where they run, and what each one takes from.

    Example: `millstream share-groups members workers`
    """
    with open_session(bootstrap_server, timeout, namespace) as session:
        view = _views(session, [group])[group]
    show_members(view, as_json=as_json)


@family.command("reset-offsets")
def reset_offsets(
    group: Group,
    topic: TopicsAt = None,
    all_topics: EveryTopic = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    to_time: ToTime = None,
    by_duration: ByDuration = None,
    shift: Shift = None,
    from_file: FromFile = None,
    execute: Execute = False,
    export: Export = False,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Let a share group go on elsewhere: show from where to where, and with `--execute` do it.

    It must have no members then. New offsets stay within the log; what was delivered and done
    behind them is delivered again.

    Examples: `millstream share-groups reset-offsets workers --topic jobs --to-earliest`,
    `millstream share-groups reset-offsets workers --all-topics --to-time 2h --execute`
    """
    options = TargetOptions(
        to_earliest, to_latest, to_current, to_offset, to_time, by_duration, shift, from_file
    )
    require_one_output(export=export, as_json=as_json)
    with open_session(bootstrap_server, timeout, namespace) as session:
        target = options.target(group, session.clock.wall_ms())
        view = _views(session, [group])[group]
        known = share_offsets(session, [group]).get(group, {})
        old = {place: at for place, each in known.items() if (at := each.start_offset) is not None}
        places = choose_places(session, topic, all_topics, known, target)
        plan = plan_offsets(session, places, old, target)
        require_changes(plan, group)
        if execute:
            require_no_members(group, view)
            try:
                session.admin.alter_share_group_offsets(group, new_offsets(plan)).raise_first()
            except NonEmptyGroup:
                raise has_members(group) from None
    show_plan(plan, group, is_done=execute, export=export, as_json=as_json)
    if view.members and not execute:
        complain(f"{has_members(group, view)}; until then --execute refuses")


@family.command("delete")
def delete(
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP",
            help="Ids of share groups.",
            autocompletion=complete_share_groups,
            callback=require_ids,
        ),
    ],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A group that is not there is fine.")
    ] = False,
    yes: Yes = False,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete share groups without members, with all that is known of their deliveries.

    Example: `millstream share-groups delete workers`
    """
    question = f"Delete {', '.join(groups)} with all offsets?"
    require_consent(question, is_given=yes)
    with open_session(bootstrap_server, timeout, namespace) as session:
        rows = delete_chosen(session, groups, _TYPES, if_exists=if_exists)
    show_deleted(rows, as_json=as_json)


@family.command("delete-offsets")
def delete_some_offsets(
    group: Group,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            help="Of this topic; repeatable.",
            autocompletion=complete_topics,
        ),
    ] = None,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Forget where a share group without members stands in a topic.

    Example: `millstream share-groups delete-offsets workers --topic jobs`
    """
    if not topic:
        raise UsageFault("say of what: --topic TOPIC")
    with open_session(bootstrap_server, timeout, namespace) as session:
        require_no_members(group, _views(session, [group])[group])
        names = list(dict.fromkeys(topic))
        for name, error in session.admin.delete_share_group_offsets(group, names).errors.items():
            if isinstance(error, NonEmptyGroup):
                raise has_members(group)
            if isinstance(error, UnknownTopicOrPartition):
                raise CommandFailed(f"{group!r} has no offsets in {name!r}")
            raise error
        rows = [{"topic": name, "deleted": True} for name in names]
    if as_json:
        show_json(rows)
    for row in rows:
        note(f"{group}: forgot where it was in {row['topic']}", as_json=as_json)


def _views(
    session: Session, names: list[str], *, may_be_gone: bool = False
) -> dict[str, GroupDescription]:
    views = find_groups(session, names, _TYPES)
    for name in names:
        if name not in views and not may_be_gone:
            raise no_such_group(session, name, _TYPES)
    return views


def _rows(
    offsets: Mapping[TopicPartition, ShareOffset], ends: Mapping[TopicPartition, int | None]
) -> list[dict[str, Any]]:
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "start": each.start_offset,
            "end": ends.get(place),
            "lag": each.lag,
        }
        for place, each in offsets.items()
    ]
