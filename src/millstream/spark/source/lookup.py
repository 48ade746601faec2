"""What the driver asks brokers: which partitions there are, and which offsets.

The readers have one `TopicOffsets` while they plan; a stream keeps it for as long as it runs and
also waits with it for records, at the broker. It decides nothing about what is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from millstream.client.admin.admin import Admin
from millstream.client.admin.config import AdminConfig
from millstream.client.config import shared_settings
from millstream.client.consumer.consumer import Consumer
from millstream.errors import (
    InvalidArgument,
    MillstreamError,
    UnknownTopicOrPartition,
)
from millstream.spark.source.data_loss import deleted, report_loss, truncated
from millstream.spark.source.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtOffsets,
    AtTime,
    Edge,
    listed,
)
from millstream.spark.source.options import Partitions, TopicPattern
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Self

    from millstream.spark.source.offsets import Bound, Offsets
    from millstream.spark.source.options import SourceOptions

_WATCHING: Final = {
    "auto.offset.reset": "none",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
    # It only watches for something to arrive: as little of it as brokers can send is enough.
    "max.partition.fetch.bytes": "1",
    "millstream.prefetch.bytes": "1",
}


class TopicOffsets:
    """Answers about the topics of a source. One thread at a time."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._consumer = Consumer.from_config({**options.client, **_WATCHING})
        self._admin: Admin | None = None
        self._watched: Offsets = {}

    def close(self) -> None:
        """Hang up; again is fine."""
        self._consumer.close(5.0)
        if self._admin is not None:
            self._admin.close(5.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- partitions ----

    def partitions(self, *, is_any_missing_fine: bool = False) -> list[TopicPartition]:
        """All partitions that the options select, as they are now.

        Those that are not there are an error, unless that is fine; with a pattern it always is.
        """
        selection = self._options.selection
        if isinstance(selection, TopicPattern):
            names = self._matching(selection.pattern)
            return self._of_topics(names, is_any_missing_fine=True)
        if isinstance(selection, Partitions):
            topics = {each.topic for each in selection.partitions}
            existing = set(self._of_topics(sorted(topics), is_any_missing_fine=is_any_missing_fine))
            missing = set(selection.partitions) - existing
            if missing and not is_any_missing_fine:
                raise UnknownTopicOrPartition(f"assign names {listed(missing)}: not there")
            return [each for each in selection.partitions if each in existing]
        return self._of_topics(selection.names, is_any_missing_fine=is_any_missing_fine)

    def _matching(self, pattern: str) -> list[str]:
        wanted = re.compile(pattern)
        return [
            each.name for each in self._administer().list_topics() if wanted.fullmatch(each.name)
        ]

    def _of_topics(
        self, topics: Collection[str], *, is_any_missing_fine: bool = False
    ) -> list[TopicPartition]:
        if not topics:
            return []
        described = self._administer().describe_topics(topics)
        for name, error in described.errors.items():
            if not isinstance(error, UnknownTopicOrPartition):
                raise error
            if not is_any_missing_fine:
                raise UnknownTopicOrPartition(
                    f"there is no topic {name!r}: create it first, or subscribe to another"
                )
        return [
            TopicPartition(topic.name, each.index)
            for topic in described.results.values()
            for each in topic.partitions
        ]

    def _administer(self) -> Admin:
        if self._admin is None:
            self._admin = Admin.from_config(shared_settings(AdminConfig, self._options.client))
        return self._admin

    # ---- offsets ----

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The first offsets that are still there."""
        wanted = list(partitions)
        return self._consumer.beginning_offsets(wanted) if wanted else {}

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The ends; with read_committed, where the oldest open transaction begins."""
        wanted = list(partitions)
        return self._consumer.end_offsets(wanted) if wanted else {}

    def start(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Where the options say that reading begins."""
        options = self._options
        if options.starting_group is None:
            return self._resolve(options.start, partitions, "startingOffsets")
        committed = self._committed(options.starting_group, partitions)
        self._check_places(committed, "startingGroup")
        others = [each for each in partitions if each not in committed]
        return {**committed, **self._resolve(options.start, others, "startingOffsets")}

    def end(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Where the options say that a batch ends."""
        return self._resolve(self._options.end, partitions, "endingOffsets")

    def not_before(self, partitions: Iterable[TopicPartition], timestamp: int) -> Offsets:
        """The first offset of each that has a record as new as that; the end where none has."""
        wanted = dict.fromkeys(partitions, timestamp)
        found = self._consumer.offsets_for_times(wanted) if wanted else {}
        missing = [each for each, at in found.items() if at is None]
        ends = self.latest(missing)
        return {each: ends[each] if at is None else at.offset for each, at in found.items()}

    def _resolve(
        self, bound: Bound, partitions: Collection[TopicPartition], option: str
    ) -> Offsets:
        if not partitions:
            return {}
        if bound is Edge.EARLIEST:
            return self.earliest(partitions)
        if bound is Edge.LATEST:
            return self.latest(partitions)
        if isinstance(bound, AtOffsets):
            _require_same(bound.offsets, partitions, option)
            return self._at_offsets(bound.offsets, option)
        if isinstance(bound, AtTime):
            return self._at_times(dict.fromkeys(partitions, bound.timestamp), option)
        assert not isinstance(bound, Edge)
        _require_same(bound.times, partitions, f"{option}ByTimestamp")
        return self._at_times(bound.times, option)

    def _at_offsets(self, wanted: Mapping[TopicPartition, int], option: str) -> Offsets:
        first = self.earliest(wanted)
        last = self.latest(wanted)
        ends = {EARLIEST_OFFSET: first, LATEST_OFFSET: last}
        found = {
            each: ends[offset][each] if offset in ends else offset
            for each, offset in wanted.items()
        }
        self._check_places(found, option)
        return found

    def _check_places(self, offsets: Offsets, option: str) -> None:
        """Have what lies outside the logs reported, and moved inside."""
        first = self.earliest(offsets)
        last = self.latest(offsets)
        is_fatal = self._options.fail_on_data_loss
        for each, offset in sorted(offsets.items()):
            if offset < first[each] and option != "endingOffsets":
                problem = deleted(each, offset, first[each], first[each])
                report_loss(f"{option}: {problem}", is_fatal=is_fatal)
                offsets[each] = first[each]
            elif offset > last[each]:
                problem = truncated(each, offset, last[each])
                report_loss(f"{option}: {problem}", is_fatal=is_fatal)
                offsets[each] = last[each]

    def _at_times(self, times: Mapping[TopicPartition, int], option: str) -> Offsets:
        found = self._consumer.offsets_for_times(times)
        missing = [each for each, at in found.items() if at is None]
        strategy = self._options.starting_offsets_by_timestamp_strategy
        if missing and option == "startingOffsets" and strategy == "error":
            raise InvalidArgument(
                f"no record of {listed(missing)} is as new as the time to start at; set "
                "startingOffsetsByTimestampStrategy=latest to begin at their ends"
            )
        ends = self.latest(missing)
        return {each: ends[each] if at is None else at.offset for each, at in found.items()}

    def _committed(self, group: str, partitions: Collection[TopicPartition]) -> Offsets:
        found = self._administer().list_group_offsets({group: partitions})[group]
        return {each: at.offset for each, at in found.items() if each in set(partitions)}

    # ---- waiting ----

    def wait_for_records(self, ends: Offsets, timeout_s: float) -> bool:
        """Wait at the brokers until something lies behind the ends; whether that is so."""
        if not ends:
            return False
        try:
            self._watch(ends)
            return bool(self._consumer.poll(timeout_s, max_records=1))
        except MillstreamError:
            self._watched = {}
            return True  # Something has happened: the next look at the offsets will show what.

    def _watch(self, ends: Offsets) -> None:
        """Stand at the ends; where the watch stands already it goes on, a fetch under way too."""
        if ends.keys() != self._watched.keys():
            self._consumer.assign(ends)
            self._watched = {}
        for partition, offset in ends.items():
            if self._watched.get(partition) != offset:
                self._consumer.seek(partition, offset)
        self._watched = dict(ends)


def _require_same(
    named: Iterable[TopicPartition], partitions: Iterable[TopicPartition], option: str
) -> None:
    """An offset for every partition, and for no other."""
    missing = set(partitions) - set(named)
    unknown = set(named) - set(partitions)
    faults = []
    if missing:
        faults.append(f"nothing is said of {listed(missing)}; -2 is earliest, -1 latest")
    if unknown:
        faults.append(f"{listed(unknown)} are not among the partitions that are read")
    if faults:
        raise InvalidArgument(f"{option}: {'; '.join(faults)}")
