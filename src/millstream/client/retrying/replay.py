"""`replay`: records of a topic sent once more, to where they came from or to another topic.

Made for dead letters, whose headers say where they failed, and for windows of offsets or time of
any topic. It reads up to the ends that the partitions have when it begins, so a replay into the
topic it reads from ends too. Nothing is committed and nothing is deleted: what was replayed can be
replayed again, and a header says where each record was read.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from millstream.client.arguments import to_timestamp
from millstream.client.consumer.bounds import Ends, Span, bound_of, offset_of
from millstream.client.consumer.consumer import Consumer
from millstream.client.producer.producer import Producer
from millstream.client.retrying import attempt as headers_of
from millstream.clock import SystemClock
from millstream.errors import InvalidArgument, OperationTimeout
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from millstream.client.consumer.bounds import Bounds
    from millstream.records.kernel import ConsumerRecord

REPLAYED_FROM: Final = "millstream.replay.from"
"""Header of a replayed record: topic-partition@offset where it was read."""
_POLL_SECONDS: Final = 0.5


@dataclass(slots=True)
class ReplayReport:
    """What a replay has done so far."""

    total: int = 0
    """Offsets between start and end; some may hold no record."""
    passed: int = 0
    """Offsets that were gone through."""
    read: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    """Records by the topic they were sent to; with `dry_run`, would have been."""
    filtered: int = 0
    """Records that the filter left out."""
    homeless: int = 0
    """Records whose headers do not say where they came from."""
    positions: dict[int, int] = field(default_factory=dict)
    """The next offset of each partition: where to go on after an interruption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What to replay, and how."""

    source: str
    to: str | None = None
    """None: where each record came from, by its headers."""
    start: Bounds = "earliest"
    end: Bounds = "latest"
    partitions: Collection[int] | None = None
    where: Callable[[ConsumerRecord[Any, Any]], bool] | None = None
    rate: float | None = None
    """At most so many records a second."""
    limit: int | None = None
    """At most so many records."""
    dry_run: bool = False
    timeout: float = 30.0
    """Seconds in which something must arrive."""

    def __post_init__(self) -> None:
        if self.rate is not None and self.rate <= 0:
            raise InvalidArgument(f"rate={self.rate}: records per second, above 0")
        if self.limit is not None and self.limit < 1:
            raise InvalidArgument(f"limit={self.limit}: 1 or more")


def replay(
    bootstrap: str | Sequence[str],
    plan: ReplayPlan,
    *,
    on_progress: Callable[[ReplayReport], object] | None = None,
    report: ReplayReport | None = None,
    **settings: Any,
) -> ReplayReport:
    """Replay; `settings` are for consumer and producer: namespace, client_id.

    Every record that counts as sent is acknowledged when this returns. If it is interrupted, the
    `report` that was given tells how far it came.
    """
    run = _Replay(bootstrap, plan, settings, report or ReplayReport(), on_progress)
    run.run()
    return run.report


class _Replay:
    """One run."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        plan: ReplayPlan,
        settings: Mapping[str, Any],
        report: ReplayReport,
        on_progress: Callable[[ReplayReport], object] | None,
    ) -> None:
        self.report = report
        self._bootstrap = bootstrap
        self._plan = plan
        self._settings = settings
        self._on_progress = on_progress or (lambda _: None)
        self._clock = SystemClock()
        self._began_ms = 0

    def run(self) -> None:
        reading = {"isolation_level": "read_committed", **self._settings}
        with (
            Producer(self._bootstrap, **self._settings) as producer,
            Consumer(self._bootstrap, auto_offset_reset="none", **reading) as consumer,
        ):
            spans = self._spans(consumer, producer)
            self.report.total = sum(span.end - span.start for span in spans.values())
            self.report.positions = {each.partition: span.start for each, span in spans.items()}
            self._began_ms = self._clock.monotonic_ms()
            try:
                for records in self._chunks(consumer, spans):
                    self._send_some(producer, records)
                    self._on_progress(self.report)
                    if self._is_limit_reached():
                        break
            finally:
                producer.flush()
        self._on_progress(self.report)

    # Reading.

    def _spans(self, consumer: Consumer, producer: Producer) -> dict[TopicPartition, Span]:
        count = len(producer.partitions_for(self._plan.source))
        wanted = self._plan.partitions
        numbers = range(count) if wanted is None else sorted(set(wanted))
        if any(not 0 <= number < count for number in numbers):
            raise InvalidArgument(f"{self._plan.source!r} has {count} partitions, from 0 on")
        partitions = [TopicPartition(self._plan.source, number) for number in numbers]
        first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        spans = {}
        for each in partitions:
            ends = Ends(first[each], last[each])
            start = self._offset(consumer, each, ends, "start", self._plan.start, "earliest")
            end = self._offset(consumer, each, ends, "end", self._plan.end, "latest")
            if start < end:
                spans[each] = Span(start, end)
        return spans

    @staticmethod
    def _offset(
        consumer: Consumer,
        partition: TopicPartition,
        ends: Ends,
        name: str,
        bounds: Bounds,
        default: Any,
    ) -> int:
        bound = bound_of(bounds, partition.partition, name, default)
        found = None
        if not isinstance(bound, int | str):
            moment: datetime = bound
            found = consumer.offsets_for_times({partition: to_timestamp(moment)})[partition]
        return offset_of(bound, partition, ends, found, name)

    def _chunks(
        self, consumer: Consumer, spans: dict[TopicPartition, Span]
    ) -> Iterator[list[ConsumerRecord[Any, Any]]]:
        """Records of the spans, as they come; ends when all of them are read."""
        consumer.assign(spans)
        for partition, span in spans.items():
            consumer.seek(partition, span.start)
        left = {partition: span.end for partition, span in spans.items()}
        quiet_since_ms = self._clock.monotonic_ms()
        while left:
            records = consumer.poll(_POLL_SECONDS)
            yield [
                each
                for each in records
                if each.offset < left.get(TopicPartition(each.topic, each.partition), 0)
            ]
            moved = self._note_positions(consumer, spans, left)
            if moved or records:
                quiet_since_ms = self._clock.monotonic_ms()
            elif self._clock.monotonic_ms() - quiet_since_ms > self._plan.timeout * 1000:
                raise OperationTimeout(
                    f"nothing arrived for {self._plan.timeout:g} s; still to be read: "
                    + ", ".join(f"{each} up to {end}" for each, end in left.items())
                )

    def _note_positions(
        self,
        consumer: Consumer,
        spans: dict[TopicPartition, Span],
        left: dict[TopicPartition, int],
    ) -> bool:
        """Where the consumer stands, which gaps of compaction move too; drops what is finished."""
        before = self.report.passed
        for partition, end in list(left.items()):
            position = min(consumer.position(partition), end)
            self.report.positions[partition.partition] = position
            if position >= end:
                del left[partition]
                consumer.pause([partition])
        self.report.passed = sum(
            self.report.positions[each.partition] - span.start for each, span in spans.items()
        )
        return self.report.passed > before

    # Sending.

    def _send_some(self, producer: Producer, records: list[ConsumerRecord[Any, Any]]) -> None:
        for record in records:
            if self._is_limit_reached():
                return
            self.report.read += 1
            self._send(producer, record)

    def _send(self, producer: Producer, record: ConsumerRecord[Any, Any]) -> None:
        if self._plan.where is not None and not self._plan.where(record):
            self.report.filtered += 1
            return
        target = self._plan.to or origin_of(record)
        if target is None:
            self.report.homeless += 1
            return
        if not self._plan.dry_run:
            self._keep_pace()
            producer.send(
                target,
                record.value,
                key=record.key,
                timestamp=record.timestamp if record.timestamp >= 0 else None,
                headers=replayed_headers(record),
            )
        self.report.sent[target] += 1

    def _is_limit_reached(self) -> bool:
        return self._plan.limit is not None and self.report.sent.total() >= self._plan.limit

    def _keep_pace(self) -> None:
        if self._plan.rate is None:
            return
        due_ms = self._began_ms + 1000 * self.report.sent.total() / self._plan.rate
        wait_ms = due_ms - self._clock.monotonic_ms()
        if wait_ms > 0:
            time.sleep(wait_ms / 1000)


def origin_of(record: ConsumerRecord[Any, Any]) -> str | None:
    """The topic that a dead letter was first read from; None if its headers do not say."""
    return headers_of.history(record.headers).get(headers_of.TOPIC)


def replayed_headers(record: ConsumerRecord[Any, Any]) -> list[tuple[str, bytes | None]]:
    """The record's own headers, without its history of failures, and where it was read."""
    kept = [each for each in headers_of.own_headers(record.headers) if each[0] != REPLAYED_FROM]
    place = f"{record.topic}-{record.partition}@{record.offset}"
    return [*kept, (REPLAYED_FROM, place.encode())]
