"""Offsets by time, and the ends of logs: ListOffsets, one request to each leader.

`Positions` finds starting points with it, consumers answer `offsets_for_times`, `end_offsets` and
the like. A lookup asks again, with backoff, for what may be known later, and ends exactly once:
with everything that was asked for, or with one error at its deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from millstream.errors import (
    LeaderNotAvailable,
    MillstreamError,
    OperationTimeout,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    class_for_code,
    error_for_code,
    is_retriable,
)
from millstream.network.client.backoff import Backoff
from millstream.network.client.network_client import VersionedRequest
from millstream.protocol.api import ApiKey
from millstream.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from millstream.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from millstream.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

    from millstream.client.metadata import MetadataSnapshot
    from millstream.client.runtime import ClientRuntime
    from millstream.protocol.message import Message

UNKNOWN_TOPIC_MS: Final = 2_000
"""How long a topic that nobody knows is believed to be just being made."""

OTHER_CONNECTION: Final = 1 << 32
"""Added to a broker's id, which has 31 bits, it names a second connection to the broker."""


class FoundOffset(NamedTuple):
    """The first record that is not older than a time, or an end of the log."""

    offset: int
    timestamp: int
    """-1 for the ends."""
    leader_epoch: int


Found: TypeAlias = dict[TopicPartition, FoundOffset | None]
"""None where no record is as new as that."""
OnFound: TypeAlias = Callable[[Found | MillstreamError, int], None]


class _Lookup:
    """One question, and what is still to be answered of it."""

    __slots__ = (
        "awaits_leader",
        "deadline_ms",
        "failures",
        "found",
        "last_error",
        "left",
        "not_before_ms",
        "on_done",
        "started_ms",
        "under_way",
    )

    def __init__(
        self,
        times: Mapping[TopicPartition, int],
        deadline_ms: int,
        on_done: OnFound,
        now_ms: int,
    ) -> None:
        self.started_ms = now_ms
        self.left = dict(times)
        self.under_way: set[TopicPartition] = set()
        self.found: Found = {}
        self.deadline_ms = deadline_ms
        self.not_before_ms = 0
        self.awaits_leader = False
        self.failures = 0
        self.last_error: MillstreamError | None = None
        self.on_done: OnFound | None = on_done


class OffsetLookup:
    """Lookups under way. An actor of the client's runtime."""

    def __init__(self, runtime: ClientRuntime, random: Random, *, reads_committed: bool) -> None:
        self._metadata = runtime.metadata
        self._network = runtime.network
        self._random = random
        self._isolation_level = int(reads_committed)
        self._backoff = Backoff(
            runtime.config.retry_backoff_ms, runtime.config.retry_backoff_max_ms
        )
        self._lookups: list[_Lookup] = []
        runtime.metadata.subscribe(self._on_metadata)

    def find(
        self,
        times: Mapping[TopicPartition, int],
        on_done: OnFound,
        *,
        deadline_ms: int,
        now_ms: int,
    ) -> None:
        """Look up milliseconds since 1970, or ListOffsets' words for the ends."""
        lookup = _Lookup(times, deadline_ms, on_done, now_ms)
        self._lookups.append(lookup)
        self._advance(lookup, now_ms)

    def poll(self, now_ms: int) -> int | None:
        """Ask again what is due; when to look again."""
        for lookup in list(self._lookups):
            self._advance(lookup, now_ms)
        self._lookups = [each for each in self._lookups if each.on_done is not None]
        return min(
            (
                min(each.deadline_ms, max(each.not_before_ms, now_ms + 1))
                if each.left.keys() - each.under_way
                else each.deadline_ms
                for each in self._lookups
            ),
            default=None,
        )

    def _on_metadata(self, old: MetadataSnapshot, new: MetadataSnapshot, now_ms: int) -> None:
        """Lookups that wait for a leader look whether there is one now."""
        for lookup in self._lookups:
            if lookup.awaits_leader:
                lookup.not_before_ms = 0

    def _advance(self, lookup: _Lookup, now_ms: int) -> None:
        if lookup.on_done is None:
            return
        if not lookup.left:
            self._finish(lookup, lookup.found, now_ms)
        elif now_ms >= lookup.deadline_ms:
            self._finish(lookup, self._too_late(lookup), now_ms)
        elif now_ms >= lookup.not_before_ms:
            self._ask_leaders(lookup, now_ms)

    def _finish(self, lookup: _Lookup, outcome: Found | MillstreamError, now_ms: int) -> None:
        on_done, lookup.on_done = lookup.on_done, None
        if on_done is not None:
            on_done(outcome, now_ms)

    def _too_late(self, lookup: _Lookup) -> MillstreamError:
        failure = self._metadata.failure()
        if failure is not None:
            return failure
        names = ", ".join(map(str, sorted(lookup.left)))
        why = f": {lookup.last_error}" if lookup.last_error else ""
        return OperationTimeout(f"the offsets of {names} could not be looked up in time{why}")

    def _ask_leaders(self, lookup: _Lookup, now_ms: int) -> None:
        snapshot = self._metadata.snapshot
        waiting = [each for each in lookup.left if each not in lookup.under_way]
        by_leader: dict[int, list[TopicPartition]] = {}
        lookup.awaits_leader = False
        for partition in waiting:
            leader = snapshot.leader(partition.topic, partition.partition)
            if leader is None:
                lookup.last_error = error = self._why_no_leader(partition)
                is_patient = now_ms - lookup.started_ms < UNKNOWN_TOPIC_MS
                is_unknown = isinstance(error, UnknownTopicOrPartition)
                if error is not None and (not is_retriable(error) or is_unknown > is_patient):
                    self._finish(lookup, error, now_ms)
                    return
                self._metadata.borrow([partition.topic])
                self._metadata.request_update()
                lookup.awaits_leader = True
                lookup.not_before_ms = now_ms + self._backoff.after(1, self._random)
            else:
                by_leader.setdefault(leader.leader_id, []).append(partition)
        for node_id, partitions in by_leader.items():
            self._ask(lookup, node_id, partitions, now_ms)

    def _why_no_leader(self, partition: TopicPartition) -> MillstreamError | None:
        topic = self._metadata.snapshot.topics.get(partition.topic)
        if topic is None:
            return None
        if topic.error is not None:
            return type(topic.error)(f"{partition}: {topic.error}")
        if partition.partition >= len(topic.partitions):
            return UnknownTopicOrPartition(
                f"{partition}: topic {topic.name!r} has {len(topic.partitions)} partitions"
            )
        return LeaderNotAvailable(f"{partition} has no leader")

    def _ask(
        self, lookup: _Lookup, node_id: int, partitions: list[TopicPartition], now_ms: int
    ) -> None:
        lookup.under_way.update(partitions)
        times = {each: lookup.left[each] for each in partitions}

        def on_done(answer: Message | MillstreamError, done_ms: int) -> None:
            lookup.under_way.difference_update(partitions)
            if isinstance(answer, ListOffsetsResponse):
                self._take(lookup, answer, done_ms)
            elif isinstance(answer, MillstreamError):
                self._retry(lookup, answer, done_ms)
            self._advance(lookup, done_ms)

        request = VersionedRequest(
            ApiKey.LIST_OFFSETS, lambda version: self._request(times, version)
        )
        timeout_ms = max(1, lookup.deadline_ms - now_ms)
        free_id = self._free_node(node_id)
        self._network.send(free_id, request, now_ms, on_done, timeout_ms=timeout_ms)

    def _free_node(self, node_id: int) -> int:
        """The broker, by another connection if a fetch on the first waits for records: brokers
        answer the requests of a connection one after the other."""
        if not self._network.in_flight(node_id):
            return node_id
        broker = self._metadata.snapshot.brokers[node_id]
        other_id = OTHER_CONNECTION + node_id
        self._network.set_address(other_id, broker.host, broker.port, is_member=False)
        return other_id

    def _request(self, times: Mapping[TopicPartition, int], version: int) -> ListOffsetsRequest:
        if version < 2 and self._isolation_level:
            raise UnsupportedVersion(
                "the broker is too old for read_committed (it needs Kafka 0.11 or newer)"
            )
        topics: dict[str, ListOffsetsTopic] = {}
        for partition, timestamp in times.items():
            leader = self._metadata.snapshot.partition(partition.topic, partition.partition)
            topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=-1 if leader is None else leader.leader_epoch,
                    timestamp=timestamp,
                )
            )
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=self._isolation_level, topics=list(topics.values())
        )

    def _take(self, lookup: _Lookup, answer: ListOffsetsResponse, now_ms: int) -> None:
        for topic in answer.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if partition not in lookup.left:
                    continue
                if each.error_code:
                    self._on_error(lookup, partition, each.error_code, now_ms)
                    continue
                del lookup.left[partition]
                is_found = each.offset >= 0
                lookup.found[partition] = (
                    FoundOffset(each.offset, each.timestamp, each.leader_epoch)
                    if is_found
                    else None
                )

    def _on_error(self, lookup: _Lookup, partition: TopicPartition, code: int, now_ms: int) -> None:
        error = error_for_code(code, f"{partition}: {error_for_code(code)}")
        if class_for_code(code).retriable:
            self._retry(lookup, error, now_ms)
        else:
            self._finish(lookup, error, now_ms)

    def _retry(self, lookup: _Lookup, error: MillstreamError, now_ms: int) -> None:
        if not is_retriable(error):
            self._finish(lookup, error, now_ms)
            return
        lookup.last_error = error
        lookup.failures += 1
        lookup.not_before_ms = now_ms + self._backoff.after(lookup.failures, self._random)
        self._metadata.request_update()
