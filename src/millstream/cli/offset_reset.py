"""Where the offsets of a group are to go: who is meant, from where, to where, and why.

`groups reset-offsets` and `share-groups reset-offsets` show such a plan, and carry it out. Nothing
is changed here.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from millstream.cli.faults import CommandFailed, UsageFault
from millstream.cli.group_offsets import end_offsets
from millstream.cli.times import parse_ago, parse_time, show_time
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.cli.session import Session

_CSV_FIELDS = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where to: what one of the options said."""

    end: Literal["earliest", "latest"] | None = None
    offset: int | None = None
    timestamp: int | None = None
    shift: int | None = None
    is_current: bool = False
    by_partition: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """One partition's old and new offset; a new one of None stays as it is."""

    place: TopicPartition
    old: int | None
    new: int | None
    note: str | None = None

    def row(self) -> dict[str, Any]:
        """For a table, or JSON."""
        is_moved = self.old is not None and self.new is not None
        return {
            "topic": self.place.topic,
            "partition": self.place.partition,
            "old": self.old,
            "new": self.new,
            "change": self.new - self.old if is_moved else None,  # type: ignore[operator]
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The options of which exactly one is to be given."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    to_time: str | None = None
    by_duration: str | None = None
    shift: int | None = None
    from_file: Path | None = None

    def target(self, group_id: str, now_ms: int) -> ResetTarget:
        """What they ask for."""
        given = [name for name in self.__slots__ if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            options = ", ".join("--" + name.replace("_", "-") for name in self.__slots__)
            raise UsageFault(f"say where to: one of {options}")
        if self.to_offset is not None and self.to_offset < 0:
            raise UsageFault("--to-offset is 0 or above; --shift takes a negative number")
        if self.from_file is not None:
            return ResetTarget(by_partition=read_offsets(self.from_file, group_id))
        timestamp = None
        if self.to_time is not None:
            timestamp = parse_time(self.to_time, now_ms)
        elif self.by_duration is not None:
            timestamp = parse_ago(self.by_duration, now_ms)
        if self.to_earliest or self.to_latest:
            return ResetTarget("earliest" if self.to_earliest else "latest")
        return ResetTarget(None, self.to_offset, timestamp, self.shift, self.to_current)


def choose_places(
    session: Session,
    topics: list[str] | None,
    every_topic: bool,
    committed: Iterable[TopicPartition],
    target: ResetTarget,
) -> list[TopicPartition]:
    """The partitions meant by `--topic T[:p,…]`, by `--all-topics`, or by the file alone."""
    if topics and every_topic:
        raise UsageFault("say either --topic or --all-topics")
    if every_topic:
        return sorted(committed)
    if topics:
        return sorted({place for text in topics for place in parse_places(session, text)})
    if target.by_partition is not None:
        return _checked(session, target.by_partition)
    raise UsageFault("say of what: --topic TOPIC, --topic TOPIC:0,1 or --all-topics")


def parse_places(session: Session, text: str) -> list[TopicPartition]:
    """The partitions of `topic` or of `topic:0,1,2`; an error for what is not there."""
    topic, colon, indexes = text.partition(":")
    if not colon:
        return [TopicPartition(topic, each.index) for each in session.topic(topic).partitions]
    numbers = indexes.split(",")
    if not all(each.isascii() and each.isdecimal() for each in numbers):
        raise UsageFault(f"--topic {text}: write TOPIC, or TOPIC:0,1 for some partitions")
    return _checked(session, (TopicPartition(topic, int(each)) for each in numbers))


def plan_offsets(
    session: Session,
    places: Iterable[TopicPartition],
    old: Mapping[TopicPartition, int],
    target: ResetTarget,
) -> list[PlannedOffset]:
    """Old and new offset of each partition. None is outside its log."""
    wanted = list(places)
    starts = _known(end_offsets(session, wanted, "earliest"))
    ends = _known(end_offsets(session, wanted, "latest"))
    times: dict[TopicPartition, int] = {}
    if target.timestamp is not None:
        times = _known(end_offsets(session, wanted, target.timestamp))
    plan = []
    for place in wanted:
        if place not in starts or place not in ends:
            plan.append(PlannedOffset(place, old.get(place), None, "has no leader, or is gone"))
            continue
        new, note = _aim(place, old.get(place), starts[place], ends[place], times, target)
        plan.append(_clamped(place, old.get(place), new, note, starts[place], ends[place]))
    return plan


def read_offsets(path: Path, group_id: str) -> dict[TopicPartition, int]:
    """A file of `topic,partition,offset`, or of `group,topic,partition,offset` for several groups.

    These are the forms of Kafka's tool.
    """
    try:
        text = path.read_text(encoding="utf-8")
        lines = list(csv.reader(text.splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise CommandFailed(f"{path} is not CSV; write topic,partition,offset") from error
    found: dict[TopicPartition, int] = {}
    for number, fields in enumerate(lines, start=1):
        line = [each.strip() for each in fields]
        if not any(line) or (number == 1 and tuple(line[-3:]) == _CSV_FIELDS):
            continue
        if len(line) == 4 and line[0] != group_id:
            continue
        if len(line) not in (3, 4) or not all(each.isdecimal() for each in line[-2:]):
            raise CommandFailed(f"{path}, line {number}: write topic,partition,offset")
        found[TopicPartition(line[-3], int(line[-2]))] = int(line[-1])
    if not found:
        raise CommandFailed(f"{path} has no offset for {group_id!r}; write topic,partition,offset")
    return found


def offsets_as_csv(plan: Iterable[PlannedOffset]) -> str:
    """What `read_offsets` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for each in plan:
        if each.new is not None:
            writer.writerow((each.place.topic, each.place.partition, each.new))
    return text.getvalue()


def _checked(session: Session, places: Iterable[TopicPartition]) -> list[TopicPartition]:
    found = sorted(set(places))
    for each in found:
        session.partition(each.topic, each.partition)
    return found


def _known(offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    return {each: at for each, at in offsets.items() if at is not None}


def _aim(
    place: TopicPartition,
    old: int | None,
    start: int,
    end: int,
    times: Mapping[TopicPartition, int],
    target: ResetTarget,
) -> tuple[int | None, str | None]:
    """Where a partition is to go, before its log is looked at."""
    if target.end is not None:
        return (start if target.end == "earliest" else end), None
    if target.offset is not None:
        return target.offset, None
    if target.by_partition is not None:
        new = target.by_partition.get(place)
        return new, None if new is not None else "is not in the file"
    if target.timestamp is not None:
        if (found := times.get(place)) is not None:
            return found, None
        return end, f"no record since {show_time(target.timestamp)}: the end"
    if old is None:
        return None, "nothing is committed"
    return old + (target.shift or 0), None


def _clamped(
    place: TopicPartition,
    old: int | None,
    new: int | None,
    note: str | None,
    start: int,
    end: int,
) -> PlannedOffset:
    if new is None or start <= new <= end:
        return PlannedOffset(place, old, new, note)
    if new < start:
        return PlannedOffset(place, old, start, f"{new} is before the log's start {start}")
    return PlannedOffset(place, old, end, f"{new} is beyond the log's end {end}")
