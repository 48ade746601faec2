"""The application's side of positions: seeking, asking where it is, and looking offsets up.

`ConsumerSession` has one. Names of topics are the user's outside and the wire's inside.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.client.consumer.steps import AwaitChange, AwaitResult
from millstream.errors import InvalidArgument, OperationTimeout
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.client.consumer.fetch_buffer import FetchBuffer
    from millstream.client.consumer.link import CoreLink
    from millstream.client.consumer.names import Names
    from millstream.client.consumer.offset_lookup import FoundOffset
    from millstream.client.consumer.session_commits import SessionCommits
    from millstream.client.consumer.starting_point import StartingPoint
    from millstream.client.consumer.steps import Steps


class SessionOffsets:
    """Positions of one consumer."""

    def __init__(
        self, link: CoreLink, buffer: FetchBuffer, names: Names, commits: SessionCommits
    ) -> None:
        self._link = link
        self._buffer = buffer
        self._names = names
        self._commits = commits

    def seek(self, partition: TopicPartition, start: StartingPoint) -> None:
        """Read on from somewhere else."""
        wanted = self._names.to_wire(partition)
        run = self._buffer.seek(wanted, start)
        if run is None:
            raise self.not_assigned(wanted)
        self._link.post(lambda core, _now_ms: core.seek(wanted, run, start))

    def position(self, partition: TopicPartition, timeout_s: float) -> Steps[int]:
        """The next offset that the application gets; waits until it is known."""
        wanted = self._names.to_wire(partition)
        deadline_ms = self._link.deadline_ms(timeout_s)
        while True:
            if wanted not in self._buffer.assignment():
                raise self.not_assigned(wanted)
            position = self._link.retrying(lambda: self._buffer.position(wanted))
            if position is not None:
                unread = self._commits.consumed()
                return unread[wanted].offset if wanted in unread else position
            wait_s = self._link.left_s(deadline_ms)
            if wait_s <= 0:
                # If no broker was ever reached, that is the error.
                reached = self._link.ask(
                    "the cluster", lambda core, _now_ms, answer: answer(core.bootstrap_failure())
                )
                yield AwaitResult(reached, 5.0)
                raise OperationTimeout(f"{partition}: no position within {timeout_s:g} s")
            yield AwaitChange(partial(self._buffer.is_placed, wanted), wait_s)

    def lag(self, partition: TopicPartition, timeout_s: float) -> Steps[int]:
        """How many offsets lie between the position and the end."""
        wanted = self._names.to_wire(partition)
        position = yield from self.position(partition, timeout_s)
        end = self._buffer.end_offset(wanted)
        if end is None or end < position:
            found = yield from self.find_offsets({partition: -1}, timeout_s)
            latest = found[partition]
            end = position if latest is None else latest.offset
        return max(0, end - position)

    def find_offsets(
        self, times: Mapping[TopicPartition, int], timeout_s: float
    ) -> Steps[dict[TopicPartition, FoundOffset | None]]:
        """Offsets by time, or of the ends; see `offset_lookup`."""
        wanted = self._names.keys_to_wire(times)
        timeout_ms = round(timeout_s * 1000)
        waiter = self._link.ask(
            "the offsets",
            lambda core, now_ms, answer: core.lookup.find(
                wanted,
                lambda found, _done_ms: answer(found),
                deadline_ms=now_ms + timeout_ms,
                now_ms=now_ms,
            ),
        )
        found = yield AwaitResult(waiter, None)
        return self._names.keys_from_wire(found)

    def partition_count(self, topic: str, timeout_s: float) -> Steps[int]:
        """How many partitions a topic has; an error if it does not exist."""
        wire = self._names.topic_to_wire(topic)
        timeout_ms = round(timeout_s * 1000)
        waiter = self._link.ask(
            f"the partitions of {topic!r}",
            lambda core, now_ms, answer: core.topics.partition_count(
                wire, answer, deadline_ms=now_ms + timeout_ms, now_ms=now_ms
            ),
        )
        count: int = yield AwaitResult(waiter, None)
        return count

    def partitions_for(self, topic: str, timeout_s: float) -> Steps[list[TopicPartition]]:
        """The partitions of a topic; an error if it does not exist."""
        count = yield from self.partition_count(topic, timeout_s)
        return [TopicPartition(topic, number) for number in range(count)]

    def not_assigned(self, partition: TopicPartition) -> InvalidArgument:
        """The error for a partition that is not read."""
        assigned = ", ".join(map(str, self._names.sorted_from_wire(self._buffer.assignment())))
        return InvalidArgument(
            f"{self._names.from_wire(partition)} is not assigned to this consumer; "
            f"{assigned or 'nothing'} is"
        )
