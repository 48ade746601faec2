"""`millstream transactions`: list, describe, producers, find-hanging, abort."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millstream.cli.faults import CommandFailed, UsageFault, nearest
from millstream.cli.group_text import show_places
from millstream.cli.hanging import find_hanging, find_owners, reason_to_hang
from millstream.cli.offset_reset import parse_places
from millstream.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    Topic,
    Yes,
    complete_topics,
    complete_transactional_ids,
    new_family,
    require_ids,
)
from millstream.cli.output import is_confirmed, note, show_facts, show_json, show_rows
from millstream.cli.session import open_session
from millstream.cli.times import DURATION_SYNTAX, parse_duration, show_duration, show_time
from millstream.cli.transaction_view import (
    OPEN_STATES,
    TRANSACTION_STATES,
    TransactionFilter,
    describe_producers,
    find_transactions,
    list_transactions,
    write_abort_marker,
)
from millstream.errors import InvalidRegularExpression
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.cli.session import Session
    from millstream.cli.transaction_view import ProducerView
    from millstream.client.admin.transactions import TransactionDescription

family = new_family("Transactions: which are open, whose they are, and ending those that hang.")

_BROKERS_MAX_TIMEOUT: Final = "15m"
"""The default of `transaction.max.timeout.ms`."""


@family.command("list")
def list_all(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only those: Ongoing…; repeatable."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help=f"Only those open for longer: {DURATION_SYNTAX}",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="Only ids that match as a whole (RE2)."),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List transactional ids and how their last transaction stands.

    Examples: `millstream transactions list --state ongoing --older-than 5m`,
    `millstream transactions list --pattern 'billing-.*'`
    """
    wanted = TransactionFilter(
        # What has ended is not open, however long ago it began.
        _choose_states(state or (() if older_than is None else OPEN_STATES)),
        older_than_ms=None if older_than is None else parse_duration(older_than),
        pattern=pattern,
    )
    with open_session(bootstrap_server, timeout) as session:
        try:
            found = list_transactions(session, wanted)
        except InvalidRegularExpression as error:
            raise UsageFault(f"--pattern: {pattern!r} is no regular expression of RE2") from error
    rows = [
        {
            "transactional_id": each.transactional_id,
            "state": each.state,
            "producer_id": each.producer_id,
            "coordinator": each.coordinator,
        }
        for each in found
    ]
    if not rows and not as_json:
        is_filtered = bool(state) or older_than is not None or pattern is not None
        note("no transaction is like that" if is_filtered else "there are none", as_json=False)
        return
    headings = {"transactional_id": "TRANSACTIONAL ID", "state": "STATE"}
    headings |= {"producer_id": "PRODUCER ID", "coordinator": "COORDINATOR"}
    show_rows(rows, headings, as_json=as_json)


@family.command("describe")
def describe(
    transactional_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID",
            help="Transactional ids.",
            autocompletion=complete_transactional_ids,
            callback=require_ids,
        ),
    ],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show a transactional id: its producer, state, age, and the partitions it has written to.

    Example: `millstream transactions describe billing-1`
    """
    with open_session(bootstrap_server, timeout) as session:
        found = find_transactions(session, transactional_ids)
        for each in transactional_ids:
            if each not in found:
                raise _no_such_transaction(session, each)
        now_ms = session.clock.wall_ms()
    described = [_transaction_facts(each, now_ms) for each in found.values()]
    if as_json:
        show_json(described)
        return
    for index, (facts, view) in enumerate(zip(described, found.values(), strict=True)):
        note("", as_json=index == 0)  # An empty line between two.
        ages = {
            "timeout": show_duration(view.timeout_ms),
            "started": facts["start_time"],
            "open_for": None if facts["open_ms"] is None else show_duration(facts["open_ms"]),
            "partitions": show_places(view.partitions),
        }
        shown = {key: value for key, value in facts.items() if key in _FACTS}
        show_facts(shown | {k: v for k, v in ages.items() if v is not None}, as_json=False)


@family.command("producers")
def producers(
    topic: Topic,
    partition: Annotated[
        int | None, typer.Argument(metavar="PARTITION", help="All if none.", show_default=False)
    ] = None,
    is_open: Annotated[
        bool, typer.Option("--open", help="Only those with a transaction open.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show the idempotent and transactional producers that a topic's partitions remember.

    Example: `millstream transactions producers orders 0 --open`
    """
    with open_session(bootstrap_server, timeout) as session:
        places = _places(session, topic, partition)
        found = describe_producers(session, places)
    rows = [_producer_row(each) for each in found if each.start_offset is not None or not is_open]
    if not rows and not as_json:
        note(f"{topic}: no {'open transactions' if is_open else 'such producers'}", as_json=False)
        return
    show_rows(rows, _PRODUCER_HEADINGS, as_json=as_json)


@family.command("find-hanging")
def find_hanging_transactions(
    broker: Annotated[
        int | None,
        typer.Option("--broker", metavar="ID", help="Only in partitions that it leads."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Only there; repeatable. Else everywhere.",
            autocompletion=complete_topics,
        ),
    ] = None,
    max_timeout: Annotated[
        str,
        typer.Option(
            "--max-timeout",
            metavar="DURATION",
            help="How long a transaction may be open: the brokers' transaction.max.timeout.ms.",
        ),
    ] = _BROKERS_MAX_TIMEOUT,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition, but whose coordinator will not end them.

    Readers of committed records wait behind such a one, and compaction stops there.

    Examples: `millstream transactions find-hanging`,
    `millstream transactions find-hanging --topic orders --max-timeout 1h`
    """
    max_timeout_ms = parse_duration(max_timeout)
    with open_session(bootstrap_server, timeout) as session:
        found = find_hanging(session, _search_places(session, broker, topic), max_timeout_ms)
        now_ms = session.clock.wall_ms()
    rows = [
        {"topic": each.producer.place.topic}
        | _producer_row(each.producer)
        | {
            "transactional_id": each.transactional_id,
            "idle_ms": None if each.producer.last_ms is None else now_ms - each.producer.last_ms,
            "reason": each.reason,
        }
        for each in found
    ]
    if not rows and not as_json:
        note("no transaction hangs", as_json=False)
        return
    headings = {"topic": "TOPIC", "partition": "PARTITION", "start_offset": "START OFFSET"}
    headings |= {"producer_id": "PRODUCER ID", "epoch": "EPOCH", "last_time": "LAST RECORD"}
    show_rows(rows, headings | {"reason": "REASON"}, as_json=as_json)
    if not as_json:
        first = found[0].producer
        end = f"{first.place.topic} {first.place.partition} --start-offset {first.start_offset}"
        note(f"to end the first: millstream transactions abort {end}", as_json=False)


@family.command("abort")
def abort(
    topic: Topic,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", help="One of its partitions.")],
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", metavar="N", help="Of its first record.", show_default=False
        ),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="ID", help="Whose it is.")
    ] = None,
    yes: Yes = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even one that is not hanging: its records here are lost."),
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """End a hanging transaction in one partition; its records there count as aborted.

    Examples: `millstream transactions abort orders 0 --start-offset 4711`,
    `millstream transactions abort orders 0 --producer-id 1000 --yes`
    """
    if (start_offset is None) == (producer_id is None):
        raise UsageFault("say which: either --start-offset N or --producer-id ID")
    with open_session(bootstrap_server, timeout) as session:
        [place] = _places(session, topic, partition)
        producer = _open_producer(session, place, start_offset, producer_id)
        owner = find_owners(session, [producer]).get(producer.producer_id)
        reason = reason_to_hang(producer, owner)
        if reason is None and owner is not None and not force:
            raise CommandFailed(
                f"it does not hang: its coordinator has {owner.transactional_id!r} as "
                f"{owner.state} and ends it after {show_duration(owner.timeout_ms)}; --force "
                "aborts its records here all the same, even if it commits"
            )
        if not yes:
            _confirm(producer, reason)
        # It may have ended since.
        write_abort_marker(session, _open_producer(session, place, start_offset, producer_id))
    if as_json:
        show_json({"topic": topic} | _producer_row(producer) | {"aborted": True})
    note(
        f"{place}: aborted the transaction of producer {producer.producer_id} from offset "
        f"{producer.start_offset} on",
        as_json=as_json,
    )


_FACTS: Final = ("transactional_id", "state", "producer_id", "producer_epoch", "coordinator")
_PRODUCER_HEADINGS: Final = {
    "partition": "PARTITION",
    "producer_id": "PRODUCER ID",
    "epoch": "EPOCH",
    "coordinator_epoch": "COORDINATOR EPOCH",
    "last_sequence": "LAST SEQUENCE",
    "last_time": "LAST RECORD",
    "start_offset": "OPEN SINCE OFFSET",
}


def _choose_states(wanted: Iterable[str]) -> list[str]:
    known = {each.lower(): each for each in TRANSACTION_STATES}
    for each in wanted:
        if each.lower() not in known:
            hint = nearest(each.lower(), known) or f"; they are {', '.join(TRANSACTION_STATES)}"
            raise UsageFault(f"--state: no transaction is ever {each!r}{hint}")
    return [known[each.lower()] for each in wanted]


def _places(session: Session, topic: str, partition: int | None) -> list[TopicPartition]:
    if partition is None:
        return [TopicPartition(topic, each.index) for each in session.topic(topic).partitions]
    return [TopicPartition(topic, session.partition(topic, partition).index)]


def _search_places(
    session: Session, broker: int | None, topics: list[str] | None
) -> list[TopicPartition]:
    """Where to look; partitions without a leader only if they were named."""
    if topics:
        chosen = {place for text in topics for place in parse_places(session, text)}
    if broker is not None and broker not in (brokers := session.brokers()):
        known = ", ".join(map(str, sorted(brokers)))
        raise CommandFailed(f"there is no broker {broker}; there are {known}")
    led = {
        TopicPartition(topic.name, each.index): each.leader
        for topic in session.topics().values()
        for each in topic.partitions
        if each.leader is not None
    }
    if not topics:
        chosen = set(led)
    return sorted(each for each in chosen if broker in (None, led.get(each)))


def _no_such_transaction(session: Session, transactional_id: str) -> CommandFailed:
    known = [each.transactional_id for each in list_transactions(session, TransactionFilter())]
    hint = nearest(transactional_id, known) or "; `millstream transactions list` shows all"
    return CommandFailed(f"there is no transactional id {transactional_id!r}{hint}")


def _transaction_facts(view: TransactionDescription, now_ms: int) -> dict[str, Any]:
    by_topic: dict[str, list[int]] = {}
    for each in sorted(view.partitions):
        by_topic.setdefault(each.topic, []).append(each.partition)
    return {
        "transactional_id": view.transactional_id,
        "state": view.state,
        "producer_id": view.producer_id,
        "producer_epoch": view.producer_epoch,
        "coordinator": view.coordinator,
        "timeout_ms": view.timeout_ms,
        "start_time": show_time(view.started_ms) if view.started_ms else None,
        "open_ms": max(0, now_ms - view.started_ms)
        if view.started_ms and view.state in OPEN_STATES
        else None,
        "partitions": by_topic,
    }


def _producer_row(producer: ProducerView) -> dict[str, Any]:
    return {
        "partition": producer.place.partition,
        "producer_id": producer.producer_id,
        "epoch": producer.epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_time": None if producer.last_ms is None else show_time(producer.last_ms),
        "start_offset": producer.start_offset,
    }


def _open_producer(
    session: Session, place: TopicPartition, start_offset: int | None, producer_id: int | None
) -> ProducerView:
    """The producer whose open transaction is meant."""
    found = [each for each in describe_producers(session, [place]) if each.start_offset is not None]
    for each in found:
        if each.producer_id == producer_id or each.start_offset == start_offset:
            return each
    where = f"millstream transactions producers {place.topic} {place.partition} --open"
    what = f"of producer {producer_id}" if start_offset is None else f"at offset {start_offset}"
    raise CommandFailed(f"{place} has no open transaction {what}; `{where}` shows all")


def _confirm(producer: ProducerView, reason: str | None) -> None:
    since = "" if producer.last_ms is None else f", last written to {show_time(producer.last_ms)}"
    question = (
        f"{producer.place}: the transaction of producer {producer.producer_id}, epoch "
        f"{producer.epoch}, from offset {producer.start_offset} on{since}\n"
        f"{reason or 'its coordinator would end it, and may commit it'}\nAbort it?"
    )
    if not is_confirmed(question):
        raise CommandFailed("nothing was aborted")
