"""Groups and their members for people and programs: rows, facts, and what is refused.

`groups` and `share-groups` print through here.
"""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from millstream.cli.faults import CommandFailed, UsageFault, nearest
from millstream.cli.group_view import (
    DEAD,
    EMPTY,
    GROUP_STATES,
    GroupType,
    list_groups,
    no_such_group,
    owners,
)
from millstream.cli.output import counted, note, show_facts, show_json, show_rows
from millstream.errors import GroupIdNotFound, NonEmptyGroup
from millstream.network.endpoint import host_and_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from millstream.cli.session import Session
    from millstream.client.admin.cluster import BrokerDescription
    from millstream.client.admin.group_descriptions import GroupDescription, MemberDescription
    from millstream.client.admin.groups import GroupListing
    from millstream.client.groups import OffsetAndMetadata
    from millstream.types import TopicPartition

_LEAVE: Final = "stop its consumers first; one that died is given up after its session timeout"

_SHORT_ID_MAX: Final = 24
_SHORT_ID_TAIL: Final = 12
_OPTIONAL: Final = frozenset({"instance", "rack", "epoch", "target", "client", "host", "member"})


def choose_states(wanted: Iterable[str]) -> list[str]:
    """States as Kafka writes them, from any case; UsageFault for one that nobody knows."""
    known = {each.lower(): each for each in GROUP_STATES}
    for each in wanted:
        if each.lower() not in known:
            hint = nearest(each.lower(), known) or f"; they are {', '.join(GROUP_STATES)}"
            raise UsageFault(f"--state: no group is ever {each!r}{hint}")
    return [known[each.lower()] for each in wanted]


def show_listed(found: Sequence[GroupListing], nothing: str, *, as_json: bool) -> None:
    """A list of groups, or a sentence if there are none."""
    rows = [
        {
            "group": each.group_id,
            "type": each.type,
            "state": each.state or None,
            "protocol_type": each.protocol_type or None,
            "coordinator": each.coordinator,
        }
        for each in found
    ]
    if not rows and not as_json:
        note(nothing, as_json=False)
        return
    headings = {"group": "GROUP", "type": "TYPE", "state": "STATE", "coordinator": "COORDINATOR"}
    show_rows(rows, headings, as_json=as_json)


def group_facts(view: GroupDescription, brokers: Mapping[int, BrokerDescription]) -> dict[str, Any]:
    """What is true of a group as a whole."""
    facts: dict[str, Any] = {
        "group": view.group_id,
        "type": view.type,
        "state": view.state,
        "protocol_type": view.protocol_type or None,
        "assignor": view.assignor or None,
        "coordinator": view.coordinator,
        "members": len(view.members),
    }
    if view.epoch is not None:
        facts |= {"epoch": view.epoch, "assignment_epoch": view.assignment_epoch}
    found = None if view.coordinator is None else brokers.get(view.coordinator)
    if found is not None:
        facts["coordinator_address"] = host_and_port(found.host, found.port)
    return facts


def partition_rows(
    view: GroupDescription,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    ends: Mapping[TopicPartition, int | None],
) -> list[dict[str, Any]]:
    """Every partition that the group has read, or that a member of it has now."""
    owned = owners(view)
    rows = []
    for place in sorted(committed.keys() | owned.keys()):
        offset = committed[place].offset if place in committed else None
        end = ends.get(place)
        owner = owned.get(place)
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed": offset,
                "end": end,
                "lag": None if offset is None or end is None else end - offset,
                "member": owner.member_id if owner else None,
                "client": owner.client_id if owner else None,
                "host": owner.host.lstrip("/") if owner else None,
                "metadata": committed[place].metadata or None if place in committed else None,
            }
        )
    return rows


def total_lag(rows: Iterable[Mapping[str, Any]]) -> int | None:
    """The sum of what is known; None if nothing is."""
    known = [row["lag"] for row in rows if row["lag"] is not None]
    return sum(known) if known else None


def show_groups(
    described: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]],
    columns: Mapping[str, str],
    *,
    as_json: bool,
) -> None:
    """Facts of groups, and their partitions below."""
    if as_json:
        show_json([facts | {"partitions": rows} for facts, rows in described])
        return
    for index, (facts, rows) in enumerate(described):
        note("", as_json=index == 0)  # An empty line between two.
        shown = {key: value for key, value in facts.items() if key != "coordinator_address"}
        if facts["type"] != GroupType.CLASSIC:
            del shown["protocol_type"]  # They have no choice.
        if address := facts.get("coordinator_address"):
            shown["coordinator"] = f"{shown['coordinator']} ({address})"
        show_facts({key: value for key, value in shown.items() if value is not None}, as_json=False)
        if rows:
            if sys.stdout.isatty():
                rows = [row | {"member": _short(row.get("member"))} for row in rows]
            show_rows(rows, _filled(columns, rows), as_json=False)
        else:
            note("no offsets, and nothing assigned", as_json=False)


def show_members(view: GroupDescription, *, as_json: bool) -> None:
    """Who they are, where they run, what each one reads."""
    rows = [_member_row(each) for each in view.members]
    if as_json:
        show_json(rows)
        return
    if not rows:
        note(f"{view.group_id}: no members; it is {view.state}", as_json=False)
        return
    columns = {
        "member": "MEMBER",
        "instance": "INSTANCE",
        "client": "CLIENT",
        "host": "HOST",
        "rack": "RACK",
        "epoch": "EPOCH",
        "partitions": "PARTITIONS",
        "assigned": "ASSIGNED",
        "target": "TARGET",
    }
    shown = [
        row
        | {
            "assigned": show_places(member.assignment),
            "target": _pending(member),
        }
        for row, member in zip(rows, view.members, strict=True)
    ]
    show_rows(shown, _filled(columns, shown), as_json=False)


def show_places(places: Iterable[TopicPartition]) -> str | None:
    """`orders:0-2,5 bills:1`."""
    parts = []
    for topic, some in groupby(sorted(places), key=lambda place: place.topic):
        spans = ",".join(_spans([place.partition for place in some]))
        parts.append(f"{topic}:{spans}")
    return " ".join(parts) or None


def require_no_members(group_id: str, view: GroupDescription | None) -> None:
    """Fail while somebody reads: the group would not notice, and commit over it."""
    if view is not None and (view.members or view.state not in (EMPTY, DEAD)):
        raise has_members(group_id, view)


def has_members(group_id: str, view: GroupDescription | None = None) -> CommandFailed:
    """What to say of a group that is in use."""
    who = "members" if view is None else f"{counted(len(view.members), 'member')} ({view.state})"
    return CommandFailed(f"{group_id!r} has {who}; {_LEAVE}")


def delete_chosen(
    session: Session, names: Iterable[str], types: Sequence[GroupType], *, if_exists: bool
) -> list[dict[str, Any]]:
    """Delete groups of some types with their offsets; a row for each."""
    wanted = list(dict.fromkeys(names))
    listed = {each.group_id: each for each in list_groups(session)}
    there = [each for each in wanted if each in listed and listed[each].type in types]
    # Before anything is deleted: a misspelt name should not cost its neighbours.
    for each in wanted:
        if each not in there and (each in listed or not if_exists):
            raise no_such_group(session, each, types)
        if each in there and listed[each].state not in ("", EMPTY, DEAD):
            raise CommandFailed(f"{each!r} is in use ({listed[each].state}); {_LEAVE}")
    for name, error in session.admin.delete_groups(there).errors.items():
        if isinstance(error, NonEmptyGroup):
            raise has_members(name)
        # A group that is gone by now is what was asked for.
        if not isinstance(error, GroupIdNotFound):
            raise error
    return [{"group": each, "deleted": each in there} for each in wanted]


def show_deleted(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    """What became of groups that were to be deleted."""
    if as_json:
        show_json(rows)
        return
    for row in rows:
        note(f"{row['group']}: {'deleted' if row['deleted'] else 'was not there'}", as_json=False)


def _member_row(member: MemberDescription) -> dict[str, Any]:
    target = member.target_assignment
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host.lstrip("/"),
        "rack": member.rack_id,
        "epoch": member.epoch,
        "subscribed": sorted(member.subscribed_topics),
        "pattern": member.subscribed_pattern,
        "partitions": len(member.assignment),
        "assigned": _by_topic(member.assignment),
        "target": None if target is None else _by_topic(target),
    }


def _short(member_id: str | None) -> str | None:
    """The end of a long id, which tells members of one client apart; `members` shows all of it."""
    if member_id is None or len(member_id) <= _SHORT_ID_MAX:
        return member_id
    return f"…{member_id[-_SHORT_ID_TAIL:]}"


def _pending(member: MemberDescription) -> str | None:
    target = member.target_assignment
    if target is None or target == member.assignment:
        return None
    return show_places(target) or "nothing"


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    return {
        topic: [place.partition for place in some]
        for topic, some in groupby(sorted(places), key=lambda place: place.topic)
    }


def _spans(numbers: Sequence[int]) -> Iterator[str]:
    """`0-2` for neighbours, by ascending numbers."""
    for _, some in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        span = [number for _, number in some]
        yield str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}"


def _filled(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The columns without those that are of interest only if a row has something there."""
    return {
        key: heading
        for key, heading in columns.items()
        if key not in _OPTIONAL or any(row.get(key) is not None for row in rows)
    }
