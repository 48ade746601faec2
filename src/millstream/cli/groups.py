"""`millstream groups`: list, describe, members, reset-offsets, delete, delete-offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.group_offsets import (
    committed_offsets,
    end_offsets,
)
from millstream.cli.group_text import (
    choose_states,
    delete_chosen,
    group_facts,
    has_members,
    partition_rows,
    require_no_members,
    show_deleted,
    show_groups,
    show_listed,
    show_members,
    total_lag,
)
from millstream.cli.group_view import (
    CONSUMER_TYPES,
    GroupType,
    find_groups,
    is_internal,
    list_groups,
    no_such_group,
    owners,
)
from millstream.cli.offset_reset import TargetOptions, choose_places, parse_places, plan_offsets
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Namespace,
    Timeout,
    Yes,
    complete_groups,
    new_family,
    require_ids,
)
from millstream.cli.output import complain, counted, note, require_consent, show_json
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
from millstream.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    UnknownMemberId,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.cli.session import Session
    from millstream.client.admin.group_descriptions import GroupDescription
    from millstream.types import TopicPartition

family = new_family("Consumer groups: who reads, how far, and from where on.")

Group = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="A group's id.", autocompletion=complete_groups, callback=require_ids
    ),
]
_COLUMNS = {
    "topic": "TOPIC",
    "partition": "PARTITION",
    "committed": "COMMITTED",
    "end": "END",
    "lag": "LAG",
    "client": "CLIENT",
    "host": "HOST",
    "member": "MEMBER",
}


@family.command("list")
def list_all(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only those: Stable, Empty…; repeatable."),
    ] = None,
    kind: Annotated[
        list[GroupType] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only those: classic, consumer, share or streams; repeatable.",
        ),
    ] = None,
    internal: Annotated[
        bool,
        typer.Option("--internal", help="Also those in which Spark's sink keeps its markers."),
    ] = False,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List groups of all types.

    Examples: `millstream groups list`, `millstream groups list --state empty --type consumer`
    """
    states = choose_states(state or ())
    with open_session(bootstrap_server, timeout, namespace) as session:
        found = list_groups(session, states, kind or ())
    if not internal:
        found = [each for each in found if not is_internal(each)]
    nothing = "no group is like that" if states or kind else "there are no groups"
    show_listed(found, nothing, as_json=as_json)


@family.command("describe")
def describe(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUP",
            help="Ids of groups.",
            autocompletion=complete_groups,
            callback=require_ids,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All groups of consumers.")] = False,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show how a group stands, and how far behind it is in each partition.

    Examples: `millstream groups describe readers`, `millstream groups describe --all --json`
    """
    if bool(groups) == every:
        raise UsageFault("say which groups: GROUP…, or --all")
    with open_session(bootstrap_server, timeout, namespace) as session:
        names = groups or [
            each.group_id
            for each in list_groups(session)
            if each.type in CONSUMER_TYPES and not is_internal(each)
        ]
        views = _views(session, names, may_be_gone=every)
        committed = committed_offsets(session, views)
        places = {place for theirs in committed.values() for place in theirs}
        places |= {place for view in views.values() for place in owners(view)}
        ends = end_offsets(session, places)
        brokers = session.brokers()
    if not views and not as_json:
        note("there are no groups of consumers", as_json=False)
        return
    described = []
    for view in views.values():
        rows = partition_rows(view, committed.get(view.group_id, {}), ends)
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
    """Show the members of a group, where they run, and what each one reads.

    Example: `millstream groups members readers`
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
    """Let a group go on elsewhere: show from where to where, and with `--execute` do it.

    It must have no members then. New offsets stay within the log. A group that is not there comes
    to be, which is how to say where a new one starts.

    Examples: `millstream groups reset-offsets readers --topic orders --to-earliest`,
    `millstream groups reset-offsets readers --topic orders:0,1 --to-time 2h --execute`,
    `millstream groups reset-offsets readers --all-topics --to-current --export > offsets.csv`,
    `millstream groups reset-offsets readers --from-file offsets.csv --execute`
    """
    options = TargetOptions(
        to_earliest, to_latest, to_current, to_offset, to_time, by_duration, shift, from_file
    )
    require_one_output(export=export, as_json=as_json)
    with open_session(bootstrap_server, timeout, namespace) as session:
        target = options.target(group, session.clock.wall_ms())
        view = find_groups(session, [group], CONSUMER_TYPES).get(group)
        committed = committed_offsets(session, [group]).get(group, {})
        old = {place: each.offset for place, each in committed.items()}
        missing = None if view else no_such_group(session, group, CONSUMER_TYPES)
        places = choose_places(session, topic, all_topics, old, target)
        if missing is not None and (missing.is_of_another_kind or not places):
            raise missing
        plan = plan_offsets(session, places, old, target)
        require_changes(plan, group)
        if execute:
            require_no_members(group, view)
            _commit(session, group, new_offsets(plan))
    show_plan(plan, group, is_done=execute, export=export, as_json=as_json)
    if missing is not None and not execute:
        complain(f"there is no group {group!r} yet, --execute makes it{missing.near}")
    if view is not None and view.members and not execute:
        complain(f"{has_members(group, view)}; until then --execute refuses")


@family.command("delete")
def delete(
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP",
            help="Ids of groups.",
            autocompletion=complete_groups,
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
    """Delete groups without members, with all their offsets.

    Example: `millstream groups delete readers`
    """
    question = f"Delete {', '.join(groups)} with all offsets?"
    require_consent(question, is_given=yes)
    with open_session(bootstrap_server, timeout, namespace) as session:
        rows = delete_chosen(session, groups, CONSUMER_TYPES, if_exists=if_exists)
    show_deleted(rows, as_json=as_json)


@family.command("delete-offsets")
def delete_some_offsets(
    group: Group,
    topic: TopicsAt = None,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Forget how far a group has read a topic that it reads no more.

    Example: `millstream groups delete-offsets readers --topic orders`
    """
    if not topic:
        raise UsageFault("say of what: --topic TOPIC, or --topic TOPIC:0,1")
    with open_session(bootstrap_server, timeout, namespace) as session:
        _views(session, [group])
        places = [place for text in topic for place in parse_places(session, text)]
        there = committed_offsets(session, [group]).get(group, {})
        errors = session.admin.delete_group_offsets(group, places).errors
        rows = []
        for place in places:
            error = errors.get(place)
            if isinstance(error, GroupSubscribedToTopic):
                raise CommandFailed(
                    f"members of {group!r} read {place.topic!r} now; stop them first"
                )
            if error is not None and not isinstance(error, UnknownTopicOrPartition):
                raise error
            rows.append(
                {"topic": place.topic, "partition": place.partition, "deleted": place in there}
            )
    if as_json:
        show_json(rows)
    count = sum(row["deleted"] is True for row in rows)
    note(f"{group}: forgot the offsets of {counted(count, 'partition')}", as_json=as_json)


def _views(
    session: Session, names: list[str], *, may_be_gone: bool = False
) -> dict[str, GroupDescription]:
    views = find_groups(session, names, CONSUMER_TYPES)
    for name in names:
        if name not in views and not may_be_gone:
            raise no_such_group(session, name, CONSUMER_TYPES)
    return views


def _commit(session: Session, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    try:
        session.admin.alter_group_offsets(group, offsets).raise_first()
    except (UnknownMemberId, IllegalGeneration, GroupIdNotFound):
        # Somebody joined since it was looked at.
        raise has_members(group) from None
