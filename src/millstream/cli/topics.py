"""`millstream topics`: list, create, describe, alter, delete, delete-records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli.faults import CommandFailed, UsageFault, nearest
from millstream.cli.offsets import Partitions, choose_partitions, find_ends, find_offsets
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Namespace,
    Settings,
    Timeout,
    Topic,
    Yes,
    complete_topics,
    new_family,
)
from millstream.cli.output import note, require_consent, show_facts, show_json, show_rows
from millstream.cli.session import open_session
from millstream.cli.settings import (
    Change,
    Operation,
    Resource,
    ResourceType,
    alter,
    describe,
    explain_refusal,
    parse_change,
    parse_pairs,
)
from millstream.cli.times import TIME_SYNTAX, parse_time
from millstream.client.admin.topics import NewTopic
from millstream.errors import InvalidConfig, TopicAlreadyExists, UnknownTopicOrPartition
from millstream.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from millstream.cli.session import Session
    from millstream.client.admin.topics import TopicDescription

family = new_family("Create, look at, change and delete topics.")

_SET_ON_TOPIC: Final = "topic"

Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="Names of topics.", autocompletion=complete_topics),
]


@family.command("list")
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal/--no-internal", help="Show internal topics, too.")
    ] = True,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List all topics.

    Example: `millstream topics list --json`
    """
    with open_session(bootstrap_server, timeout, namespace) as session:
        found = session.topics()
    rows = [
        {
            "topic": each.name,
            "partitions": len(each.partitions),
            "replication_factor": _replication_factor(each),
            "internal": each.is_internal,
        }
        for _, each in sorted(found.items())
        if internal or not each.is_internal
    ]
    headings = {"topic": "TOPIC", "partitions": "PARTITIONS", "replication_factor": "REPLICAS"}
    show_rows(rows, headings, as_json=as_json)


@family.command("create")
def create(
    topics: Topics,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            help="How many; the broker's default if not given.",
            show_default=False,
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", help="Likewise, replicas of each.", show_default=False
        ),
    ] = None,
    config: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that is there already is fine.")
    ] = False,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check everything, create nothing.")
    ] = False,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Create topics, and return when they can be written to.

    Example: `millstream topics create orders -p 12 -c retention.ms=86400000`
    """
    settings = parse_pairs(config)
    wanted = [
        NewTopic(name, partitions, replication_factor, settings) for name in dict.fromkeys(topics)
    ]
    with open_session(bootstrap_server, timeout, namespace) as session:
        found = session.admin.create_topics(wanted, validate_only=validate_only)
        for error in found.errors.values():
            if isinstance(error, InvalidConfig):
                explain_refusal(error, settings, ResourceType.TOPIC)
            if not (if_not_exists and isinstance(error, TopicAlreadyExists)):
                raise error
        if not validate_only:
            session.wait_for_leaders(found.results.values())
    rows: list[dict[str, Any]] = [
        {"topic": each.name, "created": each.name in found.results and not validate_only}
        for each in wanted
    ]
    if as_json:
        show_json(rows)
    for row in rows:
        done = "created" if row["created"] else "could be created" if validate_only else "exists"
        note(f"{row['topic']}: {done}", as_json=as_json)


@family.command("describe")
def describe_topics(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="All if none.", autocompletion=complete_topics),
    ] = None,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show partitions, leaders, replicas, and the settings made on a topic.

    Example: `millstream topics describe orders`
    """
    with open_session(bootstrap_server, timeout, namespace) as session:
        names = list(topics or sorted(session.topics()))
        found = [(session.topic(name), _own_settings(session, name)) for name in names]
    if as_json:
        show_json([_facts(topic, own) | {"partitions": _rows(topic)} for topic, own in found])
        return
    headings = {
        "partition": "PARTITION",
        "leader": "LEADER",
        "leader_epoch": "EPOCH",
        "replicas": "REPLICAS",
        "isr": "ISR",
        "offline": "OFFLINE",
    }
    for index, (topic, own) in enumerate(found):
        note("", as_json=index == 0)  # An empty line between two.
        settings = [f"{key}={value}" for key, value in own.items()]
        show_facts(_facts(topic, own) | {"settings": settings}, as_json=False)
        show_rows(_rows(topic), headings, as_json=False)


@family.command("alter")
def alter_topic(
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="The new number; it only grows.")
    ] = None,
    config: Settings = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Back to the default; repeatable."),
    ] = None,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Add partitions to a topic or change its settings.

    Keys move to other partitions when partitions are added.

    Example: `millstream topics alter orders --partitions 24`
    """
    changes = [parse_change(text) for text in config or ()]
    changes += [Change(key, Operation.DELETE, None) for key in delete_config or ()]
    if partitions is None and not changes:
        raise UsageFault("say what to change: --partitions, --config or --delete-config")
    with open_session(bootstrap_server, timeout, namespace) as session:
        before = len(session.topic(topic).partitions)
        if changes:
            alter(session, Resource(ResourceType.TOPIC, topic), changes)
        if partitions is not None:
            session.admin.create_partitions({topic: partitions}).raise_first()
    now = before if partitions is None else partitions
    if as_json:
        changed = [each.key for each in changes]
        show_json({"topic": topic, "partitions": now, "changed": changed})
    if partitions is not None:
        note(f"{topic}: {before} partitions became {now}", as_json=as_json)
    if changes:
        note(f"{topic}: changed {', '.join(each.key for each in changes)}", as_json=as_json)


@family.command("delete")
def delete(
    topics: Topics,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that is not there is fine.")
    ] = False,
    yes: Yes = False,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records. There is no way back: a terminal is asked first.

    Example: `millstream topics delete orders --if-exists`
    """
    names = list(dict.fromkeys(topics))
    with open_session(bootstrap_server, timeout, namespace) as session:
        known = session.topics()
        missing = [name for name in names if name not in known]
        if missing and not if_exists:
            # Before anything is deleted: a misspelt name should not cost its neighbours.
            raise CommandFailed(f"there is no topic {missing[0]!r}{nearest(missing[0], known)}")
        doomed = [name for name in names if name in known]
        if doomed:
            question = f"Delete {', '.join(doomed)} with all records?"
            require_consent(question, is_given=yes)
        found = session.admin.delete_topics(doomed)
    for error in found.errors.values():
        if not (if_exists and isinstance(error, UnknownTopicOrPartition)):
            raise error
    if as_json:
        show_json([{"topic": name, "deleted": name in known} for name in names])
    for name in names:
        note(f"{name}: {'deleted' if name in known else 'was not there'}", as_json=as_json)


@family.command("delete-records")
def delete_records(
    topic: Topic,
    before: Annotated[
        int | None,
        typer.Option("--before", metavar="OFFSET", min=0, help="Those before this offset."),
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option("--before-time", metavar="TIME", help=f"Those before: {TIME_SYNTAX}."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All that are there now.")] = False,
    partition: Partitions = None,
    yes: Yes = False,
    namespace: Namespace = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest records of a topic. There is no way back: a terminal is asked first.

    Examples: `millstream topics delete-records orders --before-time 30d`,
    `millstream topics delete-records orders --partition 0 --before 1000 --yes`
    """
    if sum((before is not None, before_time is not None, every)) != 1:
        raise UsageFault("give one of --before, --before-time, --all")
    with open_session(bootstrap_server, timeout, namespace) as session:
        chosen = choose_partitions(session, topic, partition)
        bounds = _bounds(session, topic, chosen, before, before_time)
        require_consent(f"Delete records of {topic} for good?", is_given=yes)
        begins = session.admin.delete_records(bounds).raise_first()
    rows = [{"partition": place.partition, "earliest": at} for place, at in sorted(begins.items())]
    show_rows(rows, {"partition": "PARTITION", "earliest": "EARLIEST"}, as_json=as_json)


def _bounds(
    session: Session, topic: str, chosen: list[int], before: int | None, before_time: str | None
) -> dict[TopicPartition, int]:
    """Up to where the records of each partition go, within what it has."""
    first = find_ends(session, topic, chosen, "earliest")
    ends = find_ends(session, topic, chosen, "latest")
    wanted = dict(ends)
    if before is not None:
        wanted = dict.fromkeys(chosen, before)
    elif before_time is not None:
        at_ms = parse_time(before_time, session.clock.wall_ms())
        found = find_offsets(session, topic, chosen, at_ms)
        wanted = {
            each: ends[each] if at.offset is None else at.offset for each, at in found.items()
        }
    return {
        TopicPartition(topic, each): min(max(wanted[each], first[each]), ends[each])
        for each in chosen
    }


def _replication_factor(topic: TopicDescription) -> int:
    return max((len(each.replicas) for each in topic.partitions), default=0)


def _own_settings(session: Session, name: str) -> dict[str, str | None]:
    found = describe(session, Resource(ResourceType.TOPIC, name))
    return {each.name: each.value for each in found if each.source == _SET_ON_TOPIC}


def _facts(topic: TopicDescription, own: dict[str, str | None]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id or Uuid.ZERO),
        "internal": topic.is_internal,
        "replication_factor": _replication_factor(topic),
        "settings": own,
    }


def _rows(topic: TopicDescription) -> list[dict[str, Any]]:
    return [
        {
            "partition": each.index,
            "leader": each.leader,
            "leader_epoch": -1 if each.leader_epoch is None else each.leader_epoch,
            "replicas": list(each.replicas),
            "isr": list(each.isr),
            "offline": list(each.offline),
        }
        for each in topic.partitions
    ]
