"""`GroupReader`: the records of a topic as a member of a group, from where the group is.

`consume --group` reads with one. What was printed is committed, and nothing else, so that the next
member goes on behind it; a member that dies in between leaves some records to be printed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.cli.faults import CommandFailed
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from millstream.cli.session import Session
    from millstream.client.consumer.consumer import Consumer
    from millstream.records.kernel import ConsumerRecord


class GroupReader:
    """Where a member of a group is in a topic."""

    def __init__(
        self, session: Session, consumer: Consumer, topic: str, ends: Mapping[int, int] | None
    ) -> None:
        """The member is done at `ends`, as far as partitions are its own; None: never."""
        self._clock = session.clock
        self._timeout_s = session.timeout_s
        self._consumer = consumer
        self._topic = topic
        self._ends = ends
        self._printed: dict[TopicPartition, int] = {}
        self._deadline_ms = self._clock.monotonic_ms() + int(self._timeout_s * 1000)
        self.is_idle = False
        """Whether the last round brought nothing, though there is something to read from."""
        consumer.subscribe([topic])

    @property
    def partitions(self) -> list[int]:
        """Those that are this member's now."""
        return sorted(each.partition for each in self._consumer.assignment())

    @property
    def is_finished(self) -> bool:
        """Whether all partitions of this member were read to their ends."""
        partitions = self.partitions
        if self._ends is None or not partitions:
            return False
        return all(self._is_at_end(each, self._ends.get(each, 0)) for each in partitions)

    def _is_at_end(self, partition: int, end: int) -> bool:
        place = TopicPartition(self._topic, partition)
        return self._consumer.position(place, self._timeout_s) >= end

    def poll(self, wait_ms: int) -> Iterator[ConsumerRecord]:
        """One round: records, at once or when the first ones arrive in time."""
        records = self._consumer.poll(wait_ms / 1000)
        has_partitions = bool(self._consumer.assignment())
        self.is_idle = has_partitions and not records
        if not has_partitions:
            self._require_partitions()
        for record in records:
            # Noted first: whoever stops reading here has printed it.
            self._printed[TopicPartition(self._topic, record.partition)] = record.offset + 1
            yield record

    def _require_partitions(self) -> None:
        """Others may have all partitions, and waiting for them is what `--follow` is for."""
        if self._ends is not None and self._clock.monotonic_ms() >= self._deadline_ms:
            raise CommandFailed(
                f"the group gave this member no partition of {self._topic} in "
                f"{self._timeout_s:g} s: others read them all; --follow waits for one"
            )

    def commit(self) -> None:
        """Commit what was printed since the last time."""
        if self._printed:
            self._consumer.commit(self._printed, self._timeout_s)
            self._printed = {}

    def close(self) -> None:
        """Leave the group, so that others need not wait for its session to end."""
        self._consumer.unsubscribe()
